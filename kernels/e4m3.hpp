// fp8 as keys and values are stored in it: "E4M3" of the OCP 8-bit floating point specification, and the scale of a
// row. On the host and on the device, with the same bits.
//
//     code: sign | 4 bits of exponent, bias 7 | 3 bits of mantissa;  0x7e is 448, the largest;  no infinity;  0x7f is
//     NaN
//
// A row, K or V of one head and slot, is stored as codes times a scale of its own, which its largest element chooses:
// no calibration, and the bits of a token's KV follow from that token alone. Scales are powers of two. That costs no
// precision (a code has its four bits wherever the largest lies between 224 and 448; what is below 2^-14 of that loses
// bits either way), and makes both directions exact but for the rounding of the code: code times scale is a bf16 and a
// f32 number, so attention over such rows is attention over those numbers, bit for bit.
//
// An element is off by at most 1/16 of itself, or by 2^-17 of the row's largest (or 2^-110) where that is more. A row
// with a NaN or an infinity in it has the scale NaN; codes of NaN are found in such rows only.
//
// Internal linkage on purpose: kernels/cpu/isa.hpp says why.
#pragma once

#include <cstdint>

#include "kernels/uniform.hpp"

namespace banyan::kernels {

// Nearest, ties to even; beyond 448, and infinity, become 448; NaN stays NaN. Without a branch, so that a compiler can
// do several at once.
BANYAN_HOST_DEVICE static inline std::uint8_t e4m3_code(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  // From 2^-6 on, the mantissa is rounded in place. Below, codes are multiples of 2^-9: what adding 2^14 rounds to.
  const std::uint32_t normal = ((magnitude + 0x7ffffU + (magnitude >> 20 & 1U)) >> 20) - (120U << 3);
  const float shifted = __builtin_bit_cast(float, magnitude) + 0x1p14F;
  const std::uint32_t small = __builtin_bit_cast(std::uint32_t, shifted) - 0x46800000U;
  const std::uint32_t code = magnitude < 0x3c800000U ? small : normal;
  const std::uint32_t finite = code < 0x7eU ? code : 0x7eU;
  return static_cast<std::uint8_t>((bits >> 24 & 0x80U) | (magnitude > 0x7f800000U ? 0x7fU : finite));
}

// Exact. The code's bits in the place of a float's give an exponent that is 120 too small, for subnormals too.
BANYAN_HOST_DEVICE static inline float e4m3_value(std::uint8_t code) {
  const float shifted = __builtin_bit_cast(float, (code & 0x7fU) << 20);
  const auto finite = __builtin_bit_cast(std::uint32_t, shifted * 0x1p120F);
  const std::uint32_t magnitude = (code & 0x7fU) == 0x7fU ? 0x7fc00000U : finite;
  return __builtin_bit_cast(float, magnitude | (code & 0x80U) << 24);
}

// |x| as an integer: the largest of these is the largest |x|, with NaN above all.
BANYAN_HOST_DEVICE static inline std::uint32_t e4m3_magnitude(float x) {
  return __builtin_bit_cast(std::uint32_t, x) & 0x7fffffffU;
}

// Scale of a row whose largest e4m3_magnitude is `largest`: the least power of two that brings it to 448 or below, but
// at least 2^-100, so that codes times scales have no exponent that bf16 lacks.
BANYAN_HOST_DEVICE static inline float e4m3_scale(std::uint32_t largest) {
  if (largest >= 0x7f800000U) return __builtin_bit_cast(float, 0x7fc00000U);
  constexpr std::uint32_t kLeast = 27;  // the exponent of 2^-100
  // 448 is 1.75 times 2^8.
  const std::uint32_t exponent = (largest >> 23) + ((largest & 0x7fffffU) > 0x600000U ? 1U : 0U);
  return __builtin_bit_cast(float, (exponent < kLeast + 8 ? kLeast : exponent - 8) << 23);
}

}  // namespace banyan::kernels
