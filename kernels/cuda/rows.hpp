// Operations that work on each row by itself, on a CUDA device: raw device pointers, shapes, a stream. Launches only
// queue work; any thread may launch. Every row's result depends on that row alone, bit for bit.
//
// Activations are bf16, the residual stream and norm weights f32, sums f32. Dimensions of rows are multiples of 8, so
// that every access is one of 16 bytes: Error{unsupported} otherwise. Pointers are 16-byte aligned. Counts and offsets
// are 64-bit. Error{device} where a launch fails.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

#include "kernels/ops.hpp"

namespace banyan::kernels::cuda {

// x [n_rows, dim] f32 = the rows of table [vocab_size, dim] that tokens [n_rows] name (asserted in range in debug
// builds).
// tokens: some may be drawn_token(i), entry i of `drawn`.
void embed(const bf16* table, std::int64_t vocab_size, const TokenId* tokens, const DrawnTokens& drawn, float* x,
           std::int64_t n_rows, std::int64_t dim, cudaStream_t stream);

// y [n_rows, dim] = x / sqrt(mean(x^2) + eps) * w.  x f32, w [dim] f32.
void rms_norm(const float* x, const float* w, bf16* y, std::int64_t n_rows, std::int64_t dim, float eps,
              cudaStream_t stream);
// x += delta [n_rows, dim], then the same of the sum.
void add_rms_norm(float* x, const bf16* delta, const float* w, bf16* y, std::int64_t n_rows, std::int64_t dim,
                  float eps, cudaStream_t stream);

// y [n_rows, dim] = silu(gate_up[:, :dim]) * gate_up[:, dim:],  gate_up [n_rows, 2 dim]
void silu_mul(const bf16* gate_up, bf16* y, std::int64_t n_rows, std::int64_t dim, cudaStream_t stream);

// dst [n, dim] = the rows of src that index [n] names, plus those of delta unless it is null.
void gather_rows(const float* src, const bf16* delta, const std::int32_t* index, float* dst, std::int64_t n,
                 std::int64_t dim, cudaStream_t stream);

// Of fused rows of q, k and v: norm of each head, rotation, and the store of k and v into the KV pool, in one pass.
struct RopeKv {
  const bf16* qkv = nullptr;                // [n_rows, (n_heads_q + 2 n_heads_kv) * head_dim], biases added
  bf16* q = nullptr;                        // [n_rows, n_heads_q, head_dim]
  const std::int32_t* positions = nullptr;  // [n_rows]
  const std::int64_t* kv_slots = nullptr;   // [n_rows]; -1: k and v are not stored
  // Pairs (i, i + n_rotary / 2) turn by positions[r] * inv_freq[i], and are scaled by magnitude. The angle is reduced
  // in double precision: at position 10^6 it is as good as at 1. Elements from n_rotary on stay; 0: no rotation.
  const float* inv_freq = nullptr;  // [n_rotary / 2]
  std::int64_t n_rotary = 0;        // even, at most head_dim
  float magnitude = 1.0F;
  const float* q_norm = nullptr;  // [head_dim] RMSNorm weights for each head of q, before the rotation; null: no norm
  const float* k_norm = nullptr;
  float norm_eps = 0.0F;
  std::int64_t n_rows = 0, n_heads_q = 0;
  KvView kv;  // bf16, f16, f32 or f8_e4m3; head_dim even, at most 256
};
void rope_kv(const RopeKv& args, cudaStream_t stream);

// What each moves, for floors.
constexpr double embed_bytes(std::int64_t n_rows, std::int64_t dim) {
  return 6.0 * static_cast<double>(n_rows) * static_cast<double>(dim);
}
constexpr double rms_norm_bytes(std::int64_t n_rows, std::int64_t dim, bool with_add) {
  return (with_add ? 12.0 : 6.0) * static_cast<double>(n_rows) * static_cast<double>(dim);
}
constexpr double silu_mul_bytes(std::int64_t n_rows, std::int64_t dim) {
  return 6.0 * static_cast<double>(n_rows) * static_cast<double>(dim);
}
inline double rope_kv_bytes(const RopeKv& a) {
  const auto n_read = static_cast<double>(a.n_heads_q + 2 * a.kv.n_heads_kv), n_q = static_cast<double>(a.n_heads_q);
  const auto n_kv_bytes = static_cast<double>(2 * a.kv.n_heads_kv * kv_row_bytes(a.kv.type, a.kv.head_dim));
  return static_cast<double>(a.n_rows) * (static_cast<double>(a.kv.head_dim) * (2 * n_read + 2 * n_q) + n_kv_bytes);
}

}  // namespace banyan::kernels::cuda
