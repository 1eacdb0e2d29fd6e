#include <array>
#include <cassert>
#include <cstring>

#include "model/quants.hpp"

namespace banyan {
namespace {

// Bytes of a block; none of them alias the values that are written, which lets the loops be vectorised.
using Bytes = const std::uint8_t* __restrict;
using Values = float* __restrict;

template <typename T>
T load(const std::uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

float load_f16(const std::uint8_t* p) { return to_float(f16{load<std::uint16_t>(p)}); }

// --- blocks of 32 --------------------------------------------------------------------------------------------------

void expand_q8_0(Bytes block, Values x) {
  const float d = load_f16(block);
  for (int i = 0; i < 32; ++i) x[i] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
}

// x = d (q - zero) + m of the 4-bit types.
void expand_nibbles(Bytes q, float d, int zero, float m, Values x) {
  for (int i = 0; i < 16; ++i) {
    x[i] = d * static_cast<float>((q[i] & 15) - zero) + m;
    x[i + 16] = d * static_cast<float>((q[i] >> 4) - zero) + m;
  }
}

// The same with a fifth bit.
void expand_five_bits(Bytes q, std::uint32_t fifth, float d, int zero, float m, Values x) {
  std::array<std::uint8_t, 32> high;
  for (unsigned i = 0; i < 32; ++i) high[i] = static_cast<std::uint8_t>((fifth >> i & 1U) << 4U);
  for (std::size_t i = 0; i < 16; ++i) {
    x[i] = d * static_cast<float>(((q[i] & 15) | high[i]) - zero) + m;
    x[i + 16] = d * static_cast<float>(((q[i] >> 4) | high[i + 16]) - zero) + m;
  }
}

// A sum with -0 changes no bit of the other, +0 would make +0 of a product that is -0.
constexpr float kNoMinimum = -0.0F;

void expand_q4_0(Bytes b, Values x) { expand_nibbles(b + 2, load_f16(b), 8, kNoMinimum, x); }
void expand_q4_1(Bytes b, Values x) { expand_nibbles(b + 4, load_f16(b), 0, load_f16(b + 2), x); }
void expand_q5_0(Bytes b, Values x) {
  expand_five_bits(b + 6, load<std::uint32_t>(b + 2), load_f16(b), 16, kNoMinimum, x);
}
void expand_q5_1(Bytes b, Values x) {
  expand_five_bits(b + 8, load<std::uint32_t>(b + 4), load_f16(b), 0, load_f16(b + 2), x);
}

void expand_iq4_nl(Bytes block, Values x) {
  constexpr std::array<float, 16> kTable{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  const float d = load_f16(block);
  for (int i = 0; i < 16; ++i) {
    x[i] = d * kTable[block[2 + i] & 15U];
    x[i + 16] = d * kTable[block[2 + i] >> 4U];
  }
}

// --- blocks of 256 -------------------------------------------------------------------------------------------------

// Bits [shift, shift + 2) of each of 32 bytes: two groups of 16 with scales of their own.
void expand_q2_k(Bytes block, Values x) {
  const Bytes scales = block, q = block + 16;
  const float d = load_f16(block + 80), dm = load_f16(block + 82);
  for (int group = 0; group < 16; ++group) {
    const float s = d * static_cast<float>(scales[group] & 15), m = dm * static_cast<float>(scales[group] >> 4);
    const int shift = group % 8 / 2 * 2;
    const Bytes from = q + group / 8 * 32 + group % 2 * 16;
    for (int i = 0; i < 16; ++i) x[16 * group + i] = s * static_cast<float>(from[i] >> shift & 3) - m;
  }
}

// Scale j: low four bits in half j / 8 of byte j % 8, high two in bits 2 (j / 4) of byte 8 + j % 4. A third bit that is
// set means that nothing is taken off.
void expand_q3_k(Bytes block, Values x) {
  const Bytes third = block, q = block + 32, scales = block + 96;
  const float d = load_f16(block + 108);
  for (int group = 0; group < 16; ++group) {
    const int low = scales[group % 8] >> (group / 8 * 4) & 15, high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
    const float s = d * static_cast<float>((low | high << 4) - 32);
    const int shift = group % 8 / 2 * 2, bit = group / 2, column = group % 2 * 16;
    const Bytes from = q + group / 8 * 32 + column, from_third = third + column;
    for (int i = 0; i < 16; ++i) {
      x[16 * group + i] = s * static_cast<float>((from[i] >> shift & 3) - (4 - (from_third[i] >> bit & 1) * 4));
    }
  }
}

struct ScaleMin {
  float s, m;
};
// Of group j of q4_k and q5_k. The twelve bytes hold, six bits each, scales 0 - 3 and minima 0 - 3; the top two bits of
// these eight bytes belong to 4 - 7, whose low four bits are in the last four bytes, scale below minimum.
ScaleMin scale_min(Bytes packed, int j, float d, float dm) {
  const int k = j % 4;
  int s = packed[k] & 63, m = packed[4 + k] & 63;
  if (j >= 4) {
    s = (packed[8 + k] & 15) | packed[k] >> 6 << 4;
    m = packed[8 + k] >> 4 | packed[4 + k] >> 6 << 4;
  }
  return {d * static_cast<float>(s), dm * static_cast<float>(m)};
}

void expand_q4_k(Bytes block, Values x) {
  const float d = load_f16(block), dm = load_f16(block + 2);
  for (int j = 0; j < 8; ++j) {
    const auto [s, m] = scale_min(block + 4, j, d, dm);
    const Bytes q = block + 16 + j / 2 * 32;
    const int shift = j % 2 * 4;
    for (int i = 0; i < 32; ++i) x[32 * j + i] = s * static_cast<float>(q[i] >> shift & 15) - m;
  }
}

void expand_q5_k(Bytes block, Values x) {
  const float d = load_f16(block), dm = load_f16(block + 2);
  const Bytes fifth = block + 16;
  for (int j = 0; j < 8; ++j) {
    const auto [s, m] = scale_min(block + 4, j, d, dm);
    const Bytes q = block + 48 + j / 2 * 32;
    const int shift = j % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      x[32 * j + i] = s * static_cast<float>((q[i] >> shift & 15) | (fifth[i] >> j & 1) << 4) - m;
    }
  }
}

// Each half of the block is four runs of 32: low bits in bytes 0 - 31 and 32 - 63 of its 64, low halves first; high
// bits in the four pairs of its 32 bytes.
void expand_q6_k(Bytes block, Values x) {
  const Bytes scales = block + 192;
  const float d = load_f16(block + 208);
  for (int group = 0; group < 16; ++group) {
    const float s = d * static_cast<float>(static_cast<std::int8_t>(scales[group]));
    const int half = group / 8, run = group % 8 / 2, column = group % 2 * 16;
    const Bytes low = block + half * 64 + run % 2 * 32 + column, high = block + 128 + half * 32 + column;
    const int low_shift = run / 2 * 4, high_shift = run * 2;
    for (int i = 0; i < 16; ++i) {
      const int q = (low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4;
      x[16 * group + i] = s * static_cast<float>(q - 32);
    }
  }
}

template <void (*Expand)(Bytes, Values)>
void expand_blocks(DType type, const std::byte* src, std::int64_t n, float* dst) {
  const std::int64_t n_block = dtype_block(type), block_bytes = dtype_bytes(type, n_block);
  assert(n % n_block == 0);
  const auto* block = reinterpret_cast<const std::uint8_t*>(src);
  for (; n > 0; n -= n_block, block += block_bytes, dst += n_block) Expand(block, dst);
}

}  // namespace

void dequantize(DType type, const std::byte* src, std::int64_t n, float* dst) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(src);
  switch (type) {
    case DType::f32: std::memcpy(dst, src, static_cast<std::size_t>(n) * sizeof(float)); return;
    case DType::f16:
      for (std::int64_t i = 0; i < n; ++i) dst[i] = load_f16(bytes + 2 * i);
      return;
    case DType::bf16:
      for (std::int64_t i = 0; i < n; ++i) dst[i] = to_float(bf16{load<std::uint16_t>(bytes + 2 * i)});
      return;
    case DType::q8_0: return expand_blocks<expand_q8_0>(type, src, n, dst);
    case DType::q4_0: return expand_blocks<expand_q4_0>(type, src, n, dst);
    case DType::q4_1: return expand_blocks<expand_q4_1>(type, src, n, dst);
    case DType::q5_0: return expand_blocks<expand_q5_0>(type, src, n, dst);
    case DType::q5_1: return expand_blocks<expand_q5_1>(type, src, n, dst);
    case DType::q2_k: return expand_blocks<expand_q2_k>(type, src, n, dst);
    case DType::q3_k: return expand_blocks<expand_q3_k>(type, src, n, dst);
    case DType::q4_k: return expand_blocks<expand_q4_k>(type, src, n, dst);
    case DType::q5_k: return expand_blocks<expand_q5_k>(type, src, n, dst);
    case DType::q6_k: return expand_blocks<expand_q6_k>(type, src, n, dst);
    case DType::iq4_nl: return expand_blocks<expand_iq4_nl>(type, src, n, dst);
    case DType::f8_e4m3: assert(false && "no file has it");
  }
}

}  // namespace banyan
