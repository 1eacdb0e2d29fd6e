// The random bits of a draw, on the host and on a GPU. Layer 4.
#pragma once

// Random123 marks its functions with this.
#if defined(__CUDACC__) && !defined(R123_CUDA_DEVICE)
#define R123_CUDA_DEVICE __host__ __device__
#endif
#include <Random123/philox.h>
#include <cstdint>

#include "kernels/sample_math.hpp"

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
BANYAN_HOST_DEVICE std::uint64_t philox_bits(std::uint64_t seed, std::uint64_t prompt, std::uint64_t sample,
                                             std::uint64_t position) {
  using Word = std::uint32_t;
  const r123::Philox4x32 philox;
  const r123::Philox4x32::ctr_type who = {{static_cast<Word>(prompt), static_cast<Word>(prompt >> 32),
                                           static_cast<Word>(sample), static_cast<Word>(sample >> 32)}};
  const auto a = philox(who, {{static_cast<Word>(seed), static_cast<Word>(seed >> 32)}});
  const r123::Philox4x32::ctr_type where = {
      {static_cast<Word>(position), static_cast<Word>(position >> 32), a[2], a[3]}};
  const auto b = philox(where, {{a[0], a[1]}});
  return b[0] | static_cast<std::uint64_t>(b[1]) << 32;
}

}  // namespace banyan::sampling
