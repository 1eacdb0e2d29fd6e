// A block of threads as the Group of sample_row.hpp. Layer 4, device code.
#pragma once

#include <cstdint>
#include <math_constants.h>

#include "kernels/cuda/sample_types.hpp"
#include "kernels/sample_random.hpp"

namespace banyan::kernels::cuda {

using sampling::Weight;

class Block {
 public:
  static constexpr int kThreads = 512;
  static constexpr int kLanes = 32;
  static constexpr int kWarps = kThreads / kLanes;

  // partial: [kWarps] in shared memory
  __device__ explicit Block(std::uint64_t* partial) : partial_(partial) {}

  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return kThreads; }
  __device__ int lane() const { return rank() % kLanes; }
  __device__ int warp() const { return rank() / kLanes; }
  __device__ int n_warps() const { return kWarps; }
  __device__ void sync() const { __syncthreads(); }

  template <class T, class Op>
  __device__ T reduce(T v, Op op) const {
#pragma unroll
    for (int apart = kLanes / 2; apart > 0; apart /= 2) v = op(v, __shfl_xor_sync(kAllLanes, v, apart));
    T* const partial = reinterpret_cast<T*>(partial_);
    __syncthreads();
    if (lane() == 0) partial[warp()] = v;
    __syncthreads();
    v = partial[0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) v = op(v, partial[w]);
    return v;
  }
  template <class T>
  __device__ T sum(T v) const {
    return reduce(v, [](T a, T b) { return a + b; });
  }
  __device__ Weight exclusive_sum(Weight v) const {
    const Weight before = warp_exclusive_sum(v);
    __syncthreads();
    if (lane() == kLanes - 1) partial_[warp()] = before + v;
    __syncthreads();
    Weight base = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) base += w < warp() ? partial_[w] : 0;
    return base + before;
  }
  __device__ Weight warp_sum(Weight v) const {
#pragma unroll
    for (int apart = kLanes / 2; apart > 0; apart /= 2) v += __shfl_xor_sync(kAllLanes, v, apart);
    return v;
  }
  __device__ Weight warp_exclusive_sum(Weight v) const {
    Weight sum = v;
#pragma unroll
    for (int apart = 1; apart < kLanes; apart *= 2) {
      const Weight other = __shfl_up_sync(kAllLanes, sum, apart);
      if (lane() >= apart) sum += other;
    }
    return sum - v;
  }

  __device__ std::uint32_t fetch_add(std::uint32_t* p, std::uint32_t v) const { return atomicAdd(p, v); }
  __device__ std::uint32_t fetch_or(std::uint32_t* p, std::uint32_t v) const { return atomicOr(p, v); }
  __device__ std::uint32_t exchange(std::uint32_t* p, std::uint32_t v) const { return atomicExch(p, v); }

  __device__ void load4(const float* row, std::int32_t i, std::int32_t n, float (&x)[4]) const {
    if (i + 4 <= n && reinterpret_cast<std::uintptr_t>(row) % sizeof(float4) == 0) {
      const float4 v = *reinterpret_cast<const float4*>(row + i);
      x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
      return;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) x[j] = i + j < n ? row[i + j] : -CUDART_INF_F;
  }
  __device__ float fast_exp2(float x) const {
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  __device__ std::uint64_t random_bits(const RowQuery& q) const {
    return sampling::philox_bits(q.seed, q.prompt, q.sample, q.position);
  }

 private:
  static constexpr unsigned kAllLanes = ~0u;
  std::uint64_t* partial_;
};

}  // namespace banyan::kernels::cuda
