// The element types of checkpoint files, to f32 and back. Layer 5, internal. Knows bytes and numbers, no file, no
// tensor. Pure functions. Sources and destinations need no alignment.
//
// Blocks of 32 elements. Halves of a scale d and, with _1, a minimum m; then the quants, where element i is in the low
// half of byte i and element i + 16 in its high half; the fifth bit of element i of the 5-bit types is bit i of a u32.
//
//     q4_0    d | 16 bytes of q                   x = d (q - 8)
//     q4_1    d | m | 16 bytes of q               x = d q + m
//     q5_0    d | u32 fifth bits | 16 bytes       x = d (q - 16)
//     q5_1    d | m | u32 fifth bits | 16 bytes   x = d q + m
//     q8_0    d | 32 int8 q                       x = d q
//     iq4_nl  d | 16 bytes of q                   x = d table[q]
//
// Blocks of 256, with a small scale s (and minimum m) for each group of elements, both multiples of the block's halves:
//
//     q2_k    16 x (4 bits s, 4 bits m) | 64 bytes of q | d | dm                groups of 16   x = d s q - dm m
//     q3_k    32 bytes of third bits | 64 bytes of q | 16 x 6 bits of s | d     groups of 16   x = d (s - 32) (q - 4)
//     q4_k    d | dm | 8 x (6 bits s, 6 bits m) | 128 bytes of q                groups of 32   x = d s q - dm m
//     q5_k    d | dm | 8 x (6 + 6 bits) | 32 bytes of fifth bits | 128 bytes    groups of 32   x = d s q - dm m
//     q6_k    128 bytes of low q | 64 bytes of high q | 16 int8 s | d           groups of 16   x = d s (q - 32)
//
// The product from which a minimum is taken, or to which one is added, is exact in f32. So a value is rounded once at
// most, whether a compiler fuses the two operations or not: its bits are those of the format's reference code.
#pragma once

#include <cstddef>
#include <cstdint>

#include "banyan/types.hpp"

namespace banyan {

// Writes n elements of `type` as f32; n is whole blocks.
void dequantize(DType type, const std::byte* src, std::int64_t n, float* dst);

// Whether quantize() writes this type: f32, f16, bf16, q8_0, q4_0, q4_1, q4_k, q6_k.
bool can_quantize(DType type);

// Writes n values, whole blocks, as `type`. They must be finite and, but for f32 and bf16, no larger than kMostInHalf.
// Scales and minima are those of least square error among a few candidates.
constexpr float kMostInHalf = 65504;
void quantize(DType type, const float* src, std::int64_t n, std::byte* dst);

}  // namespace banyan
