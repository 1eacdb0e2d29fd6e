// The widest float vector of the instruction set that the including file is compiled for, behind a dozen functions.
// Only for isa_table.hpp and its parts: everything here has internal linkage on purpose (see isa.hpp).
//
// load_first and store_first touch n elements. Whole vectors, the usual case, take the plain way: with masked ones the
// copies of K and V tiles waited for earlier stores 4 KiB apart (attention on private f32 keys took twice as long).
// max_of returns its second argument when either is NaN; callers put the value whose NaN must live second.
// widen_e4m3 takes codes of NaN for 480: rows that have one have a scale of NaN (e4m3.hpp).
// exp2_of: relative error below 1e-7 for x >= -126; exactly 1 at 0, exactly 0 below about -127 and at -inf, NaN at NaN.
#pragma once

#include <cstdint>

#include "banyan/types.hpp"
#include "kernels/e4m3.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace banyan::kernels {
namespace {

#define BANYAN_INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)

constexpr int kWidth = 16;
constexpr float kExp2Lowest = -200.0F;
constexpr int kTileVectors = 4;  // of a product's accumulator tile: 6 x 4 of 32 registers, 4 for b, 1 for a
using Vec = __m512;

BANYAN_INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << n) - 1u); }
BANYAN_INLINE Vec splat(float x) { return _mm512_set1_ps(x); }
BANYAN_INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
BANYAN_INLINE Vec load_first(const float* p, int n) {
  return n >= kWidth ? load(p) : _mm512_maskz_loadu_ps(first_lanes(n), p);
}
BANYAN_INLINE void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
BANYAN_INLINE void store_first(float* p, Vec v, int n) {
  if (n >= kWidth) return store(p, v);
  _mm512_mask_storeu_ps(p, first_lanes(n), v);
}
BANYAN_INLINE Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
BANYAN_INLINE Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
BANYAN_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
BANYAN_INLINE Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
BANYAN_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
BANYAN_INLINE Vec max_of(Vec a, Vec b) { return _mm512_max_ps(a, b); }
BANYAN_INLINE Vec min_of(Vec a, Vec b) { return _mm512_min_ps(a, b); }
// Lanes from n on become `other`.
BANYAN_INLINE Vec keep_first(Vec v, int n, Vec other) { return _mm512_mask_blend_ps(first_lanes(n), other, v); }
BANYAN_INLINE float sum_of(Vec v) { return _mm512_reduce_add_ps(v); }
BANYAN_INLINE float largest_of(Vec v) { return _mm512_reduce_max_ps(v); }
BANYAN_INLINE Vec round_nearest(Vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
BANYAN_INLINE Vec times_exp2(Vec x, Vec n) { return _mm512_scalef_ps(x, n); }
BANYAN_INLINE Vec widen_bf16(const std::uint16_t* p, int n) {
  const __m256i h = _mm256_maskz_loadu_epi16(first_lanes(n), p);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
BANYAN_INLINE Vec widen_f16(const std::uint16_t* p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
BANYAN_INLINE Vec widen_e4m3(const std::uint8_t* p, int n) {
  const __m512i code = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first_lanes(n), p));
  const __m512i magnitude = _mm512_slli_epi32(_mm512_and_si512(code, _mm512_set1_epi32(0x7f)), 20);
  const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(code, _mm512_set1_epi32(0x80)), 24);
  return _mm512_mul_ps(_mm512_castsi512_ps(_mm512_or_si512(magnitude, sign)), _mm512_set1_ps(0x1p120F));
}
BANYAN_INLINE void store_f16(std::uint16_t* p, Vec v, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// A vector of bf16 pairs, as f32: the first and the second of each pair.
BANYAN_INLINE Vec first_halves(Vec v) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(v), 16)); }
BANYAN_INLINE Vec second_halves(Vec v) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

// dst[i * stride + j] = row j, element i; i < n_used.
BANYAN_INLINE void store_transposed(const Vec (&row)[kWidth], float* dst, std::int64_t stride, int n_used) {
  Vec t[16], u[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(row[i], row[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(row[i], row[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
      u[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
      u[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
  }
  // u[4 g + e] holds, in 128-bit lane l, element 4 l + e of rows 4 g .. 4 g + 3.
  for (int e = 0; e < 4; ++e) {
    const Vec a = _mm512_shuffle_f32x4(u[e], u[4 + e], 0x44), b = _mm512_shuffle_f32x4(u[8 + e], u[12 + e], 0x44);
    const Vec c = _mm512_shuffle_f32x4(u[e], u[4 + e], 0xee), d = _mm512_shuffle_f32x4(u[8 + e], u[12 + e], 0xee);
    const Vec out[4] = {_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd),
                        _mm512_shuffle_f32x4(c, d, 0x88), _mm512_shuffle_f32x4(c, d, 0xdd)};
    for (int l = 0; l < 4; ++l) {
      if (4 * l + e < n_used) store(dst + (4 * l + e) * stride, out[l]);
    }
  }
}

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

constexpr int kWidth = 8;
constexpr float kExp2Lowest = -127.0F;
constexpr int kTileVectors = 2;  // 6 x 2 accumulators of 16 registers, 2 for b, 1 for a
using Vec = __m256;

BANYAN_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
BANYAN_INLINE Vec splat(float x) { return _mm256_set1_ps(x); }
BANYAN_INLINE Vec load(const float* p) { return _mm256_loadu_ps(p); }
BANYAN_INLINE Vec load_first(const float* p, int n) {
  return n >= kWidth ? load(p) : _mm256_maskload_ps(p, first_lanes(n));
}
BANYAN_INLINE void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
BANYAN_INLINE void store_first(float* p, Vec v, int n) {
  if (n >= kWidth) return store(p, v);
  _mm256_maskstore_ps(p, first_lanes(n), v);
}
BANYAN_INLINE Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
BANYAN_INLINE Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
BANYAN_INLINE Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
BANYAN_INLINE Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
BANYAN_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
BANYAN_INLINE Vec max_of(Vec a, Vec b) { return _mm256_max_ps(a, b); }
BANYAN_INLINE Vec min_of(Vec a, Vec b) { return _mm256_min_ps(a, b); }
BANYAN_INLINE Vec keep_first(Vec v, int n, Vec other) {
  return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(first_lanes(n)));
}
BANYAN_INLINE float sum_of(Vec v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
BANYAN_INLINE float largest_of(Vec v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
BANYAN_INLINE Vec round_nearest(Vec x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
BANYAN_INLINE Vec times_exp2(Vec x, Vec n) {  // -127 <= n <= 128
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(x, _mm256_castsi256_ps(exponent));
}
BANYAN_INLINE __m128i load_16bit(const std::uint16_t* p, int n) {
  if (n >= 8) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  std::uint16_t t[8] = {};
  for (int i = 0; i < n; ++i) t[i] = p[i];
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(t));
}
BANYAN_INLINE Vec widen_bf16(const std::uint16_t* p, int n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16bit(p, n)), 16));
}
BANYAN_INLINE Vec widen_f16(const std::uint16_t* p, int n) { return _mm256_cvtph_ps(load_16bit(p, n)); }
BANYAN_INLINE __m128i load_8bit(const std::uint8_t* p, int n) {
  if (n >= 8) return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  std::uint8_t t[8] = {};
  for (int i = 0; i < n; ++i) t[i] = p[i];
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(t));
}
BANYAN_INLINE Vec widen_e4m3(const std::uint8_t* p, int n) {
  const __m256i code = _mm256_cvtepu8_epi32(load_8bit(p, n));
  const __m256i magnitude = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x7f)), 20);
  const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(code, _mm256_set1_epi32(0x80)), 24);
  return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_or_si256(magnitude, sign)), _mm256_set1_ps(0x1p120F));
}
BANYAN_INLINE void store_f16(std::uint16_t* p, Vec v, int n) {
  std::uint16_t t[8];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(t), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  for (int i = 0; i < n && i < 8; ++i) p[i] = t[i];
}
BANYAN_INLINE Vec first_halves(Vec v) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(v), 16)); }
BANYAN_INLINE Vec second_halves(Vec v) {
  return _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
BANYAN_INLINE void store_transposed(const Vec (&row)[kWidth], float* dst, std::int64_t stride, int n_used) {
  Vec t[8], u[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(row[i], row[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(row[i], row[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      u[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0x44);
      u[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0xee);
    }
  }
  for (int e = 0; e < 4; ++e) {
    if (e < n_used) store(dst + e * stride, _mm256_permute2f128_ps(u[e], u[4 + e], 0x20));
    if (4 + e < n_used) store(dst + (4 + e) * stride, _mm256_permute2f128_ps(u[e], u[4 + e], 0x31));
  }
}

#else  // vector extensions of g++ and clang, for any processor

constexpr int kWidth = 4;
constexpr float kExp2Lowest = -127.0F;
constexpr int kTileVectors = 2;
typedef float Vec __attribute__((vector_size(16)));
typedef std::int32_t IntVec __attribute__((vector_size(16)));

BANYAN_INLINE Vec splat(float x) { return Vec{x, x, x, x}; }
BANYAN_INLINE Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}
BANYAN_INLINE void store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof(v)); }
BANYAN_INLINE Vec load_first(const float* p, int n) {
  if (n >= 4) return load(p);
  Vec v = splat(0.0F);
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
BANYAN_INLINE void store_first(float* p, Vec v, int n) {
  for (int i = 0; i < n && i < 4; ++i) p[i] = v[i];
}
BANYAN_INLINE Vec add(Vec a, Vec b) { return a + b; }
BANYAN_INLINE Vec sub(Vec a, Vec b) { return a - b; }
BANYAN_INLINE Vec mul(Vec a, Vec b) { return a * b; }
BANYAN_INLINE Vec div(Vec a, Vec b) { return a / b; }
BANYAN_INLINE Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
BANYAN_INLINE Vec max_of(Vec a, Vec b) { return a > b ? a : b; }
BANYAN_INLINE Vec min_of(Vec a, Vec b) { return a < b ? a : b; }
BANYAN_INLINE Vec keep_first(Vec v, int n, Vec other) { return IntVec{0, 1, 2, 3} < IntVec{n, n, n, n} ? v : other; }
BANYAN_INLINE float sum_of(Vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }
BANYAN_INLINE float largest_of(Vec v) {
  const float a = v[0] > v[2] ? v[0] : v[2], b = v[1] > v[3] ? v[1] : v[3];
  return a > b ? a : b;
}
BANYAN_INLINE IntVec bits_of(Vec v) {
  IntVec u;
  __builtin_memcpy(&u, &v, sizeof(u));
  return u;
}
BANYAN_INLINE Vec vec_of(IntVec u) {
  Vec v;
  __builtin_memcpy(&v, &u, sizeof(v));
  return v;
}
// |x| < 2^22, which exp2_of sees to.
BANYAN_INLINE Vec round_nearest(Vec x) { return (x + splat(12582912.0F)) - splat(12582912.0F); }
BANYAN_INLINE Vec times_exp2(Vec x, Vec n) {  // -127 <= n <= 128
  return x * vec_of((__builtin_convertvector(n, IntVec) + 127) << 23);
}
BANYAN_INLINE Vec first_halves(Vec v) { return vec_of(bits_of(v) << 16); }
BANYAN_INLINE Vec second_halves(Vec v) { return vec_of(bits_of(v) & static_cast<std::int32_t>(0xffff0000u)); }
BANYAN_INLINE float float_from_bits(std::uint32_t u) {
  float x;
  __builtin_memcpy(&x, &u, sizeof(x));
  return x;
}
BANYAN_INLINE Vec widen_bf16(const std::uint16_t* p, int n) {
  Vec v = splat(0.0F);
  for (int i = 0; i < n && i < 4; ++i) v[i] = float_from_bits(static_cast<std::uint32_t>(p[i]) << 16);
  return v;
}
// The conversions of half precision are banyan's own, compiled once in types.cpp.
BANYAN_INLINE Vec widen_f16(const std::uint16_t* p, int n) {
  Vec v = splat(0.0F);
  for (int i = 0; i < n && i < 4; ++i) v[i] = to_float(f16{p[i]});
  return v;
}
BANYAN_INLINE Vec widen_e4m3(const std::uint8_t* p, int n) {
  Vec v = splat(0.0F);
  for (int i = 0; i < n && i < 4; ++i) v[i] = e4m3_value(p[i]);
  return v;
}
BANYAN_INLINE void store_f16(std::uint16_t* p, Vec v, int n) {
  for (int i = 0; i < n && i < 4; ++i) p[i] = to_f16(v[i]).bits;
}
BANYAN_INLINE void store_transposed(const Vec (&row)[kWidth], float* dst, std::int64_t stride, int n_used) {
  for (int i = 0; i < n_used && i < 4; ++i) store(dst + i * stride, Vec{row[0][i], row[1][i], row[2][i], row[3][i]});
}

#endif

BANYAN_INLINE Vec exp2_of(Vec x) {
  // Clamped to where the result is 0 or infinite already; max_of and min_of with x second let NaN through.
  x = min_of(splat(128.0F), max_of(splat(kExp2Lowest), x));
  const Vec n = round_nearest(x);
  const Vec f = sub(x, n);  // [-0.5, 0.5]
  // (2^f - 1) / f interpolated at six Chebyshev nodes, so that 2^0 is exactly 1.
  Vec p = splat(0.000154531634F);
  p = fma(p, f, splat(0.00133908633F));
  p = fma(p, f, splat(0.00961808302F));
  p = fma(p, f, splat(0.0555035695F));
  p = fma(p, f, splat(0.240226507F));
  p = fma(p, f, splat(0.693147182F));
  return times_exp2(fma(p, f, splat(1.0F)), n);
}

// Round to nearest even, NaN stays NaN: what banyan::to_bf16 does.
BANYAN_INLINE std::uint16_t bf16_bits(float x) {
  std::uint32_t u;
  __builtin_memcpy(&u, &x, sizeof(u));
  if (x != x) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

}  // namespace
}  // namespace banyan::kernels
