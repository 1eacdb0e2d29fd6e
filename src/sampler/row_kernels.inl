// Body of row_kernels_*.cpp: see row_kernels.hpp. Everything here has internal linkage and nothing comes from standard
// library templates, so that no code for a newer instruction set can be linked into another file's functions.
#include <cstring>

#include "sampler/row_kernels.hpp"

namespace banyan::sampling {

const RowKernels& BANYAN_ROW_KERNELS();

namespace {

// Compiler vectors: eight floats are one AVX register or two of SSE or NEON.
constexpr int kLanes = 8;
using Floats = float __attribute__((vector_size(32)));
using Ints = std::int32_t __attribute__((vector_size(32)));
using HalfFloats = float __attribute__((vector_size(16)));
using HalfDoubles = double __attribute__((vector_size(32)));
using HalfWeights = std::uint64_t __attribute__((vector_size(32)));
using Bytes = std::int8_t __attribute__((vector_size(8)));

constexpr float kInf = __builtin_inff();
constexpr float kMaxFinite = __FLT_MAX__;
// exp(-32) * 2^44 = 0.22: the weight is 0 from here on.
constexpr float kMinExponent = -32.0F;

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
  std::uint64_t w[4];
  std::memcpy(w, &v, sizeof w);
  return (w[0] | w[1] | w[2] | w[3]) != 0;
}

// exp(x) for x <= 0; 0 for x below kMinExponent and for NaN (0 * -inf: a masked logit at a huge temperature). Largest
// relative error measured over [-32, 0]: 1.0e-7; exp(0) is exactly 1.
// x = n ln2 + r, |r| <= ln2/2; exp(r) = 1 + r + r^2 g(r), g the polynomial through the five Chebyshev nodes. ln2 is in
// two parts; n (6 bits) times the first (10 bits) is exact. Adding 1.5 * 2^23 rounds to a whole number.
inline Floats exp_of(Floats x) {
  const Ints live = x >= kMinExponent;
  x = bits<Floats>(bits<Ints>(x) & live);
  const Floats shifted = x * 1.44269504F + 12582912.0F;
  const Floats n = shifted - 12582912.0F;
  const Floats r = (x - n * 0.6923828125F) - n * 0.000764368044F;
  Floats g = r * 0.00139261759F + 0.00836317334F;
  g = g * r + 0.0416665561F;
  g = g * r + 0.166665778F;
  g = g * r + 0.5F;
  const Floats e = (r * r * g + r) + 1.0F;
  const Ints scaled = bits<Ints>(e) + (bits<Ints>(shifted) << 23);  // the constant's own bits are shifted out
  return bits<Floats>(scaled & live);
}

struct WeightSum {
  HalfWeights low{}, high{};
  void add(Floats e) {
    const HalfFloats a = __builtin_shufflevector(e, e, 0, 1, 2, 3);
    const HalfFloats b = __builtin_shufflevector(e, e, 4, 5, 6, 7);
    low += bits<HalfWeights>(__builtin_convertvector(a, HalfDoubles) + kWeightMagic);
    high += bits<HalfWeights>(__builtin_convertvector(b, HalfDoubles) + kWeightMagic);
  }
  // Of n added elements. The magic bits wrap around in the sum, and out again here.
  Weight sum(std::uint64_t n) const {
    const HalfWeights s = low + high;
    return s[0] + s[1] + s[2] + s[3] - n * kWeightMagicBits;
  }
};

// Calls f(block index, pointer to kBlock elements, number of real ones); the last block is filled up with -inf.
template <typename F>
inline void for_blocks(const float* x, std::int64_t n, F&& f) {
  const std::int64_t n_full = n / kBlock;
  for (std::int64_t b = 0; b < n_full; ++b) f(b, x + b * kBlock, kBlock);
  const std::int64_t rest = n - n_full * kBlock;
  if (rest == 0) return;
  float last[kBlock];
  for (std::int64_t i = 0; i < kBlock; ++i) last[i] = i < rest ? x[n_full * kBlock + i] : -kInf;
  f(n_full, last, rest);
}

bool block_max(const float* x, std::int64_t n, float* out) {
  Ints good = Ints{} - 1;
  for_blocks(x, n, [&](std::int64_t b, const float* p, std::int64_t) {
    Floats m = splat(-kInf);
    for (int i = 0; i < kBlock; i += kLanes) {
      const Floats v = load(p + i);
      good &= v <= kMaxFinite;
      m = v > m ? v : m;
    }
    float best = m[0];
    for (int lane = 1; lane < kLanes; ++lane) best = m[lane] > best ? m[lane] : best;
    out[b] = best;
  });
  return !any(~good);
}

Weight weigh(const float* x, std::int64_t n, float max, float inv_t, float floor, float* e, Weight* block_weight) {
  Weight total = 0;
  for_blocks(x, n, [&](std::int64_t b, const float* p, std::int64_t n_real) {
    float local[kBlock];
    float* const to = n_real == kBlock ? e + b * kBlock : local;
    WeightSum sum;
    for (int i = 0; i < kBlock; i += kLanes) {
      Floats v = exp_of((load(p + i) - max) * inv_t);
      v = bits<Floats>(bits<Ints>(v) & (v >= floor));
      sum.add(v);
      store(to + i, v);
    }
    for (std::int64_t i = 0; i < n_real && to == local; ++i) e[b * kBlock + i] = local[i];
    block_weight[b] = sum.sum(kBlock);
    total += block_weight[b];
  });
  return total;
}

Weight total(const float* x, std::int64_t n, float max) {
  Weight all = 0;
  for_blocks(x, n, [&](std::int64_t, const float* p, std::int64_t) {
    WeightSum sum;
    for (int i = 0; i < kBlock; i += kLanes) sum.add(exp_of(load(p + i) - max));
    all += sum.sum(kBlock);
  });
  return all;
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
  static constexpr RowKernels kKernels{BANYAN_ROW_KERNELS_NAME, block_max, weigh, total, gather};
  return kKernels;
}

}  // namespace banyan::sampling
