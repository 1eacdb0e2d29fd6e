#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_vectors.cuh"
#include "kernels/cuda/rows.hpp"

namespace banyan::kernels::cuda {
namespace {

// Vectors that a thread keeps in registers between the sum and the scaling: rows of 8,192 are read once.
constexpr int kKept = 4;

// The same sum in every thread, in an order that depends on the block's size alone.
__device__ float block_sum(float x) {
  __shared__ float warp_sums[kRowThreads / 32];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(0xffffffffU, x, distance);
  __syncthreads();  // the sums of the row before have been read
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0F;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += warp_sums[w];
  return sum;
}

// One block per row. With delta, x += delta first.
__global__ void __launch_bounds__(kRowThreads)
    rms_norm_kernel(float* x, const __nv_bfloat16* delta, const float* w, __nv_bfloat16* y, std::int64_t n_rows,
                    std::int64_t n_vectors, float eps) {
  const std::int64_t dim = n_vectors * kVector;
  let_successor_begin();
  wait_for_predecessor();
  for (std::int64_t r = blockIdx.x; r < n_rows; r += gridDim.x) {
    float* row = x + r * dim;
    Vector8 kept[kKept];
    float sum = 0.0F;
    const auto take = [&](std::int64_t i) {
      Vector8 v = load8(row + i * kVector);
      if (delta != nullptr) {
        const Vector8 d = load8(delta + r * dim + i * kVector);
#pragma unroll
        for (int j = 0; j < kVector; ++j) v.x[j] += d.x[j];
        store8(row + i * kVector, v);
      }
#pragma unroll
      for (int j = 0; j < kVector; ++j) sum += v.x[j] * v.x[j];
      return v;
    };
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const std::int64_t i = threadIdx.x + std::int64_t{k} * blockDim.x;
      if (i < n_vectors) kept[k] = take(i);
    }
    for (std::int64_t i = threadIdx.x + std::int64_t{kKept} * blockDim.x; i < n_vectors; i += blockDim.x) take(i);

    const float factor = rsqrtf(block_sum(sum) / static_cast<float>(dim) + eps);
    const auto give = [&](std::int64_t i, Vector8 v) {
      const Vector8 weight = load8(w + i * kVector);
#pragma unroll
      for (int j = 0; j < kVector; ++j) v.x[j] = v.x[j] * factor * weight.x[j];
      store8(y + r * dim + i * kVector, v);
    };
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const std::int64_t i = threadIdx.x + std::int64_t{k} * blockDim.x;
      if (i < n_vectors) give(i, kept[k]);
    }
    for (std::int64_t i = threadIdx.x + std::int64_t{kKept} * blockDim.x; i < n_vectors; i += blockDim.x) {
      give(i, load8(row + i * kVector));
    }
  }
}

void launch(float* x, const bf16* delta, const float* w, bf16* y, std::int64_t n_rows, std::int64_t dim, float eps,
            cudaStream_t stream) {
  const std::int64_t n_vectors = checked_vectors(dim, "rms_norm");
  if (n_rows == 0) return;
  const auto n_threads = static_cast<unsigned>(std::min<std::int64_t>(kRowThreads, (n_vectors + 31) / 32 * 32));
  launch_overlapped("rms_norm", rms_norm_kernel, row_grid(n_rows, 1), n_threads, stream, x,
                    reinterpret_cast<const __nv_bfloat16*>(delta), w, reinterpret_cast<__nv_bfloat16*>(y), n_rows,
                    n_vectors, eps);
}

}  // namespace

void rms_norm(const float* x, const float* w, bf16* y, std::int64_t n_rows, std::int64_t dim, float eps,
              cudaStream_t stream) {
  launch(const_cast<float*>(x), nullptr, w, y, n_rows, dim, eps, stream);  // written with delta alone
}

void add_rms_norm(float* x, const bf16* delta, const float* w, bf16* y, std::int64_t n_rows, std::int64_t dim,
                  float eps, cudaStream_t stream) {
  launch(x, delta, w, y, n_rows, dim, eps, stream);
}

}  // namespace banyan::kernels::cuda
