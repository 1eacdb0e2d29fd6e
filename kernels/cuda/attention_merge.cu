// The merge of partials: of each row and query head, root -> leaf.
//
//     M = max m_i,  L = sum 2^(m_i - M) l_i,  O = (sum 2^(m_i - M) o_i) / L,  lse = ln 2 (M + log2 L)
//
// One warp per row and head; a lane has four neighbours of every 128 dims. A row of no partial, or of empty ones, is 0
// with -inf.
#include "kernels/cuda/attention_merge.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/tile_ops.cuh"

namespace banyan::kernels::cuda {
namespace {

constexpr unsigned kWarps = 4;

__device__ float warp_max(float x) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, distance));
  return x;
}

__device__ void merge(const MergeParams& p, const MergeRow& info, int head) {
  const int lane = static_cast<int>(threadIdx.x % 32), n_dims = p.head_dim;
  const std::int64_t stride = p.n_heads_q, first = std::int64_t{info.partial_begin} * stride + head;
  const auto* states = reinterpret_cast<const float2*>(p.partial_state) + first;
  float maximum = negative_infinity();
  for (int i = lane; i < info.n_partials; i += 32) maximum = fmaxf(maximum, states[i * stride].x);
  maximum = warp_max(maximum);
  const float base = maximum == negative_infinity() ? 0.0F : maximum;

  const std::int64_t to = info.row * stride + head;
  for (int dim = 4 * lane; dim - 4 * lane < n_dims; dim += 128) {
    float sum = 0.0F;
    float4 o = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    for (int begin = 0; begin < info.n_partials; begin += 32) {
      const int n = min(32, info.n_partials - begin);
      const float2 state = lane < n ? states[(begin + lane) * stride] : make_float2(negative_infinity(), 0.0F);
      const float weight = exp2_approx(__fsub_rn(state.x, base)), part = __fmul_rn(weight, state.y);
      const float* from = p.partial_o + (first + begin * stride) * n_dims + dim;
#pragma unroll 4
      for (int i = 0; i < n; ++i) {
        const float w = __shfl_sync(kAllLanes, weight, i);
        sum = __fadd_rn(sum, __shfl_sync(kAllLanes, part, i));
        if (dim >= n_dims) continue;
        const float4 x = *reinterpret_cast<const float4*>(from + i * stride * n_dims);
        o = make_float4(__fmaf_rn(w, x.x, o.x), __fmaf_rn(w, x.y, o.y), __fmaf_rn(w, x.z, o.z), __fmaf_rn(w, x.w, o.w));
      }
    }
    if (dim < n_dims) {
      const float factor = reciprocal_sum(sum);
      store_pair(p.o, p.o_is_f32, to * n_dims + dim, __fmul_rn(o.x, factor), __fmul_rn(o.y, factor));
      store_pair(p.o, p.o_is_f32, to * n_dims + dim + 2, __fmul_rn(o.z, factor), __fmul_rn(o.w, factor));
    }
    if (p.lse != nullptr && dim == 0) p.lse[to] = natural_lse(maximum, sum);
  }
}

__global__ void __launch_bounds__(32 * kWarps) merge_kernel(const __grid_constant__ MergeParams p) {
  const std::int64_t n = std::int64_t{p.work.header->n_merge_rows} * p.n_heads_q;
  const std::int64_t n_warps = std::int64_t{gridDim.x} * kWarps;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < n; i += n_warps) {
    merge(p, p.work.merge_rows[i / p.n_heads_q], static_cast<int>(i % p.n_heads_q));
  }
}

}  // namespace

void launch_merge(const MergeParams& params, unsigned n_warps, cudaStream_t stream) {
  merge_kernel<<<(n_warps + kWarps - 1) / kWarps, 32 * kWarps, 0, stream>>>(params);
  check_launch("attention merge");
}

}  // namespace banyan::kernels::cuda
