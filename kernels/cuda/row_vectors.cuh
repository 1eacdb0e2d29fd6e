// Eight neighbours of a row as f32, in 16-byte accesses, and the grid of kernels that take rows by vectors of eight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string>

#include "banyan/error.hpp"
#include "banyan/types.hpp"

namespace banyan::kernels::cuda {

constexpr int kVector = 8;
constexpr int kRowThreads = 256;

struct Vector8 {
  float x[kVector];
};

__device__ __forceinline__ Vector8 load8(const __nv_bfloat16* p) {
  const uint4 bits = *reinterpret_cast<const uint4*>(p);
  const std::uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
  Vector8 v;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    v.x[2 * i] = __uint_as_float(pairs[i] << 16);
    v.x[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000U);
  }
  return v;
}
__device__ __forceinline__ Vector8 load8(const float* p) {
  const float4 a = *reinterpret_cast<const float4*>(p), b = *reinterpret_cast<const float4*>(p + 4);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ __forceinline__ void store8(float* p, const Vector8& v) {
  *reinterpret_cast<float4*>(p) = make_float4(v.x[0], v.x[1], v.x[2], v.x[3]);
  *reinterpret_cast<float4*>(p + 4) = make_float4(v.x[4], v.x[5], v.x[6], v.x[7]);
}
__device__ __forceinline__ void store8(__nv_bfloat16* p, const Vector8& v) {
  __nv_bfloat162 pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(v.x[2 * i], v.x[2 * i + 1]);
  *reinterpret_cast<uint4*>(p) = *reinterpret_cast<const uint4*>(pairs);
}
__device__ __forceinline__ void store8(__half* p, const Vector8& v) {
  __half2 pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2half2_rn(v.x[2 * i], v.x[2 * i + 1]);
  *reinterpret_cast<uint4*>(p) = *reinterpret_cast<const uint4*>(pairs);
}

// Rows on x, which takes 2^31 - 1 blocks (kernels stride over the rest); parts of kRowThreads vectors of a row on y.
inline dim3 row_grid(std::int64_t n_rows, std::int64_t n_vectors) {
  constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;
  return {static_cast<unsigned>(std::min(n_rows, kMostBlocks)),
          static_cast<unsigned>((n_vectors + kRowThreads - 1) / kRowThreads), 1};
}

inline std::int64_t checked_vectors(std::int64_t dim, const char* operation) {
  constexpr std::int64_t kMostParts = 65'535;  // of a grid on y
  if (dim > 0 && dim % kVector == 0 && dim / kVector <= kMostParts * kRowThreads) return dim / kVector;
  throw Error(ErrorCode::unsupported, operation,
              "rows of " + std::to_string(dim) + " elements; a multiple of 8 is needed on CUDA");
}

}  // namespace banyan::kernels::cuda
