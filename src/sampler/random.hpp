// The random bits of a draw. Layer 6, internal.
#pragma once

#include <cstdint>

#include "banyan/sampler.hpp"

namespace banyan::sampling {

// The 64 random bits of a stream key (kernels/sample_random.hpp); uniform01 takes the upper 53.
std::uint64_t random_bits(const StreamKey& key);

}  // namespace banyan::sampling
