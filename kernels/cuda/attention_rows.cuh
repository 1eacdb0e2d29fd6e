// The rows of one warp of a tile kernel, in registers: scores, running softmax, output; and their way back to memory.
// Knows no instruction that multiplies matrices: the kernels derive from TileRows what does S = Q K^T and O += P V.
//
// Lane l has rows l / 4 and l / 4 + 8 of each fragment of 16 rows ("half" 0 and 1), and of those columns 2 (l % 4) and
// the next of every eight: the layout of the accumulators of mma.sync and of wgmma.
//
// S, the shape of the kernel, says: Type, kHeadDim, kVectors, kTileKeys; kFragments (of a warp); first_row(), of the
// warp in the tile; query_place(row, vector), where queries stand in shared memory; kSumsOfLanes: whether the sum of
// weights is added over lanes only at the end, which is quicker, but depends on where the item began; kMerges: whether
// items of the kind may merge partials of earlier launches.
#pragma once

#include "kernels/cuda/tile_ops.cuh"
#include "kernels/cuda/tile_params.hpp"

namespace banyan::kernels::cuda {

template <class S>
class TileRows {
 public:
  using E = Element<typename S::Type>;
  static constexpr int kSteps = S::kHeadDim / 16;  // of 16 dims

  __device__ __forceinline__ TileRows(const TileParams& p, const WorkItem& item, int kv_head)
      : p_(p), item_(item), kv_head_(kv_head) {
    int fewest = item.n_keys, most = 0;
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        n_visible_[f][half] = item.n_keys;  // rows that are none compute something, and store nothing
        maximum_[f][half] = negative_infinity();
        sum_[f][half] = 0.0F;
        if (!has_row(f, half)) continue;
        const int position = p.work.rows[row(f, half)].position;
        n_visible_[f][half] = min(max(position + 1 - item.kv_position, 0), item.n_keys);
        fewest = min(fewest, n_visible_[f][half]);
        most = max(most, n_visible_[f][half]);
      }
#pragma unroll
      for (int n = 0; n < S::kHeadDim / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o_[f][n][i] = 0.0F;
      }
    }
    fewest_visible_ = __reduce_min_sync(kAllLanes, fewest);
    most_visible_ = __reduce_max_sync(kAllLanes, most);
  }

  __device__ __forceinline__ bool sees(int tile) const { return tile * S::kTileKeys < most_visible_; }

  // What O is still to be multiplied by, for each row.
  using Corrections = float[S::kFragments][2];

  // Scores to weights, against the maximum of all tiles so far.
  __device__ __forceinline__ void weigh(int tile, Corrections& corrections) {
    if ((tile + 1) * S::kTileKeys > fewest_visible_) mask(tile);
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int half = 0; half < 2; ++half) corrections[f][half] = softmax_row(f, half);
    }
  }

  // Accumulators of S are laid out as the left operand of the next product is.
  __device__ __forceinline__ void pack_weights() {
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int step = 0; step < S::kTileKeys / 16; ++step) {
        const auto& low = s_[f][2 * step];
        const auto& high = s_[f][2 * step + 1];
        weights_[f][step][0] = E::pack(low[0], low[1]);
        weights_[f][step][1] = E::pack(low[2], low[3]);
        weights_[f][step][2] = E::pack(high[0], high[1]);
        weights_[f][step][3] = E::pack(high[2], high[3]);
      }
    }
  }

  __device__ __forceinline__ void rescale(const Corrections& corrections) {
    bool grew = false;
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) grew = grew || corrections[f][0] != 1.0F || corrections[f][1] != 1.0F;
    if (!__any_sync(kAllLanes, grew)) return;  // times one
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int n = 0; n < S::kHeadDim / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o_[f][n][i] = __fmul_rn(o_[f][n][i], corrections[f][i / 2]);
      }
    }
  }

  // Results of rows that are complete with this item; the state of others to their slots.
  __device__ __forceinline__ void store() {
    if constexpr (S::kSumsOfLanes) {
#pragma unroll
      for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
        for (int half = 0; half < 2; ++half) sum_[f][half] = sum_of_row(sum_[f][half]);
      }
    }
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (!has_row(f, half) || n_visible_[f][half] == 0) continue;
        const RowInfo info = p_.work.rows[row(f, half)];
        const std::int64_t to = slot(info, f, half);
        if constexpr (S::kMerges) {
          if (item_.n_merged > 1) add_partial(f, half, to - p_.n_heads_q);
          if (item_.n_merged > 0) add_partial(f, half, to);
        }
        if (info.n_partials == 1 && info.last_call == item_.call) {
          store_result(f, half);
        } else {
          store_state(f, half, to);
        }
      }
    }
  }

 protected:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ __forceinline__ int packed(int f, int half) const {
    return S::first_row() + f * 16 + half * 8 + lane() / 4;
  }
  __device__ __forceinline__ bool has_row(int f, int half) const { return packed(f, half) < item_.n_packed; }
  // Packed row `i` of the tile: its row, and its head in the group.
  __device__ __forceinline__ int row_of(int i) const { return item_.row_begin + (item_.packed_begin + i) / p_.group; }
  __device__ __forceinline__ int head_of(int i) const {
    return kv_head_ * p_.group + (item_.packed_begin + i) % p_.group;
  }
  __device__ __forceinline__ int row(int f, int half) const { return row_of(packed(f, half)); }
  __device__ __forceinline__ int head(int f, int half) const { return head_of(packed(f, half)); }
  __device__ __forceinline__ std::int64_t row_head(int f, int half) const {
    return std::int64_t{row(f, half)} * p_.n_heads_q + head(f, half);
  }
  __device__ __forceinline__ std::int64_t slot(const RowInfo& info, int f, int half) const {
    return (std::int64_t{info.partial_begin} + item_.ordinal) * p_.n_heads_q + head(f, half);
  }

  // Queries of the warp's own rows into shared memory; zeros for rows that are none.
  __device__ __forceinline__ void copy_queries(unsigned char* memory) const {
#pragma unroll 4
    for (int i = lane(); i < 16 * S::kFragments * S::kVectors; i += 32) {
      const int r = S::first_row() + i / S::kVectors, vector = i % S::kVectors;
      uint4 x = make_uint4(0, 0, 0, 0);
      if (r < item_.n_packed) {
        const std::int64_t from = std::int64_t{row_of(r)} * p_.n_heads_q + head_of(r);
        x = __ldg(static_cast<const uint4*>(p_.q) + from * S::kVectors + vector);
        x = make_uint4(E::from_bf16(x.x), E::from_bf16(x.y), E::from_bf16(x.z), E::from_bf16(x.w));
      }
      *reinterpret_cast<uint4*>(memory + S::query_place(r, vector)) = x;
    }
    __syncwarp();
  }

  __device__ __forceinline__ void mask(int tile) {
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int n = 0; n < S::kTileKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = tile * S::kTileKeys + n * 8 + lane() % 4 * 2 + i % 2;
          if (key >= n_visible_[f][i / 2]) s_[f][n][i] = negative_infinity();
        }
      }
    }
  }

  // Over the four lanes that share a row.
  static __device__ __forceinline__ float sum_of_row(float x) {
    x = __fadd_rn(x, __shfl_xor_sync(kAllLanes, x, 1));
    return __fadd_rn(x, __shfl_xor_sync(kAllLanes, x, 2));
  }

  // Returns what the row's earlier weights are worth now.
  __device__ __forceinline__ float softmax_row(int f, int half) {
    constexpr int kColumns = S::kTileKeys / 8;
    float top = fmaxf(s_[f][0][2 * half], s_[f][0][2 * half + 1]);
#pragma unroll
    for (int n = 1; n < kColumns; ++n) top = fmaxf(top, fmaxf(s_[f][n][2 * half], s_[f][n][2 * half + 1]));
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
    const float larger = fmaxf(maximum_[f][half], __fmul_rn(top, p_.scale_log2));
    // While nothing is visible the maximum is -inf, and -inf - -inf would be NaN: then every weight is 2^-inf = 0.
    const float base = larger == negative_infinity() ? 0.0F : larger;
    const float correction = exp2_approx(__fsub_rn(maximum_[f][half], base));
    float sum = 0.0F;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        s_[f][n][i] = exp2_approx(__fmaf_rn(s_[f][n][i], p_.scale_log2, -base));
        sum = __fadd_rn(sum, s_[f][n][i]);
      }
    }
    if constexpr (!S::kSumsOfLanes) sum = sum_of_row(sum);
    sum_[f][half] = __fmaf_rn(sum_[f][half], correction, sum);
    maximum_[f][half] = larger;
    return correction;
  }

  __device__ __forceinline__ void load_states() {
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (!has_row(f, half) || n_visible_[f][half] == 0) continue;
        const std::int64_t from = slot(p_.work.rows[row(f, half)], f, half);
        const float2 state = reinterpret_cast<const float2*>(p_.partial_state)[from];
        maximum_[f][half] = state.x;
        sum_[f][half] = state.y;
        const auto* o = reinterpret_cast<const float2*>(p_.partial_o + from * S::kHeadDim) + lane() % 4;
#pragma unroll
        for (int n = 0; n < S::kHeadDim / 8; ++n) {
          const float2 pair = o[4 * n];
          o_[f][n][2 * half] = pair.x;
          o_[f][n][2 * half + 1] = pair.y;
        }
      }
    }
  }

  // At the end, when scores and queries are done with: there is room in the registers then.
  __device__ __forceinline__ void add_partial(int f, int half, std::int64_t from) {
    const float2 state = reinterpret_cast<const float2*>(p_.partial_state)[from];
    const float larger = fmaxf(maximum_[f][half], state.x);
    const float base = larger == negative_infinity() ? 0.0F : larger;
    const float own = exp2_approx(__fsub_rn(maximum_[f][half], base)), other = exp2_approx(__fsub_rn(state.x, base));
    maximum_[f][half] = larger;
    sum_[f][half] = __fmaf_rn(sum_[f][half], own, __fmul_rn(other, state.y));
    const auto* o = reinterpret_cast<const float2*>(p_.partial_o + from * S::kHeadDim) + lane() % 4;
#pragma unroll
    for (int n = 0; n < S::kHeadDim / 8; ++n) {
      const float2 pair = o[4 * n];
      o_[f][n][2 * half] = __fmaf_rn(other, pair.x, __fmul_rn(o_[f][n][2 * half], own));
      o_[f][n][2 * half + 1] = __fmaf_rn(other, pair.y, __fmul_rn(o_[f][n][2 * half + 1], own));
    }
  }

  __device__ __forceinline__ void store_state(int f, int half, std::int64_t to) const {
    if (lane() % 4 == 0) {
      reinterpret_cast<float2*>(p_.partial_state)[to] = make_float2(maximum_[f][half], sum_[f][half]);
    }
    auto* o = reinterpret_cast<float2*>(p_.partial_o + to * S::kHeadDim) + lane() % 4;
#pragma unroll
    for (int n = 0; n < S::kHeadDim / 8; ++n) o[4 * n] = make_float2(o_[f][n][2 * half], o_[f][n][2 * half + 1]);
  }

  __device__ __forceinline__ void store_result(int f, int half) const {
    const std::int64_t to = row_head(f, half);
    const float factor = reciprocal_sum(sum_[f][half]);
#pragma unroll
    for (int n = 0; n < S::kHeadDim / 8; ++n) {
      store_pair(p_.o, p_.o_is_f32, to * S::kHeadDim + n * 8 + lane() % 4 * 2, __fmul_rn(o_[f][n][2 * half], factor),
                 __fmul_rn(o_[f][n][2 * half + 1], factor));
    }
    if (p_.lse != nullptr && lane() % 4 == 0) p_.lse[to] = natural_lse(maximum_[f][half], sum_[f][half]);
  }

  const TileParams& p_;
  const WorkItem& item_;
  int kv_head_;
  int fewest_visible_, most_visible_;  // of the warp's rows
  float s_[S::kFragments][S::kTileKeys / 8][4];
  std::uint32_t weights_[S::kFragments][S::kTileKeys / 16][4];
  float o_[S::kFragments][S::kHeadDim / 8][4];
  float maximum_[S::kFragments][2];  // base 2
  float sum_[S::kFragments][2];      // of this lane's keys only, where S::kSumsOfLanes
  int n_visible_[S::kFragments][2];  // keys of the item
};

}  // namespace banyan::kernels::cuda
