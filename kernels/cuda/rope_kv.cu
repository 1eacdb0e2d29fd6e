#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_vectors.cuh"
#include "kernels/cuda/rows.hpp"
#include "kernels/e4m3.hpp"

namespace banyan::kernels::cuda {
namespace {

constexpr int kMostHeadDim = 256;

// A row has one block. Its angles are made once, in shared memory, for all heads. A head has n_lanes lanes of a warp,
// a power of two; each has kPairs pairs of vectors of kWidth elements, at places first(i) and second(i), so that the
// elements that turn together are in one lane.
template <int kWidth, int kPairs>
struct HeadLayout {
  int n_lanes, n_pairs, n_turning;  // pairs of vectors of a head, and how many of them turn

  __device__ int first(int i) const { return (i < n_turning ? i : 2 * i) * kWidth; }
  __device__ int second(int i) const { return (i < n_turning ? i + n_turning : 2 * i + 1) * kWidth; }
};

template <int kWidth>
__device__ void load(const __nv_bfloat16* p, float (&x)[kWidth]) {
  if constexpr (kWidth == kVector) {
    const Vector8 v = load8(p);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) x[j] = v.x[j];
  } else {
    x[0] = __bfloat162float(*p);
  }
}

template <class T, int kWidth>
__device__ void store(T* p, const float (&x)[kWidth]) {
  if constexpr (kWidth == kVector) {
    Vector8 v;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) v.x[j] = x[j];
    store8(p, v);
  } else {
    *p = static_cast<T>(x[0]);
  }
}

template <int kWidth>
__device__ void store_codes(std::uint8_t* p, const float (&x)[kWidth]) {
  if constexpr (kWidth == kVector) {
    std::uint32_t codes[2] = {};
#pragma unroll
    for (int j = 0; j < kWidth; ++j) codes[j / 4] |= std::uint32_t{e4m3_code(x[j])} << (8 * (j % 4));
    *reinterpret_cast<uint2*>(p) = make_uint2(codes[0], codes[1]);
  } else {
    *p = e4m3_code(x[0]);
  }
}

// Rounded to the pool's type. A new type of KV has its case here, and in the attention kernels.
template <int kWidth>
__device__ void store_kv(const KvView& kv, std::int64_t i, const float (&x)[kWidth]) {
  switch (kv.type) {
    case DType::bf16: store(static_cast<__nv_bfloat16*>(kv.base) + i, x); break;
    case DType::f16: store(static_cast<__half*>(kv.base) + i, x); break;
    case DType::f8_e4m3: store_codes(static_cast<std::uint8_t*>(kv.base) + i, x); break;
    default: store(static_cast<float*>(kv.base) + i, x); break;
  }
}

// cos and sin of each pair of elements, times magnitude.
__device__ void make_angles(const RopeKv& a, std::int64_t row, float2* angles) {
  constexpr double kPi = 3.14159265358979323846;
  const double position = a.positions[row];
  for (int i = static_cast<int>(threadIdx.x); i < a.n_rotary / 2; i += static_cast<int>(blockDim.x)) {
    const double half_turns = position * static_cast<double>(a.inv_freq[i]) / kPi;
    float sine, cosine;
    sincospif(static_cast<float>(half_turns - 2.0 * rint(half_turns / 2.0)), &sine, &cosine);
    angles[i] = make_float2(cosine * a.magnitude, sine * a.magnitude);
  }
}

// RMSNorm of the head, unless w is null. All lanes of the warp come along for the sum.
template <int kWidth, int kPairs>
__device__ void normalize(float (&low)[kPairs][kWidth], float (&high)[kPairs][kWidth],
                          const HeadLayout<kWidth, kPairs>& layout, int lane, const float* w, float eps,
                          std::int64_t head_dim) {
  float sum = 0.0F;  // lanes and pairs beyond the head have zeros
#pragma unroll
  for (int k = 0; k < kPairs; ++k) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += low[k][j] * low[k][j] + high[k][j] * high[k][j];
  }
  for (int distance = layout.n_lanes / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffU, sum, distance);
  }
  if (w == nullptr) return;
  const float factor = rsqrtf(sum / static_cast<float>(head_dim) + eps);
#pragma unroll
  for (int k = 0; k < kPairs; ++k) {
    const int i = lane + k * layout.n_lanes;
    if (i >= layout.n_pairs) continue;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      low[k][j] *= factor * w[layout.first(i) + j];
      high[k][j] *= factor * w[layout.second(i) + j];
    }
  }
}

// Divides a head that is stored by its scale, which it returns. All lanes of the warp come along for the largest
// element.
template <int kWidth, int kPairs>
__device__ float divide_by_scale(float (&low)[kPairs][kWidth], float (&high)[kPairs][kWidth], int n_lanes,
                                 bool is_stored) {
  std::uint32_t largest = 0;  // lanes and pairs beyond the head have zeros
#pragma unroll
  for (int k = 0; k < kPairs; ++k) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      largest = max(largest, max(e4m3_magnitude(low[k][j]), e4m3_magnitude(high[k][j])));
    }
  }
  for (int distance = n_lanes / 2; distance > 0; distance /= 2) {
    largest = max(largest, __shfl_xor_sync(0xffffffffU, largest, distance));
  }
  const float scale = e4m3_scale(largest), inverse = is_stored ? 1.0F / scale : 1.0F;  // exact
#pragma unroll
  for (int k = 0; k < kPairs; ++k) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      low[k][j] *= inverse;
      high[k][j] *= inverse;
    }
  }
  return scale;
}

template <int kWidth, int kPairs>
__global__ void __launch_bounds__(kRowThreads)
    rope_kv_kernel(const __grid_constant__ RopeKv a, const HeadLayout<kWidth, kPairs> layout) {
  __shared__ float2 angles[kMostHeadDim / 2];
  const std::int64_t d = a.kv.head_dim;
  const auto n_heads_q = static_cast<int>(a.n_heads_q), n_heads_kv = static_cast<int>(a.kv.n_heads_kv);
  const int n_heads = n_heads_q + 2 * n_heads_kv, heads_at_a_time = kRowThreads / layout.n_lanes;
  const int lane = static_cast<int>(threadIdx.x) % layout.n_lanes;
  const auto* qkv = reinterpret_cast<const __nv_bfloat16*>(a.qkv);
  let_successor_begin();
  wait_for_predecessor();
  for (std::int64_t row = blockIdx.x; row < a.n_rows; row += gridDim.x) {
    __syncthreads();  // the angles of the row before have been read
    make_angles(a, row, angles);
    __syncthreads();
    const std::int64_t slot = a.kv_slots[row];
    // All lanes of a warp go through the same rounds, for the sums over lanes of a head.
    const int first = static_cast<int>(blockIdx.y) * heads_at_a_time,
              stride = static_cast<int>(gridDim.y) * heads_at_a_time;
    for (int round = first; round < n_heads; round += stride) {
      const int head = round + static_cast<int>(threadIdx.x) / layout.n_lanes;
      const bool is_q = head < n_heads_q, is_k = !is_q && head < n_heads_q + n_heads_kv;
      float low[kPairs][kWidth] = {}, high[kPairs][kWidth] = {};
#pragma unroll
      for (int k = 0; k < kPairs; ++k) {
        const int i = lane + k * layout.n_lanes;
        if (head >= n_heads || i >= layout.n_pairs) continue;
        const __nv_bfloat16* from = qkv + (row * n_heads + head) * d;
        load(from + layout.first(i), low[k]);
        load(from + layout.second(i), high[k]);
      }
      if (a.q_norm != nullptr || a.k_norm != nullptr) {
        normalize(low, high, layout, lane, is_q ? a.q_norm : is_k ? a.k_norm : nullptr, a.norm_eps, d);
      }
#pragma unroll
      for (int k = 0; k < kPairs; ++k) {
        const int i = lane + k * layout.n_lanes;
        if (head >= n_heads || i >= layout.n_turning || !(is_q || is_k)) continue;
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          const float2 turn = angles[i * kWidth + j];
          const float x = low[k][j], y = high[k][j];
          low[k][j] = x * turn.x - y * turn.y;
          high[k][j] = y * turn.x + x * turn.y;
        }
      }
      const std::int64_t kv_row = (head - n_heads_q) * a.kv.n_slots + slot;  // K heads, then V heads: as in the pool
      if (a.kv.type == DType::f8_e4m3) {
        const bool is_stored = !is_q && head < n_heads && slot >= 0;
        const float scale = divide_by_scale(low, high, layout.n_lanes, is_stored);
        if (is_stored && lane == 0) a.kv.scales[kv_row] = scale;
      }
#pragma unroll
      for (int k = 0; k < kPairs; ++k) {
        const int i = lane + k * layout.n_lanes;
        if (head >= n_heads || i >= layout.n_pairs) continue;
        if (is_q) {
          auto* to = reinterpret_cast<__nv_bfloat16*>(a.q) + (row * n_heads_q + head) * d;
          store(to + layout.first(i), low[k]);
          store(to + layout.second(i), high[k]);
        } else if (slot >= 0) {
          store_kv(a.kv, kv_row * d + layout.first(i), low[k]);
          store_kv(a.kv, kv_row * d + layout.second(i), high[k]);
        }
      }
    }
  }
}

template <int kWidth, int kPairs>
void launch(const RopeKv& a, cudaStream_t stream) {
  HeadLayout<kWidth, kPairs> layout{1, static_cast<int>(a.kv.head_dim / (2 * kWidth)),
                                    static_cast<int>(a.n_rotary / (2 * kWidth))};
  while (layout.n_lanes * kPairs < layout.n_pairs) layout.n_lanes *= 2;
  // Few rows: their heads are spread over blocks, too.
  constexpr std::int64_t kFewRows = 128;
  dim3 grid = row_grid(a.n_rows, 1);
  const std::int64_t heads_at_a_time = kRowThreads / layout.n_lanes, n_heads = a.n_heads_q + 2 * a.kv.n_heads_kv;
  if (a.n_rows <= kFewRows) grid.y = static_cast<unsigned>((n_heads + heads_at_a_time - 1) / heads_at_a_time);
  launch_overlapped("rope_kv", rope_kv_kernel<kWidth, kPairs>, grid, kRowThreads, stream, a, layout);
}

}  // namespace

void rope_kv(const RopeKv& a, cudaStream_t stream) {
  const std::int64_t d = a.kv.head_dim;
  if (d <= 0 || d > kMostHeadDim || d % 2 != 0) {
    throw Error(ErrorCode::unsupported, "rope_kv", "head_dim " + std::to_string(d) + "; even and at most 256 on CUDA");
  }
  if (a.n_rotary < 0 || a.n_rotary > d || a.n_rotary % 2 != 0) {
    throw Error(ErrorCode::unsupported, "rope_kv",
                std::to_string(a.n_rotary) + " rotated dims of " + std::to_string(d) + "; an even number is needed");
  }
  if (a.kv.type != DType::bf16 && a.kv.type != DType::f16 && a.kv.type != DType::f32 && a.kv.type != DType::f8_e4m3) {
    throw Error(ErrorCode::unsupported, "rope_kv", "KV in " + std::string(to_string(a.kv.type)));
  }
  if (a.n_rows == 0) return;
  // Vectors of 16 bytes where halves of the rotated part and the rest consist of them.
  if (d % (2 * kVector) == 0 && a.n_rotary % (2 * kVector) == 0) return launch<kVector, 1>(a, stream);
  launch<1, 4>(a, stream);
}

}  // namespace banyan::kernels::cuda
