#include <algorithm>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/fill.hpp"
#include "kernels/e4m3.hpp"
#include "kernels/uniform.hpp"

namespace banyan::kernels::cuda {
namespace {

constexpr int kThreads = 256;
// Blocks of a grid-stride loop: enough to fill any device, few enough that counts never matter.
constexpr std::int64_t kMostBlocks = 132 * 16;

unsigned n_blocks(std::int64_t n) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((n + kThreads - 1) / kThreads, 1, kMostBlocks));
}

struct Code {
  __device__ explicit Code(float x) : code(e4m3_code(x)) {}
  std::uint8_t code;
};

template <class T>
__global__ void fill_kernel(T* dst, std::int64_t n, std::uint64_t seed, float bound) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) {
    dst[i] = static_cast<T>(uniform_element(seed, static_cast<std::uint64_t>(i), bound));
  }
}

template <class T>
__global__ void add_bias_kernel(T* y, const float* bias, std::int64_t n, std::int64_t n_out) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) {
    y[i] = static_cast<T>(static_cast<float>(y[i]) + bias[i % n_out]);
  }
}

}  // namespace

void fill_uniform(void* dst, DType type, std::int64_t n, std::uint64_t seed, float bound, cudaStream_t stream) {
  if (n <= 0) return;
  const unsigned blocks = n_blocks(n);
  switch (type) {
    case DType::f32: fill_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<float*>(dst), n, seed, bound); break;
    case DType::f16: fill_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<__half*>(dst), n, seed, bound); break;
    case DType::f8_e4m3: fill_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<Code*>(dst), n, seed, bound); break;
    default: fill_kernel<<<blocks, kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(dst), n, seed, bound); break;
  }
  check_launch("fill_uniform");
}

void add_bias(void* y, DType type, const float* bias, std::int64_t n_rows, std::int64_t n_out, cudaStream_t stream) {
  const std::int64_t n = n_rows * n_out;
  if (n <= 0) return;
  if (type == DType::f32) {
    add_bias_kernel<<<n_blocks(n), kThreads, 0, stream>>>(static_cast<float*>(y), bias, n, n_out);
  } else {
    add_bias_kernel<<<n_blocks(n), kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(y), bias, n, n_out);
  }
  check_launch("add_bias");
}

}  // namespace banyan::kernels::cuda
