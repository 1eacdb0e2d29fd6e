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
// Keys in f8_e4m3 stand in the ring as they are stored, with their scales, and are widened to bf16 once for the block,
// part by part, before they are multiplied: exactly, so that a row has the bits that it has with such keys in bf16.
//
// Blocks are persistent: each begins with the item of its own number and then draws from a counter until there is none;
// the last to draw sets the counter back to 0. Which block computes an item changes no bit of it.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention_keys.cuh"
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/tile_ops.cuh"
#include "kernels/cuda/tile_params.hpp"

namespace banyan::kernels::cuda {

// A tile kernel's shape. What the numbers rest on, for 128 dims on an H200:
//   narrow   one warp; parts of 16 keys, so that a dozen blocks of 17 KiB run: while one waits for its first keys or
//            computes, the others' copies are under way. 4.3 TB/s need about 30 KiB in flight per multiprocessor.
//   wide     32 rows per warp, because reading a tile of keys and values from shared memory takes 256 cycles whatever
//            its rows, and products 410 for 32 rows at the rate of mma.sync, but 205 for 16. 104 KiB: two blocks fit.
//   256 dims have twice the accumulators per row, so 16 rows per warp in each kind, and eight warps in the widest.
template <class Stored, int kDim, TileKind kKindOfTile>
struct Tile {
  static constexpr bool kIsScaled = std::is_same_v<Stored, E4m3>;
  using Type = std::conditional_t<kIsScaled, __nv_bfloat16, Stored>;  // that is multiplied
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
  static constexpr int kCopyWarps = kWarps;
  static constexpr int kKeysPerWarp = kPartKeys / kCopyWarps;
  static constexpr bool kSumsOfLanes = false, kMerges = true, kCopiesTilesOfRuns = false;

  // A row in shared memory is an odd number of 16-byte vectors: eight rows at the same column fill all banks once.
  static constexpr int kVectors = kHeadDim / 8;
  static constexpr int kRowBytes = (kVectors | 1) * 16;
  static constexpr int kPartBytes = kPartKeys * kRowBytes;
  // Keys with scales lie close together: they are read in order.
  static constexpr int kSlotBytes = kHeadDim * static_cast<int>(sizeof(Stored));
  static constexpr int kSlotVectors = kSlotBytes / 16;
  static constexpr int kStageBytes = kIsScaled ? kPartKeys * (kSlotBytes + 4) : kPartBytes;
  static constexpr bool kQueriesInRegisters = kFragments * kHeadDim <= 128;
  static constexpr int kQueryBytes = kQueriesInRegisters ? 0 : kRows * kRowBytes;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kWidenedBytes = kIsScaled ? kPartBytes : 0;
  static constexpr int kSharedBytes = kRingBytes + kWidenedBytes + kQueryBytes;

  // What shared memory allows; caps the registers.
  static constexpr int kBlocksPerSm = kHeadDim > 128              ? 1
                                      : kKind == TileKind::wide   ? 2
                                      : kKind == TileKind::middle ? 3
                                                                  : 11;

  static __device__ __forceinline__ int first_row() {
    return kWarps == 1 ? 0 : static_cast<int>(threadIdx.x / 32) * 16 * kFragments;
  }
  static __device__ __forceinline__ int key_place(int key, int vector) { return key * kRowBytes + vector * 16; }
  static __device__ __forceinline__ int slot_place(int key, int vector) {
    return kIsScaled ? key * kSlotBytes + vector * 16 : key_place(key, vector);
  }
  static __device__ __forceinline__ int scale_place(int key) { return kPartKeys * kSlotBytes + key * 4; }
  static __device__ __forceinline__ int query_place(int row, int vector) { return key_place(row, vector); }

  static_assert(kHeadDim % 16 == 0 && kKeysPerWarp * kVectors % 32 == 0 && kStageBytes % 16 == 0);
};

// The rows of one warp and their products by mma.sync.
template <class S>
class WarpRows : public TileRows<S> {
 public:
  using typename TileRows<S>::E;
  using TileRows<S>::kSteps;

  __device__ __forceinline__ WarpRows(const TileParams& p, const WorkItem& item, int kv_head,
                                      unsigned char* query_memory)
      : TileRows<S>(p, item, kv_head) {
    if constexpr (S::kQueriesInRegisters) {
      load_queries();
    } else {
      const int row = S::first_row() + this->lane() % 16;
      query_address_ = shared_address(query_memory) + S::query_place(row, this->lane() / 16);
      this->copy_queries(query_memory);
    }
    if (item.continues != 0) this->load_states();
  }

  // Scores of part `part` of the tile's keys, which stand at `keys` in shared memory.
  __device__ __forceinline__ void add_scores(int part, std::uint32_t keys) {
    const std::uint32_t address =
        keys + (this->lane() % 8 + this->lane() / 16 * 8) * S::kRowBytes + this->lane() / 8 % 2 * 16;
    constexpr int kPairs = S::kPartKeys / 16;
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int n = 0; n < 2 * kPairs; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) this->s_[f][part * 2 * kPairs + n][i] = 0.0F;
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
          E::multiply_add(this->s_[f][n], q[f], k[0], k[1]);
          E::multiply_add(this->s_[f][n + 1], q[f], k[2], k[3]);
        }
      }
    }
  }

  // Scores to weights; O as the new maxima want it.
  __device__ __forceinline__ void softmax(int tile) {
    typename TileRows<S>::Corrections corrections;
    this->weigh(tile, corrections);
    this->pack_weights();
    this->rescale(corrections);
  }

  // Weights times part `part` of the tile's values, which stand at `values` in shared memory.
  __device__ __forceinline__ void add_values(int part, std::uint32_t values) {
    const std::uint32_t address =
        values + (this->lane() % 8 + this->lane() / 8 % 2 * 8) * S::kRowBytes + this->lane() / 16 * 16;
    constexpr int kKeySteps = S::kPartKeys / 16;
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < kSteps; ++pair) {
        std::uint32_t v[4];
        load_matrices_transposed(v, address + step * 16 * S::kRowBytes + pair * 32);
#pragma unroll
        for (int f = 0; f < S::kFragments; ++f) {
          E::multiply_add(this->o_[f][2 * pair], this->weights_[f][part * kKeySteps + step], v[0], v[1]);
          E::multiply_add(this->o_[f][2 * pair + 1], this->weights_[f][part * kKeySteps + step], v[2], v[3]);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ void load_queries() {
#pragma unroll
    for (int f = 0; f < S::kFragments; ++f) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const bool valid = this->has_row(f, half);
        const auto* q = static_cast<const std::uint32_t*>(this->p_.q) +
                        (valid ? this->row_head(f, half) * (S::kHeadDim / 2) : 0) + this->lane() % 4;
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          q_[f][step][half] = valid ? E::from_bf16(__ldg(q + step * 8)) : 0;
          q_[f][step][half + 2] = valid ? E::from_bf16(__ldg(q + step * 8 + 4)) : 0;
        }
      }
    }
  }

  std::uint32_t query_address_ = 0;
  std::uint32_t q_[S::kFragments][S::kQueriesInRegisters ? kSteps : 1][4];
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
  KeyStream<S> stream(p, item, kv_head, ring, 0);
#pragma unroll
  for (int i = 0; i < S::kStages - 1; ++i) {
    stream.start(i % (2 * S::kParts));
    commit_copies();
  }
  WarpRows<S> rows(p, item, kv_head, shared + S::kRingBytes + S::kWidenedBytes);

  const int n_tiles = (item.n_keys + S::kTileKeys - 1) / S::kTileKeys;
  int stage = 0;
  for (int tile = 0; tile < n_tiles; ++tile) {
    const bool sees = rows.sees(tile);
    const int n_left = item.n_keys - tile * S::kTileKeys;
#pragma unroll
    for (int i = 0; i < 2 * S::kParts; ++i) {
      wait_copies<S::kStages - 2>();
      synchronize_block<S>();
      stream.start((i + S::kStages - 1) % (2 * S::kParts));
      commit_copies();
      std::uint32_t part = ring + stage * S::kStageBytes;
      if constexpr (S::kIsScaled) {
        widen_part<S, S>(shared + stage * S::kStageBytes, shared + S::kRingBytes);
        synchronize_block<S>();
        part = ring + S::kRingBytes;
      }
      stage = (stage + 1) % S::kStages;
      if (!sees) continue;
      // Parts without a key were not copied; their scores, whatever they are, are masked, and weights of 0 add nothing.
      const bool has_keys = S::kParts == 1 || i % S::kParts * S::kPartKeys < n_left;
      if (i < S::kParts && has_keys) rows.add_scores(i, part);
      if (i == S::kParts - 1) rows.softmax(tile);
      if (i >= S::kParts && has_keys) rows.add_values(i - S::kParts, part);
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
  const WorkHeader::Range range = p.work.header->items[p.phase][p.kind];
  const auto n_tickets = static_cast<std::uint32_t>(range.end - range.begin) * static_cast<std::uint32_t>(p.n_heads_kv);
  const bool draws = n_tickets > gridDim.x;
  std::uint32_t drawn = 0, ticket = blockIdx.x;  // everybody's first is given
  while (ticket < n_tickets) {
    const std::uint32_t index = ticket / static_cast<std::uint32_t>(p.n_heads_kv);
    const WorkItem& item = p.work.items[range.begin + static_cast<int>(index)];
    // The next one, while this one is computed.
    if (draws && threadIdx.x == 0) drawn = gridDim.x + atomicAdd(p.ticket, 1U);
    compute_item<S>(p, item, static_cast<int>(ticket - index * static_cast<std::uint32_t>(p.n_heads_kv)), shared);
    if (!draws) return;
    ticket = broadcast<S>(drawn);
  }
  // Every block draws in vain once. The one that does so last leaves the counter as it was.
  if (draws && threadIdx.x == 0 && ticket == n_tickets + gridDim.x - 1) *p.ticket = 0;
}

template <class S>
TileKernel describe_tile_kernel() {
  return {reinterpret_cast<const void*>(&attention_tile_kernel<S>), S::kThreads, S::kSharedBytes};
}

}  // namespace banyan::kernels::cuda
