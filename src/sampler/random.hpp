// The random bits of a draw. Layer 6, internal.
#pragma once

#include <cstdint>

#include "banyan/sampler.hpp"

namespace banyan::sampling {

// The 64 random bits of a stream key; uniform01 takes the upper 53. Two Philox 4x32-10 blocks (Salmon et al. 2011,
// "Parallel random numbers: as easy as 1, 2, 3"), so that all 256 bits of the key count; words are little-endian
// halves, lo before hi:
//
//   a = philox(counter {prompt.lo, prompt.hi, sample.lo, sample.hi},  key {seed.lo, seed.hi})
//   b = philox(counter {position.lo, position.hi, a[2], a[3]},        key {a[0], a[1]})
//   bits = b[0] | b[1] << 32
//
// The layout is part of the file format: recorded seeds replay only as long as it stays. A golden test holds it.
std::uint64_t random_bits(const StreamKey& key);

// Upper 64 bits of a * b.
inline std::uint64_t mul_high(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
}

}  // namespace banyan::sampling
