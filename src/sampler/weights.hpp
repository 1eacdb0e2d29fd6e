// Weights of tokens as whole numbers. Layer 6, internal.
//
// A token's weight is round(exp((logit - max) / T) * 2^44), an integer of 64 bits. Sums of integers are exact in any
// order, so totals, thresholds and draws are the same bits for every vector width, thread count and, later, on a GPU.
// The likeliest token has weight 2^44; up to 2^19 tokens the total fits in 64 bits. What rounding costs: at most 2^-45
// of the likeliest token's probability per token, at most 2^-26 of the whole row, less than float32 rounding.
#pragma once

#include <bit>
#include <cstdint>

namespace banyan::sampling {

using Weight = std::uint64_t;

constexpr std::int64_t kMaxVocab = std::int64_t{1} << 19;
// 256 + e lies in [256, 257], where the last bit of a double is 2^-44: the addition itself rounds (to nearest even).
constexpr double kWeightMagic = 256.0;
constexpr Weight kWeightMagicBits = std::bit_cast<Weight>(kWeightMagic);

// e in [0, 1]
inline Weight weight_of(float e) {
  return std::bit_cast<Weight>(static_cast<double>(e) + kWeightMagic) - kWeightMagicBits;
}

}  // namespace banyan::sampling
