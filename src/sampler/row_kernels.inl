// Body of row_kernels_*.cpp: see row_kernels.hpp. Everything here has internal linkage and nothing comes from standard
// library templates, so that no code for a newer instruction set can be linked into another file's functions.
#include <cstring>
#ifdef __AVX__
#include <immintrin.h>
#endif

#include "sampler/row_kernels.hpp"

namespace banyan::sampling {

const RowKernels& BANYAN_ROW_KERNELS();

namespace {

// Compiler vectors as wide as a register (g++ takes wider ones apart element by element).
#ifdef __AVX__
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
using Floats = float __attribute__((vector_size(4 * kLanes)));
using Ints = std::int32_t __attribute__((vector_size(4 * kLanes)));
using HalfFloats = float __attribute__((vector_size(2 * kLanes)));
using HalfDoubles = double __attribute__((vector_size(4 * kLanes)));
using HalfWeights = std::uint64_t __attribute__((vector_size(4 * kLanes)));

inline Floats load(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Floats v) { std::memcpy(p, &v, sizeof v); }
inline Floats splat(float x) { return Floats{} + x; }
template <typename To, typename From>
inline To bits(From v) {
  static_assert(sizeof(To) == sizeof(From));
  To r;
  std::memcpy(&r, &v, sizeof r);
  return r;
}
inline bool any(Ints v) {
  std::uint64_t words[sizeof v / 8], all = 0;
  std::memcpy(words, &v, sizeof v);
  for (const std::uint64_t w : words) all |= w;
  return all != 0;
}
inline Floats max_of(Floats a, Floats b) {  // b where one is NaN
#ifdef __AVX__
  return a > b ? a : b;
#else
  const Ints first = a > b;
  return bits<Floats>((bits<Ints>(a) & first) | (bits<Ints>(b) & ~first));
#endif
}

// Each lane as sampling::exp2_of(float).
inline Floats exp2_of(Floats t) {
  t = max_of(t, splat(kMinExponent));
  const Floats shifted = t + kRoundToWhole;
  const Floats f = t - (shifted - kRoundToWhole);
  return bits<Floats>(bits<Ints>(exp2_fraction(f)) + (bits<Ints>(shifted) << 23));
}

// Plain __builtin_convertvector goes through memory in g++ 12.
inline HalfDoubles widen(const float* p) {
  HalfFloats v;
  std::memcpy(&v, p, sizeof v);
#ifdef __AVX__
  return (HalfDoubles)_mm256_cvtps_pd((__m128)v);
#else
  return __builtin_convertvector(v, HalfDoubles);
#endif
}

// The weights of e [kBlock]. The magic bits wrap around in the sum, and out again at its end.
inline Weight block_sum(const float* e) {
  HalfWeights low{}, high{};
  for (int i = 0; i < kBlock; i += kLanes) {
    low += bits<HalfWeights>(widen(e + i) + kWeightMagic);
    high += bits<HalfWeights>(widen(e + i + kLanes / 2) + kWeightMagic);
  }
  low += high;
  Weight sum = 0;
  for (int lane = 0; lane < kLanes / 2; ++lane) sum += low[lane];
  return sum - kBlock * kWeightMagicBits;
}

// Calls f(block index, pointer to kBlock elements, number of real ones); the last block is filled up with -inf.
template <typename F>
inline void for_blocks(const float* x, std::int64_t n, F&& f) {
  const std::int64_t n_full = n / kBlock;
  for (std::int64_t b = 0; b < n_full; ++b) f(b, x + b * kBlock, kBlock);
  const std::int64_t rest = n - n_full * kBlock;
  if (rest == 0) return;
  float last[kBlock];
  for (std::int64_t i = 0; i < kBlock; ++i) last[i] = i < rest ? x[n_full * kBlock + i] : -kInfinity;
  f(n_full, last, rest);
}

bool block_max(const float* x, std::int64_t n, float* out) {
  Ints good = Ints{} - 1;
  for_blocks(x, n, [&](std::int64_t b, const float* p, std::int64_t) {
    Floats m = splat(-kInfinity);
    for (int i = 0; i < kBlock; i += kLanes) {
      const Floats v = load(p + i);
      good &= v <= kMaxFinite;
      m = max_of(v, m);
    }
    float best = m[0];
    for (int lane = 1; lane < kLanes; ++lane) best = m[lane] > best ? m[lane] : best;
    out[b] = best;
  });
  return !any(~good);
}

Weight weigh(const float* x, std::int64_t n, float max, float scale, float floor, float* e, Weight* block_weight) {
  Weight total = 0;
  for_blocks(x, n, [&](std::int64_t b, const float* p, std::int64_t n_real) {
    float local[kBlock];
    float* const to = n_real == kBlock ? e + b * kBlock : local;
    for (int i = 0; i < kBlock; i += kLanes) {
      const Floats v = exp2_of((load(p + i) - max) * scale);
      store(to + i, bits<Floats>(bits<Ints>(v) & (v >= floor)));
    }
    block_weight[b] = block_sum(to);
    total += block_weight[b];
    for (std::int64_t i = 0; i < n_real && to == local; ++i) e[b * kBlock + i] = local[i];
  });
  return total;
}

double exp_sum(const float* x, std::int64_t n, float max) {
  constexpr int kSums = 8;  // of floats in a block, of doubles over blocks: part of the result, whatever kLanes is
  double sums[kSums] = {};
  for_blocks(x, n, [&](std::int64_t, const float* p, std::int64_t) {
    Floats block[kSums / kLanes] = {};
    for (int i = 0; i < kBlock; i += kSums) {
      for (int j = 0; j < kSums / kLanes; ++j) block[j] += exp2_of((load(p + i + j * kLanes) - max) * kLog2E);
    }
    float lanes[kSums];
    std::memcpy(lanes, block, sizeof lanes);
    for (int j = 0; j < kSums; ++j) sums[j] += static_cast<double>(lanes[j]);
  });
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

std::int64_t gather(const float* x, std::int64_t n, float bound, std::int32_t* ids) {
  std::int64_t count = 0;
  for_blocks(x, n, [&](std::int64_t b, const float* p, std::int64_t n_real) {
    Ints hits{};
    for (int i = 0; i < kBlock; i += kLanes) hits |= load(p + i) >= bound;
    if (!any(hits)) return;
    for (std::int64_t i = 0; i < n_real; ++i) {
      ids[count] = static_cast<std::int32_t>(b * kBlock + i);
      count += p[i] >= bound;
    }
  });
  return count;
}

}  // namespace

const RowKernels& BANYAN_ROW_KERNELS() {
  static constexpr RowKernels kKernels{BANYAN_ROW_KERNELS_NAME, block_max, weigh, exp_sum, gather};
  return kKernels;
}

}  // namespace banyan::sampling
