// Attention of one tile of packed rows over one piece of keys, on tensor cores: what a work item asks for
// (work_items.hpp).
//
//     S = Q K^T          64 keys at a time; accumulators of 16 x 8 in registers, a warp has all keys of its rows
//     P = 2^(S - max)    the running maximum and sum of each row; O is scaled when a maximum grows
//     O = O + P V
//
// A warp owns kFragments times 16 rows and walks all keys of the item by itself, so what happens to a row is the same
// in each kind of tile: only who copies the keys into shared memory differs. There they stand in a ring of stages, each
// a *part* (16 or 64 keys, or values) of a tile of 64 keys: keys, values, keys, values … A part is awaited, then the
// part three places ahead is started into the stage that has just become free.
//
// Blocks are persistent: each draws the next item from a counter until there is none, and the last to draw sets the
// counter back to 0. Which block computes an item changes no bit of it.
#pragma once

#include "kernels/cuda/tile_ops.cuh"
#include "kernels/cuda/tile_params.hpp"

namespace banyan::kernels::cuda {

// A tile kernel's shape. What the numbers rest on, for 128 dims on an H200:
//   narrow   one warp; parts of 16 keys, so that a dozen blocks of 17 KiB run: while one waits for its first keys or
//            computes, the others' copies are under way. 4.3 TB/s need about 30 KiB in flight per multiprocessor.
//   wide     32 rows per warp, because reading a tile of keys and values from shared memory takes 256 cycles whatever
//            its rows, and products 410 for 32 rows at the rate of mma.sync, but 205 for 16. 104 KiB: two blocks fit.
//   256 dims have twice the accumulators per row, so 16 rows per warp in each kind, and eight warps in the widest.
template <class T, int kDim, TileKind kKindOfTile>
struct Tile {
  using Type = T;
  static constexpr TileKind kKind = kKindOfTile;
  static constexpr int kHeadDim = kDim;
  static constexpr int kRows = static_cast<int>(kTileRows[static_cast<int>(kKind)]);
  static constexpr int kFragments = kKind == TileKind::wide && kHeadDim <= 128 ? 2 : 1;
  static constexpr int kWarps = kRows / (16 * kFragments);
  static constexpr int kThreads = 32 * kWarps;

  static constexpr int kTileKeys = static_cast<int>(kTilePositions);
  static constexpr int kPartKeys = kWarps == 1 ? 16 : kTileKeys;
  static constexpr int kParts = kTileKeys / kPartKeys;  // of keys in a tile, and as many of values
  static constexpr int kStages = 4;
  static constexpr int kKeysPerWarp = kPartKeys / kWarps;  // that a warp copies of a part

  // A row in shared memory is an odd number of 16-byte vectors: eight rows at the same column fill all banks once.
  static constexpr int kVectors = kHeadDim / 8;
  static constexpr int kRowBytes = (kVectors | 1) * 16;
  static constexpr int kStageBytes = kPartKeys * kRowBytes;
  static constexpr bool kQueriesInRegisters = kFragments * kHeadDim <= 128;
  static constexpr int kQueryBytes = kQueriesInRegisters ? 0 : kRows * kRowBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + kQueryBytes;

  // What shared memory allows; caps the registers.
  static constexpr int kBlocksPerSm = kHeadDim > 128              ? 1
                                      : kKind == TileKind::wide   ? 2
                                      : kKind == TileKind::middle ? 3
                                                                  : 11;

  static_assert(kHeadDim % 16 == 0 && kKeysPerWarp * kVectors % 32 == 0);
};

constexpr unsigned kAllLanes = 0xffffffffU;

// The keys and values of an item on their way into shared memory. Uniform in the warp but for slot_bytes_: the keys
// of a part, or of a group of parts, that the warp copies have a lane each that knows their place.
template <class S>
class KeyStream {
 public:
  __device__ __forceinline__ KeyStream(const TileParams& p, const WorkItem& item, int kv_head, std::uint32_t ring)
      : run_(p.work.runs + item.run), ring_(ring), n_left_(item.n_keys) {
    slot_ = run_->first + item.run_offset;
    n_left_in_run_ = run_->n - item.run_offset;
    const std::int64_t head = kv_head * p.n_slots * kSlotBytes;
    keys_ = static_cast<const char*>(p.k) + head;
    values_ = static_cast<const char*>(p.v) + head;
  }

  // Starts copying the next part: of [0, 2 kParts) of a tile, in order. A constant wherever this is called.
  __device__ __forceinline__ void start(int part) {
    if (n_left_ > 0) {
      const int i = part % S::kParts, group = i / kGroup;
      if (part < S::kParts && i % kGroup == 0) {
        slot_bytes_[group] =
            place_of(i * S::kPartKeys + warp() * S::kKeysPerWarp + lane() % (kGroup * S::kKeysPerWarp));
      }
      copy(part < S::kParts ? keys_ : values_, slot_bytes_[group], i % kGroup * S::kKeysPerWarp);
      if (part == 2 * S::kParts - 1) next_tile();
    }
    commit_copies();
    stage_ = (stage_ + 1) % S::kStages;
  }

 private:
  static constexpr int kSlotBytes = S::kHeadDim * 2;
  static constexpr int kGroup = S::kWarps == 1 ? 32 / S::kKeysPerWarp : 1;  // parts whose keys the lanes of a warp hold
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ __forceinline__ int warp() { return S::kWarps == 1 ? 0 : static_cast<int>(threadIdx.x / 32); }

  // Of the key that stands `key` behind the tile's first; -1 behind the last.
  __device__ __forceinline__ std::int64_t place_of(int key) const {
    if (key >= n_left_) return -1;
    if (key < n_left_in_run_) return (slot_ + key) * kSlotBytes;
    const SlotRun* run = run_;
    std::int64_t rest = key - n_left_in_run_;
    for (++run; rest >= run->n; ++run) rest -= run->n;
    return (run->first + rest) * kSlotBytes;
  }

  __device__ __forceinline__ void copy(const char* base, std::int64_t slot_bytes, int first_lane) const {
    const std::uint32_t dst = ring_ + stage_ * S::kStageBytes + warp() * S::kKeysPerWarp * S::kRowBytes;
#pragma unroll
    for (int j = 0; j < S::kKeysPerWarp * S::kVectors / 32; ++j) {
      const int i = j * 32 + lane(), key = i / S::kVectors, vector = i % S::kVectors;
      const std::int64_t place = __shfl_sync(kAllLanes, slot_bytes, first_lane + key);
      const bool valid = place >= 0;
      copy_async(dst + key * S::kRowBytes + vector * 16, base + (valid ? place : 0) + vector * 16, valid);
    }
  }

  __device__ __forceinline__ void next_tile() {
    n_left_ -= S::kTileKeys;
    slot_ += S::kTileKeys;
    n_left_in_run_ -= S::kTileKeys;
    while (n_left_ > 0 && n_left_in_run_ <= 0) {
      ++run_;
      slot_ = run_->first - n_left_in_run_;
      n_left_in_run_ += run_->n;
    }
  }

  const SlotRun* run_;                           // the one with the tile's first key
  const char *keys_, *values_;                   // of the KV head
  std::int64_t slot_, n_left_in_run_;            // from the tile's first key on
  std::int64_t slot_bytes_[S::kParts / kGroup];  // of this lane's keys, in bytes from the first slot
  std::uint32_t ring_;
  int n_left_;  // keys from the tile's first on
  int stage_ = 0;
};

// The rows of one warp: queries, running softmax, output. Lane l has rows l / 4 and l / 4 + 8 of each fragment ("half"
// 0 and 1), and of those columns 2 (l % 4) and the next of every eight.
template <class S>
class WarpRows {
 public:
  using E = Element<typename S::Type>;
  static constexpr int kSteps = S::kHeadDim / 16;

  __device__ __forceinline__ WarpRows(const TileParams& p, const WorkItem& item, int kv_head,
                                      unsigned char* query_memory)
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
    if constexpr (S::kQueriesInRegisters) {
      load_queries();
    } else {
      query_address_ = shared_address(query_memory) + (first_row() + lane() % 16) * S::kRowBytes + lane() / 16 * 16;
      copy_queries(query_memory);
    }
    if (item.continues != 0) load_states();
  }

  __device__ __forceinline__ bool sees(int tile) const { return tile * S::kTileKeys < most_visible_; }

  // Scores of part `part` of the tile's keys, which stand at `keys` in shared memory.
  __device__ __forceinline__ void add_scores(int part, std::uint32_t keys) {
    const std::uint32_t address = keys + (lane() % 8 + lane() / 16 * 8) * S::kRowBytes + lane() / 8 % 2 * 16;
    constexpr int kPairs = S::kPartKeys / 16;
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int n = 0; n < 2 * kPairs; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s_[f][part * 2 * kPairs + n][i] = 0.0F;
      }
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t q[S::kFragments][4];
#pragma unroll
      for (int f = 0; f < S::kFragments; ++f) {
        if constexpr (S::kQueriesInRegisters) {
#pragma unroll
          for (int i = 0; i < 4; ++i) q[f][i] = q_[f][step][i];
        } else {
          load_matrices(q[f], query_address_ + f * 16 * S::kRowBytes + step * 32);
        }
      }
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        std::uint32_t k[4];
        load_matrices(k, address + pair * 16 * S::kRowBytes + step * 32);
        const int n = (part * kPairs + pair) * 2;
#pragma unroll
        for (int f = 0; f < S::kFragments; ++f) {
          E::multiply_add(s_[f][n], q[f], k[0], k[1]);
          E::multiply_add(s_[f][n + 1], q[f], k[2], k[3]);
        }
      }
    }
  }

  // Scores to weights, against the maximum of all tiles so far.
  __device__ __forceinline__ void softmax(int tile) {
    if ((tile + 1) * S::kTileKeys > fewest_visible_) mask(tile);
    float correction[S::kFragments][2];
    bool grew = false;
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        correction[f][half] = softmax_row(f, half);
        grew = grew || correction[f][half] != 1.0F;
      }
      pack_weights(f);
    }
    if (!__any_sync(kAllLanes, grew)) return;  // times one
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int n = 0; n < S::kHeadDim / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o_[f][n][i] = __fmul_rn(o_[f][n][i], correction[f][i / 2]);
      }
    }
  }

  // Weights times part `part` of the tile's values, which stand at `values` in shared memory.
  __device__ __forceinline__ void add_values(int part, std::uint32_t values) {
    const std::uint32_t address = values + (lane() % 8 + lane() / 8 % 2 * 8) * S::kRowBytes + lane() / 16 * 16;
    constexpr int kKeySteps = S::kPartKeys / 16;
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < kSteps; ++pair) {
        std::uint32_t v[4];
        load_matrices_transposed(v, address + step * 16 * S::kRowBytes + pair * 32);
#pragma unroll
        for (int f = 0; f < S::kFragments; ++f) {
          E::multiply_add(o_[f][2 * pair], weights_[f][part * kKeySteps + step], v[0], v[1]);
          E::multiply_add(o_[f][2 * pair + 1], weights_[f][part * kKeySteps + step], v[2], v[3]);
        }
      }
    }
  }

  // Results of rows that are complete with this item; the state of others to their slots.
  __device__ __forceinline__ void store() const {
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (!has_row(f, half) || n_visible_[f][half] == 0) continue;
        const RowInfo info = p_.work.rows[row(f, half)];
        if (info.n_partials == 1 && info.last_call == item_.call) {
          store_result(f, half);
        } else {
          store_state(f, half, slot(info, f, half));
        }
      }
    }
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }
  static __device__ __forceinline__ int first_row() {  // of the warp, in the tile
    return S::kWarps == 1 ? 0 : static_cast<int>(threadIdx.x / 32) * 16 * S::kFragments;
  }
  __device__ __forceinline__ int packed(int f, int half) const { return first_row() + f * 16 + half * 8 + lane() / 4; }
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

  __device__ __forceinline__ void load_queries() {
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool valid = has_row(f, half);
        const auto* q =
            static_cast<const std::uint32_t*>(p_.q) + (valid ? row_head(f, half) * (S::kHeadDim / 2) : 0) + lane() % 4;
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          q_[f][step][half] = valid ? E::from_bf16(__ldg(q + step * 8)) : 0;
          q_[f][step][half + 2] = valid ? E::from_bf16(__ldg(q + step * 8 + 4)) : 0;
        }
      }
    }
  }

  // The warp's own rows, so that no other warp waits for them.
  __device__ __forceinline__ void copy_queries(unsigned char* memory) const {
#pragma unroll 4
    for (int i = lane(); i < 16 * S::kFragments * S::kVectors; i += 32) {
      const int r = first_row() + i / S::kVectors, vector = i % S::kVectors;
      uint4 x = make_uint4(0, 0, 0, 0);
      if (r < item_.n_packed) {
        const std::int64_t from = std::int64_t{row_of(r)} * p_.n_heads_q + head_of(r);
        x = __ldg(static_cast<const uint4*>(p_.q) + from * S::kVectors + vector);
        x = make_uint4(E::from_bf16(x.x), E::from_bf16(x.y), E::from_bf16(x.z), E::from_bf16(x.w));
      }
      *reinterpret_cast<uint4*>(memory + r * S::kRowBytes + vector * 16) = x;
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
    sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, 1));
    sum = __fadd_rn(sum, __shfl_xor_sync(kAllLanes, sum, 2));
    sum_[f][half] = __fmaf_rn(sum_[f][half], correction, sum);
    maximum_[f][half] = larger;
    return correction;
  }

  // Accumulators of S are laid out as the left operand of the next product is.
  __device__ __forceinline__ void pack_weights(int f) {
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
  std::uint32_t query_address_ = 0;
  std::uint32_t q_[S::kFragments][S::kQueriesInRegisters ? kSteps : 1][4];
  float s_[S::kFragments][S::kTileKeys / 8][4];
  std::uint32_t weights_[S::kFragments][S::kTileKeys / 16][4];
  float o_[S::kFragments][S::kHeadDim / 8][4];
  float maximum_[S::kFragments][2];  // base 2
  float sum_[S::kFragments][2];
  int n_visible_[S::kFragments][2];  // keys of the item
};

template <class S>
__device__ __forceinline__ void synchronize_block() {
  if constexpr (S::kWarps == 1) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

template <class S>
__device__ __forceinline__ void compute_item(const TileParams& p, const WorkItem& item, int kv_head,
                                             unsigned char* shared) {
  const std::uint32_t ring = shared_address(shared);
  KeyStream<S> stream(p, item, kv_head, ring);
#pragma unroll
  for (int i = 0; i < S::kStages - 1; ++i) stream.start(i % (2 * S::kParts));
  WarpRows<S> rows(p, item, kv_head, shared + S::kStages * S::kStageBytes);

  const int n_tiles = (item.n_keys + S::kTileKeys - 1) / S::kTileKeys;
  int stage = 0;
  for (int tile = 0; tile < n_tiles; ++tile) {
    const bool sees = rows.sees(tile);
#pragma unroll
    for (int i = 0; i < 2 * S::kParts; ++i) {
      wait_copies<S::kStages - 2>();
      synchronize_block<S>();
      stream.start((i + S::kStages - 1) % (2 * S::kParts));
      const std::uint32_t part = ring + stage * S::kStageBytes;
      stage = (stage + 1) % S::kStages;
      if (!sees) continue;
      if (i < S::kParts) rows.add_scores(i, part);
      if (i == S::kParts - 1) rows.softmax(tile);
      if (i >= S::kParts) rows.add_values(i - S::kParts, part);
    }
  }
  rows.store();
}

// Thread 0's value, for all; no thread is still at work on what came before.
template <class S>
__device__ __forceinline__ std::uint32_t broadcast(std::uint32_t value) {
  if constexpr (S::kWarps == 1) {
    __syncwarp();
    return __shfl_sync(kAllLanes, value, 0);
  } else {
    __shared__ std::uint32_t shared_value;
    __syncthreads();
    if (threadIdx.x == 0) shared_value = value;
    __syncthreads();
    return shared_value;
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksPerSm)
    attention_tile_kernel(const __grid_constant__ TileParams p) {
  extern __shared__ __align__(16) unsigned char shared[];
  const WorkHeader::Range range = p.work.header->items[p.phase][static_cast<int>(S::kKind)];
  const auto n_tickets = static_cast<std::uint32_t>(range.end - range.begin) * static_cast<std::uint32_t>(p.n_heads_kv);
  std::uint32_t drawn = 0, ticket = 0;
  if (threadIdx.x == 0) drawn = atomicAdd(p.ticket, 1U);
  for (;;) {
    ticket = broadcast<S>(drawn);
    if (ticket >= n_tickets) break;
    if (threadIdx.x == 0) drawn = atomicAdd(p.ticket, 1U);  // the next one, while this one is computed
    const std::uint32_t index = ticket / static_cast<std::uint32_t>(p.n_heads_kv);
    const WorkItem& item = p.work.items[range.begin + static_cast<int>(index)];
    compute_item<S>(p, item, static_cast<int>(ticket - index * static_cast<std::uint32_t>(p.n_heads_kv)), shared);
  }
  // Every block draws in vain once. The one that does so last leaves the counter as it was.
  if (threadIdx.x == 0 && ticket == n_tickets + gridDim.x - 1) *p.ticket = 0;
}

template <class S>
TileKernel describe_tile_kernel() {
  return {reinterpret_cast<const void*>(&attention_tile_kernel<S>), S::kThreads, S::kSharedBytes};
}

}  // namespace banyan::kernels::cuda
