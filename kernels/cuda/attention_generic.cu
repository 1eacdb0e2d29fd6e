// Attention as it is written down: one warp per row and query head, key after key along the path. See attention.hpp.
#include <algorithm>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <string>
#include <type_traits>

#include "banyan/error.hpp"
#include "banyan/lse.hpp"
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/tile_ops.cuh"
#include "kernels/e4m3.hpp"

namespace banyan::kernels::cuda {
namespace {

constexpr int kMostHeadDim = 256;
constexpr int kDimsPerLane = kMostHeadDim / 32;  // lane l has dims l, l + 32, …
constexpr unsigned kWarps = 4;
constexpr unsigned kBlocksPerSm = 6;  // 80 registers; left alone, ptxas takes 56 for f8_e4m3 and spills some

struct Params {
  AttentionTensors t;
  DeviceCalls c;
};

__device__ float to_f32(float x) { return x; }
__device__ float to_f32(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ float to_f32(__half x) { return __half2float(x); }
__device__ float to_f32(E4m3 x) { return e4m3_value(x.code); }

// Softmax of one query head of one row, in base e. The same numbers in every lane but for the dims.
struct RunningSoftmax {
  float maximum = kEmptyLse, sum = 0.0F;
  float q[kDimsPerLane] = {}, o[kDimsPerLane] = {};

  // Scales of the row of the key and of the value: 1 for types without.
  template <class T>
  __device__ void add(const T* key, float key_scale, const T* value, float value_scale, int d, float scale) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    float score = 0.0F;
#pragma unroll
    for (int j = 0; j < kDimsPerLane; ++j) {
      const int i = lane + 32 * j;
      if (i < d) score = fmaf(q[j], to_f32(key[i]), score);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) score += __shfl_xor_sync(kAllLanes, score, distance);
    score *= scale * key_scale;
    if (score == kEmptyLse) return;  // weight exactly 0
    const float larger = fmaxf(maximum, score);
    const float correction = expf(maximum - larger);  // exp(-inf) = 0 at the first key
    const float p = expf(score - larger);
#pragma unroll
    for (int j = 0; j < kDimsPerLane; ++j) {
      const int i = lane + 32 * j;
      if (i < d) o[j] = fmaf(p * value_scale, to_f32(value[i]), o[j] * correction);
    }
    sum = fmaf(sum, correction, p);
    maximum = larger;
  }
};

// The first n keys of the call.
template <class T>
__device__ void add_keys(const Params& p, const AttentionCall& call, std::int64_t n, std::int64_t kv_head,
                         RunningSoftmax& state) {
  const KvView& kv = p.t.kv;
  const T* keys = static_cast<const T*>(kv.base) + kv_head * kv.n_slots * kv.head_dim;
  const T* values = keys + kv.n_heads_kv * kv.n_slots * kv.head_dim;
  [[maybe_unused]] const float* key_scales = kv.scales + kv_head * kv.n_slots;
  [[maybe_unused]] const float* value_scales = key_scales + kv.n_heads_kv * kv.n_slots;
  for (std::int64_t r = call.run_begin; n > 0 && r < call.run_end; ++r) {
    const SlotRun run = p.c.runs[r];
    const std::int64_t end = run.first + min(run.n, n);
    n -= run.n;
    for (std::int64_t slot = run.first; slot < end; ++slot) {
      const T *key = keys + slot * kv.head_dim, *value = values + slot * kv.head_dim;
      if constexpr (std::is_same_v<T, E4m3>) {
        state.add(key, key_scales[slot], value, value_scales[slot], static_cast<int>(kv.head_dim), p.t.scale);
      } else {
        state.add(key, 1.0F, value, 1.0F, static_cast<int>(kv.head_dim), p.t.scale);
      }
    }
  }
}

__device__ void store(const AttentionTensors& t, std::int64_t row_head, const RunningSoftmax& state) {
  const auto d = static_cast<int>(t.kv.head_dim), lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int j = 0; j < kDimsPerLane; ++j) {
    const int i = lane + 32 * j;
    if (i >= d) continue;
    const float o = state.sum == 0.0F ? 0.0F : state.o[j] / state.sum;
    if (t.o_type == DType::f32) {
      static_cast<float*>(t.o)[row_head * d + i] = o;
    } else {
      static_cast<__nv_bfloat16*>(t.o)[row_head * d + i] = __float2bfloat16_rn(o);
    }
  }
  if (t.lse != nullptr && lane == 0) {
    t.lse[row_head] = state.sum == 0.0F ? kEmptyLse : state.maximum + logf(state.sum);
  }
}

template <class T>
__global__ void __launch_bounds__(32 * kWarps, kBlocksPerSm)
    attention_generic_kernel(const __grid_constant__ Params p) {
  const auto d = static_cast<int>(p.t.kv.head_dim), lane = static_cast<int>(threadIdx.x % 32);
  const auto head = static_cast<int>(blockIdx.y * kWarps + threadIdx.x / 32),
             n_heads_q = static_cast<int>(p.t.n_heads_q);
  if (head >= n_heads_q) return;
  const int kv_head = head / (n_heads_q / static_cast<int>(p.t.kv.n_heads_kv));
  const auto* q = reinterpret_cast<const __nv_bfloat16*>(p.t.q);
  for (std::int64_t row = blockIdx.x; row < p.t.n_rows; row += gridDim.x) {
    const std::int64_t i = row * n_heads_q + head;
    const std::int64_t position = p.c.positions[row];
    RunningSoftmax state;
#pragma unroll
    for (int j = 0; j < kDimsPerLane; ++j) {
      if (lane + 32 * j < d) state.q[j] = to_f32(q[i * d + lane + 32 * j]);
    }
    // Each lane looks at one call; those that the row belongs to are taken in order.
    for (std::int64_t begin = 0; begin < p.c.n_calls; begin += 32) {
      const std::int64_t c = begin + lane;
      const bool mine = c < p.c.n_calls && p.c.calls[c].row_begin <= row && row < p.c.calls[c].row_end;
      for (unsigned found = __ballot_sync(kAllLanes, mine); found != 0; found &= found - 1) {
        const AttentionCall call = p.c.calls[begin + __ffs(static_cast<int>(found)) - 1];
        add_keys<T>(p, call, min(max(position + 1 - call.kv_position, std::int64_t{0}), call.n_keys), kv_head, state);
      }
    }
    store(p.t, i, state);
  }
}

template <class T>
void launch(const Params& params, cudaStream_t stream) {
  constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;  // on x; each strides over the rest
  if (params.t.n_rows == 0) return;
  const dim3 grid(static_cast<unsigned>(std::min(kMostBlocks, params.t.n_rows)),
                  (static_cast<unsigned>(params.t.n_heads_q) + kWarps - 1) / kWarps);
  attention_generic_kernel<T><<<grid, 32 * kWarps, 0, stream>>>(params);
  check_launch("attention_generic");
}

}  // namespace

void attention_generic(const AttentionTensors& tensors, const DeviceCalls& calls, cudaStream_t stream) {
  const KvView& kv = tensors.kv;
  if (kv.head_dim <= 0 || kv.head_dim > kMostHeadDim) {
    throw Error(ErrorCode::unsupported, "attention",
                "head_dim " + std::to_string(kv.head_dim) + "; at most " + std::to_string(kMostHeadDim) + " on CUDA");
  }
  switch (kv.type) {
    case DType::f32: return launch<float>({tensors, calls}, stream);
    case DType::bf16: return launch<__nv_bfloat16>({tensors, calls}, stream);
    case DType::f16: return launch<__half>({tensors, calls}, stream);
    case DType::f8_e4m3: return launch<E4m3>({tensors, calls}, stream);
    default: throw Error(ErrorCode::unsupported, "attention", "KV in " + std::string(to_string(kv.type)) + " on CUDA");
  }
}

}  // namespace banyan::kernels::cuda
