#include <cassert>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_vectors.cuh"
#include "kernels/cuda/rows.hpp"

namespace banyan::kernels::cuda {
namespace {

// The calling thread's vector of each row; none where it stands behind the end.
__device__ std::int64_t vector_index() { return std::int64_t{blockIdx.y} * kRowThreads + threadIdx.x; }

__global__ void __launch_bounds__(kRowThreads)
    embed_kernel(const __nv_bfloat16* table, std::int64_t vocab_size, const TokenId* tokens, DrawnTokens drawn,
                 float* x, std::int64_t n_rows, std::int64_t n_vectors) {
  const std::int64_t i = vector_index(), dim = n_vectors * kVector;
  let_successor_begin();
  wait_for_predecessor();
  if (i >= n_vectors) return;
  for (std::int64_t r = blockIdx.x; r < n_rows; r += gridDim.x) {
    std::int64_t token = tokens[r];
    if (token < 0) {
      // Where nothing could be drawn (logits that are not numbers) there is no token: that row is thrown away.
      token = drawn.first[query_of(static_cast<TokenId>(token)) * drawn.stride];
      token = token < 0 || token >= vocab_size ? 0 : token;
    }
    assert(token >= 0 && token < vocab_size);
    store8(x + r * dim + i * kVector, load8(table + token * dim + i * kVector));
  }
}

__global__ void __launch_bounds__(kRowThreads)
    silu_mul_kernel(const __nv_bfloat16* gate_up, __nv_bfloat16* y, std::int64_t n_rows, std::int64_t n_vectors) {
  const std::int64_t i = vector_index(), dim = n_vectors * kVector;
  let_successor_begin();
  wait_for_predecessor();
  if (i >= n_vectors) return;
  for (std::int64_t r = blockIdx.x; r < n_rows; r += gridDim.x) {
    const Vector8 gate = load8(gate_up + r * 2 * dim + i * kVector);
    Vector8 product = load8(gate_up + (r * 2 + 1) * dim + i * kVector);
#pragma unroll
    for (int j = 0; j < kVector; ++j) product.x[j] *= gate.x[j] / (1.0F + __expf(-gate.x[j]));
    store8(y + r * dim + i * kVector, product);
  }
}

__global__ void __launch_bounds__(kRowThreads)
    gather_kernel(const float* src, const __nv_bfloat16* delta, const std::int32_t* index, float* dst, std::int64_t n,
                  std::int64_t n_vectors) {
  const std::int64_t i = vector_index(), dim = n_vectors * kVector;
  let_successor_begin();
  wait_for_predecessor();
  if (i >= n_vectors) return;
  for (std::int64_t r = blockIdx.x; r < n; r += gridDim.x) {
    const std::int64_t from = index[r] * dim + i * kVector;
    Vector8 x = load8(src + from);
    if (delta != nullptr) {
      const Vector8 d = load8(delta + from);
#pragma unroll
      for (int j = 0; j < kVector; ++j) x.x[j] += d.x[j];
    }
    store8(dst + r * dim + i * kVector, x);
  }
}

}  // namespace

void embed(const bf16* table, std::int64_t vocab_size, const TokenId* tokens, const DrawnTokens& drawn, float* x,
           std::int64_t n_rows, std::int64_t dim, cudaStream_t stream) {
  const std::int64_t n_vectors = checked_vectors(dim, "embed");
  if (n_rows == 0) return;
  launch_overlapped("embed", embed_kernel, row_grid(n_rows, n_vectors), kRowThreads, stream,
                    reinterpret_cast<const __nv_bfloat16*>(table), vocab_size, tokens, drawn, x, n_rows, n_vectors);
}

void silu_mul(const bf16* gate_up, bf16* y, std::int64_t n_rows, std::int64_t dim, cudaStream_t stream) {
  const std::int64_t n_vectors = checked_vectors(dim, "silu_mul");
  if (n_rows == 0) return;
  launch_overlapped("silu_mul", silu_mul_kernel, row_grid(n_rows, n_vectors), kRowThreads, stream,
                    reinterpret_cast<const __nv_bfloat16*>(gate_up), reinterpret_cast<__nv_bfloat16*>(y), n_rows,
                    n_vectors);
}

void gather_rows(const float* src, const bf16* delta, const std::int32_t* index, float* dst, std::int64_t n,
                 std::int64_t dim, cudaStream_t stream) {
  const std::int64_t n_vectors = checked_vectors(dim, "gather_rows");
  if (n == 0) return;
  launch_overlapped("gather_rows", gather_kernel, row_grid(n, n_vectors), kRowThreads, stream, src,
                    reinterpret_cast<const __nv_bfloat16*>(delta), index, dst, n, n_vectors);
}

}  // namespace banyan::kernels::cuda
