// Shared small types: token ids, element types, 16-bit floats, checked sizes. Layer 0.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "banyan/error.hpp"

namespace banyan {

using TokenId = std::int32_t;
constexpr TokenId kNoToken = -1;
// Stands for a token that the host does not know yet: what query i of the step before draws. Below kNoToken.
constexpr TokenId drawn_token(std::int64_t i) { return static_cast<TokenId>(-2 - i); }
constexpr bool is_drawn_token(TokenId token) { return token < kNoToken; }
constexpr std::int64_t query_of(TokenId drawn) { return -2 - std::int64_t{drawn}; }

// Element types of tensors. The q-types are GGUF's blocks, of 32 values or (those that end in _k) of 256, and are only
// ever stored, never computed in. f8_e4m3 is a type of stored keys and values alone: its codes have scales beside them
// (kernels/e4m3.hpp).
enum class DType : std::uint8_t {
  f32,
  f16,
  bf16,
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  f8_e4m3
};

std::string_view to_string(DType type);  // "f32", "bf16", "q4_1" …
// Takes "fp8" and "fp8_e4m3" for f8_e4m3 too. Throws Error{usage} that lists the known names.
DType dtype_from_string(std::string_view name);
std::int64_t dtype_block(DType type);                  // elements of one block; 1 for the types without
std::int64_t dtype_bytes(DType type, std::int64_t n);  // of n elements; Error{bad_file} for parts of a block

// bfloat16 and IEEE half as raw bits, so that no compiler or device header is needed here.
struct bf16 {
  std::uint16_t bits = 0;
};
struct f16 {
  std::uint16_t bits = 0;
};

inline float to_float(bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

// Round to nearest even; NaN stays NaN (quiet).
inline bf16 to_bf16(float x) {
  auto u = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// Exact. Without a branch, so that a compiler can do several at once: the half's bits are shifted into the place of a
// float's, whose exponent is then 112 too small, for subnormals too.
inline float to_float(f16 x) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(x.bits & 0x7fffu) << 13;
  const auto finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const std::uint32_t value = (x.bits & 0x7c00u) == 0x7c00u ? magnitude | 0x7f800000u : finite;
  return std::bit_cast<float>(value | static_cast<std::uint32_t>(x.bits & 0x8000u) << 16);
}
f16 to_f16(float x);  // round to nearest even; overflow gives infinity; NaN stays NaN

// 64-bit sizes that refuse to wrap. `what` names the size in the message. Throw Error{bad_file} on overflow or a
// negative operand: sizes that overflow come from files.
inline std::int64_t checked_mul(std::int64_t a, std::int64_t b, std::string_view what) {
  std::int64_t r = 0;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &r)) {
    throw Error(ErrorCode::bad_file, std::string(what),
                "size " + std::to_string(a) + " x " + std::to_string(b) + " does not fit in 63 bits");
  }
  return r;
}
inline std::int64_t checked_add(std::int64_t a, std::int64_t b, std::string_view what) {
  std::int64_t r = 0;
  if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &r)) {
    throw Error(ErrorCode::bad_file, std::string(what),
                "size " + std::to_string(a) + " + " + std::to_string(b) + " does not fit in 63 bits");
  }
  return r;
}

}  // namespace banyan
