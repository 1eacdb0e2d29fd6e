#include <cassert>
#include <cuda_bf16.h>
#include <type_traits>

#include "kernels/cuda/few_rows.hpp"
#include "kernels/cuda/launch.cuh"

namespace banyan::kernels::cuda {
namespace {

// A warp computes kOutputs outputs of all rows. Each lane has kOutputs * kUnroll loads of 16 bytes under way: with
// three blocks on a multiprocessor that is 96 KiB, three times what 4.3 TB/s and 0.8 us of latency ask for.
constexpr int kWarps = 8, kOutputs = 2, kUnroll = 4;

struct alignas(16) Eight {
  __nv_bfloat162 pair[4];
};

__device__ Eight load_once(const Eight* p) {
  const uint4 v = __ldcs(reinterpret_cast<const uint4*>(p));  // weights are not read again: they need not stay in L2
  return *reinterpret_cast<const Eight*>(&v);
}

__device__ void add_product(float& sum, const Eight& a, const Eight& b) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 u = __bfloat1622float2(a.pair[i]), v = __bfloat1622float2(b.pair[i]);
    sum = fmaf(u.x, v.x, sum);
    sum = fmaf(u.y, v.y, sum);
  }
}

template <int n>
__device__ void load_weights(const Eight* const (&rows)[kOutputs], std::int64_t i, Eight (&weights)[n][kOutputs]) {
#pragma unroll
  for (int u = 0; u < n; ++u) {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) weights[u][o] = load_once(rows[o] + i + u * 32);
  }
}

template <class T>
__device__ void store(T* y, float value, bool accumulate) {
  if constexpr (sizeof(T) == sizeof(float)) {
    *y = accumulate ? *y + value : value;
  } else {
    *y = __float2bfloat16(value);
  }
}

template <class T, int kRows>
__global__ __launch_bounds__(kWarps * 32, kRows < 4 ? 3 : 2) void few_rows_kernel(const Eight* w, const Eight* x, T* y,
                                                                                  std::int64_t n_out,
                                                                                  std::int64_t n_eights,
                                                                                  bool accumulate) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32) * kOutputs;
  if (first >= n_out) return;
  const bool is_pair = first + 1 < n_out;
  const Eight* rows[kOutputs] = {w + first * n_eights, w + (first + (is_pair ? 1 : 0)) * n_eights};
  // The first weights come while the kernel that makes x is still at work.
  let_successor_begin();
  Eight ahead[kUnroll][kOutputs];
  const bool has_ahead = lane + (kUnroll - 1) * 32 < n_eights;
  if (has_ahead) load_weights<kUnroll>(rows, lane, ahead);
  wait_for_predecessor();
  float sums[kOutputs][kRows] = {};
  const auto multiply = [&](const auto& weights, std::int64_t i) {
#pragma unroll
    for (int u = 0; u < static_cast<int>(sizeof weights / sizeof weights[0]); ++u) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const Eight v = x[r * n_eights + i + u * 32];
#pragma unroll
        for (int o = 0; o < kOutputs; ++o) add_product(sums[o][r], weights[u][o], v);
      }
    }
  };
  const auto step = [&](std::int64_t i, auto n_unrolled) {
    constexpr int n = decltype(n_unrolled)::value;
    Eight weights[n][kOutputs];
    load_weights<n>(rows, i, weights);
    multiply(weights, i);
  };
  std::int64_t i = lane;
  if (has_ahead) {
    multiply(ahead, i);
    i += kUnroll * 32;
  }
  for (; i + (kUnroll - 1) * 32 < n_eights; i += kUnroll * 32) step(i, std::integral_constant<int, kUnroll>());
  for (; i < n_eights; i += 32) step(i, std::integral_constant<int, 1>());
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) {
        sums[o][r] += __shfl_xor_sync(0xffffffffU, sums[o][r], distance);
      }
      if (lane == 0 && (o == 0 || is_pair)) store(y + r * n_out + first + o, sums[o][r], accumulate);
    }
  }
}

template <class T>
void launch(const bf16* w, const bf16* x, T* y, std::int64_t n_rows, std::int64_t n_out, std::int64_t n_in,
            bool accumulate, cudaStream_t stream) {
  constexpr std::int64_t kPerBlock = kWarps * kOutputs;
  const auto n_blocks = static_cast<unsigned>((n_out + kPerBlock - 1) / kPerBlock);
  const auto* w8 = reinterpret_cast<const Eight*>(w);
  const auto* x8 = reinterpret_cast<const Eight*>(x);
  const auto kernel = n_rows == 1   ? few_rows_kernel<T, 1>
                      : n_rows == 2 ? few_rows_kernel<T, 2>
                      : n_rows == 3 ? few_rows_kernel<T, 3>
                                    : few_rows_kernel<T, 4>;
  launch_overlapped("few_rows_product", kernel, n_blocks, kWarps * 32, stream, w8, x8, y, n_out, n_in / 8, accumulate);
}

}  // namespace

void few_rows_product(const bf16* w, const bf16* x, void* y, DType y_type, std::int64_t n_rows, std::int64_t n_out,
                      std::int64_t n_in, bool accumulate, cudaStream_t stream) {
  assert(is_few_rows_product(n_rows, n_in));
  if (y_type == DType::f32) {
    launch(w, x, static_cast<float*>(y), n_rows, n_out, n_in, accumulate, stream);
  } else {
    assert(!accumulate);
    launch(w, x, static_cast<__nv_bfloat16*>(y), n_rows, n_out, n_in, accumulate, stream);
  }
}

}  // namespace banyan::kernels::cuda
