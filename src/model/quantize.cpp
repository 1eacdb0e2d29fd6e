#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "model/quants.hpp"

namespace banyan {
namespace {

// Rounds to nearest even: adding this leaves no bits below one. For |x| < 2^22. A compiler can do several at once.
float round_even(float x) {
  constexpr float kRound = 0x1.8p23F;
  return x + kRound - kRound;
}

float quant(float x, float low, float high) { return round_even(std::min(std::max(x, low), high)); }

void store_f16(std::byte* p, float x) {
  const std::uint16_t bits = to_f16(x).bits;
  std::memcpy(p, &bits, sizeof bits);
}

// The nearest finite half, as the value that it gives back.
float as_f16(float x) {
  constexpr float kMost = 65504;
  return to_float(to_f16(std::min(std::max(x, -kMost), kMost)));
}

float inverse(float x) { return x != 0.0F ? 1.0F / x : 0.0F; }

// --- fits ----------------------------------------------------------------------------------------------------------
// The largest value's place in the range of quants is not the best choice for all the others: both fits try some more
// scales around it, a tenth of a step apart, and solve for the factors of least square error.

constexpr int kTries = 8;  // to each side
constexpr float kTryStep = 0.1F;

// d that makes d q, q in [-half_range, half_range), closest to the n values of x.
float fit_scale(const float* x, int n, float half_range) {
  float most = 0;  // of largest magnitude, with its sign: that value gets the quant -half_range, the one more there is
  for (int i = 0; i < n; ++i) most = std::fabs(x[i]) > std::fabs(most) ? x[i] : most;
  if (most == 0.0F) return 0.0F;
  float best = 0, best_gain = 0;
  for (int t = -kTries; t <= kTries; ++t) {
    const float to_quant = -(half_range + kTryStep * static_cast<float>(t)) / most;
    float sum_xq = 0, sum_qq = 0;
    for (int i = 0; i < n; ++i) {
      const float q = quant(x[i] * to_quant, -half_range, half_range - 1);
      sum_xq += x[i] * q;
      sum_qq += q * q;
    }
    // With d = sum_xq / sum_qq the square error is that of d = 0 less this gain.
    const float gain = sum_qq > 0 ? sum_xq * sum_xq / sum_qq : 0.0F;
    if (gain > best_gain) {
      best_gain = gain;
      best = sum_xq / sum_qq;
    }
  }
  return best;
}

struct Line {
  float d = 0, m = 0;
};

// d >= 0 and m that make d q + m, q in [0, most], closest. With `below_zero`, m <= 0.
Line fit_line(const float* x, int n, float most, bool below_zero) {
  float low = x[0], high = x[0], sum_x = 0;
  for (int i = 0; i < n; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
    sum_x += x[i];
  }
  if (below_zero) low = std::min(low, 0.0F);
  if (!(high > low)) return {.d = 0, .m = below_zero ? std::min(low, 0.0F) : low};
  Line best;
  float best_error = INFINITY;
  for (int t = -kTries; t <= kTries; ++t) {
    const float to_quant = (most + kTryStep * static_cast<float>(t)) / (high - low);
    float sum_q = 0, sum_qq = 0, sum_xq = 0;
    for (int i = 0; i < n; ++i) {
      const float q = quant((x[i] - low) * to_quant, 0, most);
      sum_q += q;
      sum_qq += q * q;
      sum_xq += x[i] * q;
    }
    const auto count = static_cast<float>(n);
    const float determinant = count * sum_qq - sum_q * sum_q;
    Line line{.d = (count * sum_xq - sum_x * sum_q) / determinant,
              .m = (sum_qq * sum_x - sum_q * sum_xq) / determinant};
    if (below_zero && !(determinant > 0 && line.m <= 0)) line = {.d = sum_xq / sum_qq, .m = 0};
    if (!(line.d > 0)) continue;
    float error = 0;
    for (int i = 0; i < n; ++i) {
      const float e = line.d * quant((x[i] - line.m) / line.d, 0, most) + line.m - x[i];
      error += e * e;
    }
    if (error < best_error) {
      best_error = error;
      best = line;
    }
  }
  return best;
}

// --- blocks of 32 --------------------------------------------------------------------------------------------------

void pack_q8_0(const float* x, std::byte* block) {
  float most = 0;
  for (int i = 0; i < 32; ++i) most = std::max(most, std::fabs(x[i]));
  const float d = as_f16(most / 127);
  store_f16(block, d);
  for (int i = 0; i < 32; ++i) {
    block[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(quant(x[i] * inverse(d), -127, 127)));
  }
}

void pack_nibbles(const float* x, float d, float m, float zero, std::byte* quants) {
  const auto q = [&](int i) { return static_cast<unsigned>(quant((x[i] - m) * inverse(d) + zero, 0, 15)); };
  for (int i = 0; i < 16; ++i) quants[i] = static_cast<std::byte>(q(i) | q(i + 16) << 4U);
}

void pack_q4_0(const float* x, std::byte* block) {
  const float d = as_f16(fit_scale(x, 32, 8));
  store_f16(block, d);
  pack_nibbles(x, d, 0, 8, block + 2);
}

void pack_q4_1(const float* x, std::byte* block) {
  const Line line = fit_line(x, 32, 15, false);
  const float d = as_f16(line.d), m = as_f16(line.m);
  store_f16(block, d);
  store_f16(block + 2, m);
  pack_nibbles(x, d, m, 0, block + 4);
}

// --- blocks of 256 -------------------------------------------------------------------------------------------------

void pack_q4_k(const float* x, std::byte* block) {
  std::array<Line, 8> lines;
  float most_d = 0, most_m = 0;
  for (std::size_t j = 0; j < 8; ++j) {
    lines[j] = fit_line(x + 32 * j, 32, 15, true);
    most_d = std::max(most_d, lines[j].d);
    most_m = std::max(most_m, -lines[j].m);
  }
  const float d = as_f16(most_d / 63), dm = as_f16(most_m / 63);
  store_f16(block, d);
  store_f16(block + 2, dm);
  std::fill_n(block + 4, 12, std::byte{0});
  for (std::size_t j = 0; j < 8; ++j) {
    const float s = quant(lines[j].d * inverse(d), 0, 63), m = quant(-lines[j].m * inverse(dm), 0, 63);
    const auto s_bits = static_cast<unsigned>(s), m_bits = static_cast<unsigned>(m);
    std::byte* packed = block + 4 + j % 4;
    if (j < 4) {
      packed[0] = static_cast<std::byte>(s_bits);
      packed[4] = static_cast<std::byte>(m_bits);
    } else {
      packed[0] |= static_cast<std::byte>(s_bits >> 4U << 6U);
      packed[4] |= static_cast<std::byte>(m_bits >> 4U << 6U);
      packed[8] = static_cast<std::byte>((s_bits & 15U) | (m_bits & 15U) << 4U);
    }
    const float step = inverse(d * s);
    for (std::size_t i = 0; i < 32; ++i) {
      const auto q = static_cast<unsigned>(quant((x[32 * j + i] + dm * m) * step, 0, 15));
      std::byte& out = block[16 + j / 2 * 32 + i];
      out = j % 2 == 0 ? static_cast<std::byte>(q) : out | static_cast<std::byte>(q << 4U);
    }
  }
}

void pack_q6_k(const float* x, std::byte* block) {
  std::array<float, 16> scales;
  for (std::size_t g = 0; g < 16; ++g) scales[g] = fit_scale(x + 16 * g, 16, 32);
  const float most = *std::ranges::max_element(scales, {}, [](float s) { return std::fabs(s); });
  const float d = as_f16(most / -128);
  store_f16(block + 208, d);
  std::fill_n(block, 192, std::byte{0});
  for (std::size_t g = 0; g < 16; ++g) {
    const float s = quant(scales[g] * inverse(d), -128, 127);
    block[192 + g] = static_cast<std::byte>(static_cast<std::int8_t>(s));
    const float step = inverse(d * s);
    const std::size_t half = g / 8, run = g % 8 / 2, column = g % 2 * 16;
    for (std::size_t i = 0; i < 16; ++i) {
      const auto q = static_cast<unsigned>(quant(x[16 * g + i] * step, -32, 31) + 32);
      block[half * 64 + run % 2 * 32 + column + i] |= static_cast<std::byte>((q & 15U) << run / 2 * 4);
      block[128 + half * 32 + column + i] |= static_cast<std::byte>(q >> 4U << run * 2);
    }
  }
}

template <void (*Pack)(const float*, std::byte*)>
void pack_blocks(DType type, const float* src, std::int64_t n, std::byte* dst) {
  const std::int64_t n_block = dtype_block(type), block_bytes = dtype_bytes(type, n_block);
  assert(n % n_block == 0);
  for (; n > 0; n -= n_block, src += n_block, dst += block_bytes) Pack(src, dst);
}

template <auto Convert>
void pack_halves(const float* src, std::int64_t n, std::byte* dst) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint16_t bits = Convert(src[i]).bits;
    std::memcpy(dst + 2 * i, &bits, sizeof bits);
  }
}

}  // namespace

bool can_quantize(DType type) {
  constexpr std::array kTypes{DType::f32,  DType::f16,  DType::bf16, DType::q8_0,
                              DType::q4_0, DType::q4_1, DType::q4_k, DType::q6_k};
  return std::ranges::find(kTypes, type) != kTypes.end();
}

void quantize(DType type, const float* src, std::int64_t n, std::byte* dst) {
  switch (type) {
    case DType::f32: std::memcpy(dst, src, static_cast<std::size_t>(n) * sizeof(float)); return;
    case DType::f16: return pack_halves<to_f16>(src, n, dst);
    case DType::bf16: return pack_halves<to_bf16>(src, n, dst);
    case DType::q8_0: return pack_blocks<pack_q8_0>(type, src, n, dst);
    case DType::q4_0: return pack_blocks<pack_q4_0>(type, src, n, dst);
    case DType::q4_1: return pack_blocks<pack_q4_1>(type, src, n, dst);
    case DType::q4_k: return pack_blocks<pack_q4_k>(type, src, n, dst);
    case DType::q6_k: return pack_blocks<pack_q6_k>(type, src, n, dst);
    case DType::q5_0:
    case DType::q5_1:
    case DType::q2_k:
    case DType::q3_k:
    case DType::q5_k:
    case DType::iq4_nl:
    case DType::f8_e4m3: assert(false && "can_quantize() says no");
  }
}

}  // namespace banyan
