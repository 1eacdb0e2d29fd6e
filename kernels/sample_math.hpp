// The arithmetic of a draw that must come out the same, bit for bit, on the host and on a GPU. Layer 4; plain C++ and
// CUDA, knows neither rows nor options.
//
// Weights. A token's weight is round(exp((logit - max) / T) * 2^44), an integer of 64 bits. Sums of integers are exact
// in any order, so totals, thresholds and draws are the same bits for every vector width, thread count and device.
// The likeliest token has weight 2^44; up to 2^19 tokens the total fits in 64 bits. What rounding costs: at most 2^-45
// of the likeliest token's probability per token, at most 2^-26 of the whole row, less than float32 rounding.
//
// Every floating-point step is one IEEE operation, rounded by itself. add(), sub() and mul() keep nvcc from fusing;
// host files that use the templates with vectors are compiled with -ffp-contract=off.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

// Host functions are always inlined: files compiled for a newer instruction set must not lend their copies to others.
#ifdef __CUDACC__
#define BANYAN_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define BANYAN_HOST_DEVICE inline __attribute__((always_inline))
#endif

namespace banyan::sampling {

using Weight = std::uint64_t;

constexpr std::int64_t kMaxVocab = std::int64_t{1} << 19;
constexpr float kLog2E = 1.44269504F;
// Named here, as device code may not call numeric_limits.
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMaxFinite = std::numeric_limits<float>::max();
constexpr float kMinExponent = -126.0F;  // of the smallest normal float; weights are 0 from -45 on

// float, or a compiler vector of floats (host).
template <typename A, typename B>
BANYAN_HOST_DEVICE auto mul(A a, B b) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(A) == 4) {
    return __fmul_rn(a, b);
  } else {
    return __dmul_rn(a, b);
  }
#else
  return a * b;
#endif
}
template <typename A, typename B>
BANYAN_HOST_DEVICE auto add(A a, B b) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(A) == 4) {
    return __fadd_rn(a, b);
  } else {
    return __dadd_rn(a, b);
  }
#else
  return a + b;
#endif
}
template <typename A, typename B>
BANYAN_HOST_DEVICE auto sub(A a, B b) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(A) == 4) {
    return __fsub_rn(a, b);
  } else {
    return __dsub_rn(a, b);
  }
#else
  return a - b;
#endif
}

// Adding 1.5 * 2^23 rounds to a whole number and leaves it in the low bits.
constexpr float kRoundToWhole = 12582912.0F;

// 2^f for |f| <= 1/2: 1 + f g(f), g the polynomial through the six Chebyshev nodes. Exactly 1 for 0.
template <typename F>
BANYAN_HOST_DEVICE F exp2_fraction(F f) {
  const F f2 = mul(f, f);
  const F low = add(add(mul(f, 0.240226507F), 0.693147182F), mul(f2, add(mul(f, 0.00961808302F), 0.0555035695F)));
  const F g = add(low, mul(mul(f2, f2), add(mul(f, 0.000154531634F), 0.00133908633F)));
  return add(mul(f, g), 1.0F);
}

// 2^t for t <= 0; 2^-126 for t below -126 and for NaN (a mask at a huge temperature: -inf * 0): too little to show in
// a sum with the maximum's 1. Largest relative error measured over [-126, 0]: 1.3e-7; exp2_of(0) is exactly 1.
BANYAN_HOST_DEVICE float exp2_of(float t) {
  t = t > kMinExponent ? t : kMinExponent;
  const float shifted = add(t, kRoundToWhole);
  const float power = exp2_fraction(sub(t, sub(shifted, kRoundToWhole)));
  // The shift pushes the constant's own bits out.
  return __builtin_bit_cast(
      float, __builtin_bit_cast(std::uint32_t, power) + (__builtin_bit_cast(std::uint32_t, shifted) << 23));
}

// exp((x - max) / T), in [0, 1], for x <= max, max finite; scale is log2(e) / T.
BANYAN_HOST_DEVICE float exp_of(float x, float max, float scale) { return exp2_of(mul(sub(x, max), scale)); }

// The scale of a temperature (host; part of a draw's bits, so it is in one place).
inline float scale_of(double temperature) { return static_cast<float>(1.4426950408889634 / temperature); }

// 256 + e lies in [256, 257], where the last bit of a double is 2^-44: the addition itself rounds (to nearest even).
constexpr double kWeightMagic = 256.0;
constexpr Weight kWeightMagicBits = __builtin_bit_cast(Weight, kWeightMagic);
constexpr int kWeightBits = 44;  // of the likeliest token's

// e in [0, 1]
BANYAN_HOST_DEVICE Weight weight_of(float e) {
  return __builtin_bit_cast(Weight, add(static_cast<double>(e), kWeightMagic)) - kWeightMagicBits;
}

// The weight that the shortest beginning of the candidates must reach for top-p in [0, 1).
BANYAN_HOST_DEVICE Weight top_p_weight(double top_p, Weight total) {
  const auto wanted = static_cast<Weight>(ceil(mul(top_p, static_cast<double>(total))));
  return wanted < total ? wanted : total;
}

// Upper 64 bits of a * b.
BANYAN_HOST_DEVICE std::uint64_t mul_high(std::uint64_t a, std::uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
#endif
}

// A draw takes the first token, in id order, whose cumulative weight exceeds this; `bits` are the stream's 64.
BANYAN_HOST_DEVICE Weight drawn_weight(std::uint64_t bits, Weight total) {
  return mul_high(bits & (~std::uint64_t{0} << 11), total);
}

// The logit of a token of the history: repetition (Keskar et al. 2019, "CTRL", with the sign rule of Hugging Face),
// frequency, presence (as vLLM). -inf stays -inf; finite logits stay finite. n_generated: how often it was generated.
BANYAN_HOST_DEVICE float penalised(float logit, double repetition, double frequency, double presence,
                                   std::int64_t n_generated) {
  constexpr double kMax = kMaxFinite;
  double x = logit;
  if (x < -kMax) return logit;
  x = x > 0 ? x / repetition : mul(x, repetition);
  x = sub(x, mul(frequency, static_cast<double>(n_generated)));
  if (n_generated > 0) x = sub(x, presence);
  x = x < -kMax ? -kMax : x > kMax ? kMax : x;
  return static_cast<float>(x);
}

// Floats as integers of the same order; -0 counts as 0, as it does in comparisons. Not for NaN.
BANYAN_HOST_DEVICE std::uint32_t ordered_bits(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, add(x, 0.0F));
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
BANYAN_HOST_DEVICE float from_ordered_bits(std::uint32_t key) {
  return __builtin_bit_cast(float, (key >> 31) != 0 ? key & 0x7fffffffu : ~key);
}

}  // namespace banyan::sampling
