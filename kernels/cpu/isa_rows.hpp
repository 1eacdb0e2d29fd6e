// Operations on single rows: norms, activation, rotation. Part of isa_table.hpp.
#pragma once

#include "kernels/cpu/isa.hpp"
#include "kernels/cpu/simd.hpp"
#include "kernels/e4m3.hpp"

namespace banyan::kernels {
namespace {

constexpr float kLog2E = 1.44269504F;

BANYAN_INLINE int lanes(std::int64_t n_left) { return n_left < kWidth ? static_cast<int>(n_left) : kWidth; }

void rms_norm(const float* x, const float* w, float* y, std::int64_t n_rows, std::int64_t dim, float eps) {
  for (std::int64_t r = 0; r < n_rows; ++r, x += dim, y += dim) {
    Vec squares = splat(0.0F);
    for (std::int64_t i = 0; i < dim; i += kWidth) {
      const Vec v = load_first(x + i, lanes(dim - i));
      squares = fma(v, v, squares);
    }
    const Vec inverse = splat(1.0F / __builtin_sqrtf(sum_of(squares) / static_cast<float>(dim) + eps));
    for (std::int64_t i = 0; i < dim; i += kWidth) {
      const int n = lanes(dim - i);
      store_first(y + i, mul(mul(load_first(x + i, n), inverse), load_first(w + i, n)), n);
    }
  }
}

void silu_mul(const float* gate_up, float* y, std::int64_t n_rows, std::int64_t dim) {
  for (std::int64_t r = 0; r < n_rows; ++r, gate_up += 2 * dim, y += dim) {
    for (std::int64_t i = 0; i < dim; i += kWidth) {
      const int n = lanes(dim - i);
      const Vec gate = load_first(gate_up + i, n), up = load_first(gate_up + dim + i, n);
      const Vec denominator = add(splat(1.0F), exp2_of(mul(gate, splat(-kLog2E))));
      store_first(y + i, mul(div(gate, denominator), up), n);
    }
  }
}

BANYAN_INLINE void store_kv(void* base, DType type, std::int64_t index, Vec v, int n) {
  if (type == DType::f32) {
    store_first(static_cast<float*>(base) + index, v, n);
  } else if (type == DType::f16) {
    store_f16(static_cast<std::uint16_t*>(base) + index, v, n);
  } else {
    float t[kWidth];
    store(t, v);
    std::uint16_t* p = static_cast<std::uint16_t*>(base) + index;
    for (int i = 0; i < n; ++i) p[i] = bf16_bits(t[i]);
  }
}

// x [head_dim] -> row `row` of the pool, in f8_e4m3.
BANYAN_INLINE void store_scaled_row(const RopeRows& a, std::int64_t row, const float* x) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < a.head_dim; ++i) {
    const std::uint32_t magnitude = e4m3_magnitude(x[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  const float scale = e4m3_scale(largest), inverse = 1.0F / scale;  // exact
  std::uint8_t* codes = static_cast<std::uint8_t*>(a.kv) + row * a.head_dim;
  for (std::int64_t i = 0; i < a.head_dim; ++i) codes[i] = e4m3_code(x[i] * inverse);
  a.kv_scales[row] = scale;
}

// Rotates one head of one row and hands each vector of the result to `put(index, vector, n)`.
template <class Put>
BANYAN_INLINE void rotate_head(const float* x, const float* cosine, const float* sine, std::int64_t head_dim, Put put) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t i = 0; i < half; i += kWidth) {
    const int n = lanes(half - i);
    const Vec a = load_first(x + i, n), b = load_first(x + half + i, n);
    const Vec c = load_first(cosine + i, n), s = load_first(sine + i, n);
    put(i, sub(mul(a, c), mul(b, s)), n);
    put(half + i, add(mul(b, c), mul(a, s)), n);
  }
  for (std::int64_t i = 2 * half; i < head_dim; ++i) put(i, splat(x[i]), 1);  // an odd last element is not rotated
}

void rope_kv(const RopeRows& a) {
  const std::int64_t d = a.head_dim, n_heads = a.n_heads_q + 2 * a.n_heads_kv;
  float room[kMaxHeadDim], turned[kMaxHeadDim];
  const bool scaled = a.kv_type == DType::f8_e4m3;
  const auto normed = [&](const float* x, const float* w) -> const float* {
    if (w == nullptr) return x;
    rms_norm(x, w, room, 1, d, a.norm_eps);
    return room;
  };
  for (std::int64_t r = a.row_begin; r < a.row_end; ++r) {
    const float* x = a.qkv + r * n_heads * d;
    const float* cosine = a.cosine + r * (d / 2);
    const float* sine = a.sine + r * (d / 2);
    float* q = a.q + r * a.n_heads_q * d;
    for (std::int64_t h = 0; h < a.n_heads_q; ++h) {
      rotate_head(normed(x + h * d, a.q_norm), cosine, sine, d,
                  [&](std::int64_t i, Vec v, int n) { store_first(q + h * d + i, v, n); });
    }
    if (a.kv_slots[r] < 0) continue;
    for (std::int64_t h = 0; h < a.n_heads_kv; ++h) {
      const std::int64_t k_row = h * a.n_slots + a.kv_slots[r], v_row = k_row + a.n_heads_kv * a.n_slots;
      rotate_head(normed(x + (a.n_heads_q + h) * d, a.k_norm), cosine, sine, d, [&](std::int64_t i, Vec v, int n) {
        if (scaled) return store_first(turned + i, v, n);
        store_kv(a.kv, a.kv_type, k_row * d + i, v, n);
      });
      const float* value = x + (a.n_heads_q + a.n_heads_kv + h) * d;
      if (scaled) {
        store_scaled_row(a, k_row, turned);
        store_scaled_row(a, v_row, value);
        continue;
      }
      for (std::int64_t i = 0; i < d; i += kWidth) {
        const int n = lanes(d - i);
        store_kv(a.kv, a.kv_type, v_row * d + i, load_first(value + i, n), n);
      }
    }
  }
}

}  // namespace
}  // namespace banyan::kernels
