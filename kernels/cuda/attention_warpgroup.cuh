// Attention of one tile of 128 packed rows over one piece of keys on Hopper's own matrix instructions: what a work item
// of kind `warpgroup` asks for. The same result as attention_tile.cuh gives, to rounding; for sm_90a alone.
//
// A block is three warpgroups. The first copies keys and values into a ring in shared memory; the others have 64 rows
// each and multiply:
//
//     S = Q K^T        128 keys at a time, from shared memory; S in registers
//     P = 2^(S - max)
//     O = O + P V      P from registers, V from shared memory
//
// The products of one tile are under way while the weights of the next are computed: S of tile i + 1 and P V of tile i
// are started together. The two multiplying warpgroups take turns to start products, so that one has the matrix units
// while the other has the rest.
//
// Blocks are persistent: the copying warpgroup draws items from a counter and goes ahead to the next one while the
// others are still at work; they learn of items through a ring of two tickets.
//
// Keys in f8_e4m3 come into a smaller ring as they are stored, and the copying warpgroup widens each part to bf16 on
// its way into the one that the others read: exactly.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention_keys.cuh"
#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/warpgroup_ops.cuh"

namespace banyan::kernels::cuda {

// The kernel's shape. 128 dims: 128 x 128 tiles are 32 KiB of keys and 32 KiB of values, and two of each are in flight;
// S, P and O take 160 registers.
template <class Stored, int kDim>
struct WarpgroupTile {
  static constexpr bool kIsScaled = std::is_same_v<Stored, E4m3>;
  using Type = std::conditional_t<kIsScaled, __nv_bfloat16, Stored>;  // that is multiplied
  static constexpr int kHeadDim = kDim;
  static constexpr int kRows = static_cast<int>(kTileRows[static_cast<int>(TileKind::warpgroup)]);
  static constexpr int kFragments = 1;
  // These tiles are launched first: there is nothing yet to merge.
  static constexpr bool kSumsOfLanes = true, kMerges = false, kCopiesTilesOfRuns = true;
  static constexpr int kGroupThreads = 128;
  static constexpr int kThreads = kGroupThreads + kRows / 64 * kGroupThreads;
  static constexpr int kCopyRegisters = 56, kRowRegisters = 224;  // of 65,536 / kThreads, in eights

  static constexpr int kTileKeys = kHeadDim <= 128 ? 128 : 64;
  static constexpr int kPartKeys = kTileKeys, kParts = 1;
  static constexpr int kStages = 4;
  static constexpr int kCopyWarps = kGroupThreads / 32;
  static constexpr int kKeysPerWarp = kPartKeys / kCopyWarps;
  static constexpr int kVectors = kHeadDim / 8;
  static constexpr int kSlotBytes = kHeadDim * static_cast<int>(sizeof(Stored)), kSlotVectors = kSlotBytes / 16;

  // Keys, values and queries stand in panels of 64 dims (warpgroup_ops.cuh).
  static constexpr int kKeyPanelBytes = kPartKeys * kPanelRowBytes;
  static constexpr int kQueryPanelBytes = kRows * kPanelRowBytes;
  static constexpr int kStageBytes = kHeadDim / 64 * kKeyPanelBytes;
  static constexpr int kQueryBytes = kHeadDim / 64 * kQueryPanelBytes;
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kBarrierBytes = 8 * (2 * kStages + 4) + 8;

  // Keys with scales on their way, close together.
  struct StoredRing {
    static constexpr bool kIsScaled = true, kCopiesTilesOfRuns = false;
    static constexpr int kTileKeys = WarpgroupTile::kTileKeys, kPartKeys = kTileKeys, kParts = 1;
    static constexpr int kCopyWarps = WarpgroupTile::kCopyWarps, kKeysPerWarp = WarpgroupTile::kKeysPerWarp;
    static constexpr int kSlotBytes = WarpgroupTile::kSlotBytes, kSlotVectors = WarpgroupTile::kSlotVectors;
    static constexpr int kStages = kHeadDim <= 128 ? 3 : 2;  // what shared memory has room for
    static constexpr int kStageBytes = kPartKeys * (kSlotBytes + 4);
    static __device__ __forceinline__ int slot_place(int key, int vector) { return key * kSlotBytes + vector * 16; }
    static __device__ __forceinline__ int scale_place(int key) { return kPartKeys * kSlotBytes + key * 4; }
  };
  static constexpr int kStoredPlace = kRingBytes + kQueryBytes;
  static constexpr int kStoredBytes = kIsScaled ? StoredRing::kStages * StoredRing::kStageBytes : 0;
  static constexpr int kSignalsPlace = kStoredPlace + kStoredBytes;
  static constexpr int kSharedBytes = kSignalsPlace + kBarrierBytes;

  static __device__ __forceinline__ int first_row() {
    return (static_cast<int>(threadIdx.x) - kGroupThreads) / 32 * 16;
  }
  static __device__ __forceinline__ int key_place(int key, int vector) {
    return vector / 8 * kKeyPanelBytes + panel_place(key, vector % 8);
  }
  static __device__ __forceinline__ int slot_place(int key, int vector) { return key_place(key, vector); }
  // Of the key n_keys below, for the keys that KeyStream asks it of: the first of a warp's, and multiples.
  static __device__ __forceinline__ std::uint32_t key_place_below(std::uint32_t place, int n_keys) {
    return panel_place_below(place, n_keys);
  }
  static __device__ __forceinline__ int query_place(int row, int vector) {
    return vector / 8 * kQueryPanelBytes + panel_place(row, vector % 8);
  }

  static_assert(kHeadDim % 64 == 0 && kStages % 2 == 0 && kSharedBytes <= 227 * 1024);
};

// A stage of the ring and how often it has been passed, modulo 2.
template <class S>
struct Cursor {
  int stage, parity = 0;
  __device__ __forceinline__ void advance(int n) {
    stage += n;
    if (stage >= S::kStages) {
      stage -= S::kStages;
      parity ^= 1;
    }
  }
};

// Where the block's barriers and tickets lie in shared memory.
template <class S>
struct Signals {
  std::uint32_t base;

  __device__ __forceinline__ std::uint32_t full(int stage) const { return base + 8 * stage; }
  __device__ __forceinline__ std::uint32_t empty(int stage) const { return base + 8 * (S::kStages + stage); }
  __device__ __forceinline__ std::uint32_t drawn(int slot) const { return base + 8 * (2 * S::kStages + slot); }
  __device__ __forceinline__ std::uint32_t read(int slot) const { return base + 8 * (2 * S::kStages + 2 + slot); }
  __device__ __forceinline__ std::uint32_t ticket(int slot) const { return base + 8 * (2 * S::kStages + 4) + 4 * slot; }

  __device__ __forceinline__ void make() const {
    constexpr int kWarps = S::kThreads / 32;
    for (int stage = 0; stage < S::kStages; ++stage) {
      make_barrier(full(stage), S::kGroupThreads);
      make_barrier(empty(stage), kWarps - S::kCopyWarps);
    }
    for (int slot = 0; slot < 2; ++slot) {
      make_barrier(drawn(slot), 1);
      make_barrier(read(slot), kWarps);
    }
  }
};

// The tickets that a block draws, in order, as each of its threads learns them.
template <class S>
class Tickets {
 public:
  explicit __device__ __forceinline__ Tickets(Signals<S> signals) : signals_(signals) {}

  // By one thread: says what the next ticket is.
  __device__ __forceinline__ void put(std::uint32_t ticket) const {
    wait(signals_.read(slot_), parity_ ^ 1);
    store_shared(signals_.ticket(slot_), ticket);
    arrive(signals_.drawn(slot_));
  }
  __device__ __forceinline__ std::uint32_t next() {
    wait(signals_.drawn(slot_), parity_);
    const std::uint32_t ticket = load_shared(signals_.ticket(slot_));
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(signals_.read(slot_));
    slot_ ^= 1;
    parity_ ^= slot_ ^ 1;
    return ticket;
  }

 private:
  Signals<S> signals_;
  int slot_ = 0, parity_ = 0;
};

// Items of a launch in the order in which they are drawn: sixteen, for one KV head after the other, then the next
// sixteen. Neighbours are tiles of rows over the same piece of keys, which is so read by many blocks at a time.
struct ItemPlace {
  static constexpr std::uint32_t kTogether = 16;
  int index, kv_head;

  __device__ __forceinline__ ItemPlace(std::uint32_t ticket, std::uint32_t n_items, std::uint32_t n_heads_kv) {
    const std::uint32_t first = ticket / (kTogether * n_heads_kv) * kTogether;
    const std::uint32_t n = min(kTogether, n_items - first), rest = ticket - first * n_heads_kv;
    kv_head = static_cast<int>(rest / n);
    index = static_cast<int>(first + rest % n);
  }
};

// The rows of one warp and the products of its warpgroup by wgmma.
template <class S>
class WarpgroupRows : public TileRows<S> {
 public:
  // `queries`: room for those of the block, of which this warpgroup has 64.
  __device__ __forceinline__ WarpgroupRows(const TileParams& p, const WorkItem& item, int kv_head,
                                           unsigned char* queries)
      : TileRows<S>(p, item, kv_head) {
    synchronize();  // the products of the item before have read theirs
    this->copy_queries(queries);
    fence_for_matrices();
    synchronize();
    queries_ = describe_matrix(shared_address(queries) + group() * 64 * kPanelRowBytes, 0);
  }

  __device__ __forceinline__ void start_scores(std::uint32_t keys) {
    const std::uint64_t k = describe_matrix(keys, 0);
    begin_products();
#pragma unroll
    for (int step = 0; step < S::kHeadDim / 16; ++step) {
      const int panel = step / 4, bytes = step % 4 * 32;
      WarpgroupProduct<typename S::Type, S::kTileKeys / 8>::multiply(
          this->s_[0], queries_ + (panel * S::kQueryPanelBytes + bytes) / 16,
          k + (panel * S::kKeyPanelBytes + bytes) / 16, step > 0);
    }
    commit_products();
  }

  __device__ __forceinline__ void start_values(std::uint32_t values) {
    const std::uint64_t v = describe_matrix(values, S::kKeyPanelBytes);
    pin(this->o_[0]);
    pin(this->weights_[0]);
    begin_products();
#pragma unroll
    for (int step = 0; step < S::kTileKeys / 16; ++step) {
      WarpgroupProduct<typename S::Type, S::kHeadDim / 8>::multiply_add(this->o_[0], this->weights_[0][step],
                                                                        v + step * 16 * kPanelRowBytes / 16);
    }
    commit_products();
  }

  // Until the scores are there, of which kPending younger groups of products are not waited for.
  template <int kPending>
  __device__ __forceinline__ void await_scores() {
    wait_products<kPending>();
    pin(this->s_[0]);
  }
  // The weights of the next tile are computed before that, while the products are under way; without the first pin the
  // compiler would leave them for later.
  __device__ __forceinline__ void await_values() {
    pin(this->s_[0]);
    wait_products<0>();
    pin(this->o_[0]);
    pin(this->weights_[0]);
  }

  // The warpgroups' turns to start products.
  static __device__ __forceinline__ void await_turn() { named_wait(kTurn + group(), kTurnThreads); }
  static __device__ __forceinline__ void pass_turn() { named_arrive(kTurn + (group() ^ 1), kTurnThreads); }
  static __device__ __forceinline__ void first_turn() {
    if (group() == 1) pass_turn();
  }

 private:
  static constexpr int kOwn = 1, kTurn = 3;  // named barriers, for each warpgroup
  static constexpr int kTurnThreads = 2 * S::kGroupThreads;
  static __device__ __forceinline__ int group() {
    return (static_cast<int>(threadIdx.x) - S::kGroupThreads) / S::kGroupThreads;
  }
  static __device__ __forceinline__ void synchronize() { named_wait(kOwn + group(), S::kGroupThreads); }

  std::uint64_t queries_;
};

template <class S>
__device__ __forceinline__ void copy_item(const TileParams& p, const WorkItem& item, int kv_head, std::uint32_t ring,
                                          Signals<S> signals, Cursor<S>& cursor) {
  KeyStream<S> stream(p, item, kv_head, ring, cursor.stage);
  for (int begin = 0; begin < item.n_keys; begin += S::kTileKeys) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      wait(signals.empty(cursor.stage), cursor.parity ^ 1);
      stream.start(part);
      arrive_after_copies(signals.full(cursor.stage));
      cursor.advance(1);
    }
  }
}

// The same for keys with scales. A part is awaited, the next one started into the stage that has become free, and then
// the first is widened.
template <class S>
__device__ __forceinline__ void widen_item(const TileParams& p, const WorkItem& item, int kv_head,
                                           unsigned char* shared, Signals<S> signals, Cursor<S>& cursor) {
  using R = typename S::StoredRing;
  constexpr int kCopiers = 5;  // named barrier
  unsigned char* stored = shared + S::kStoredPlace;
  KeyStream<R> stream(p, item, kv_head, shared_address(stored), 0);
  named_wait(kCopiers, S::kGroupThreads);  // the item before has been widened
#pragma unroll
  for (int i = 0; i < R::kStages - 1; ++i) {
    stream.start(i);
    commit_copies();
  }
  int stage = 0;
  for (int begin = 0; begin < item.n_keys; begin += S::kTileKeys) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      wait_copies<R::kStages - 2>();
      named_wait(kCopiers, S::kGroupThreads);
      stream.start((part + R::kStages - 1) % 2);
      commit_copies();
      wait(signals.empty(cursor.stage), cursor.parity ^ 1);
      widen_part<R, S>(stored + stage * R::kStageBytes, shared + cursor.stage * S::kStageBytes);
      fence_for_matrices();
      arrive(signals.full(cursor.stage));
      cursor.advance(1);
      stage = (stage + 1) % R::kStages;
    }
  }
}

template <class S>
__device__ __forceinline__ void await_part(Signals<S> signals, const Cursor<S>& part) {
  wait(signals.full(part.stage), part.parity);
  fence_for_matrices();
}
template <class S>
__device__ __forceinline__ void release_part(Signals<S> signals, Cursor<S>& part) {
  if (threadIdx.x % 32 == 0) arrive(signals.empty(part.stage));
  part.advance(2);
}

template <class S>
__device__ __forceinline__ void multiply_item(WarpgroupRows<S>& rows, int n_keys, std::uint32_t ring,
                                              Signals<S> signals, Cursor<S>& keys, Cursor<S>& values) {
  const int n_tiles = (n_keys + S::kTileKeys - 1) / S::kTileKeys;
  typename TileRows<S>::Corrections corrections;
  await_part(signals, keys);
  rows.start_scores(ring + keys.stage * S::kStageBytes);
  rows.template await_scores<0>();
  release_part(signals, keys);
  rows.weigh(0, corrections);
  for (int tile = 1; tile < n_tiles; ++tile) {
    // Where products are awaited is where the compiler lets the use of their results begin, and it moves what has
    // nothing to do with them, as the weights just computed, behind that point. It does not move it past a loop, as the
    // one in await_part.
    await_part(signals, keys);
    rows.await_values();
    if (tile > 1) release_part(signals, values);
    rows.pack_weights();
    rows.rescale(corrections);
    rows.await_turn();
    rows.start_scores(ring + keys.stage * S::kStageBytes);
    await_part(signals, values);
    rows.start_values(ring + values.stage * S::kStageBytes);
    rows.pass_turn();
    rows.template await_scores<1>();
    release_part(signals, keys);
    rows.weigh(tile, corrections);
  }
  rows.await_values();
  if (n_tiles > 1) release_part(signals, values);
  rows.pack_weights();
  rows.rescale(corrections);
  await_part(signals, values);
  rows.start_values(ring + values.stage * S::kStageBytes);
  rows.await_values();
  release_part(signals, values);
}

template <class S>
__device__ __forceinline__ void run_warpgroups(const TileParams& p, unsigned char* shared) {
  const std::uint32_t ring = shared_address(shared);
  const Signals<S> signals{ring + S::kSignalsPlace};
  if (threadIdx.x == 0) signals.make();
  __syncthreads();
  const WorkHeader::Range range = p.work.header->items[p.phase][p.kind];
  const auto n_items = static_cast<std::uint32_t>(range.end - range.begin);
  const auto n_heads_kv = static_cast<std::uint32_t>(p.n_heads_kv), n_tickets = n_items * n_heads_kv;
  Tickets<S> tickets(signals);

  if (threadIdx.x < S::kGroupThreads) {
    give_registers<S::kCopyRegisters>();
    Cursor<S> cursor{0};
    std::uint32_t drawn = 0, ticket = 0;
    if (threadIdx.x == 0) drawn = atomicAdd(p.ticket, 1U);
    for (;;) {
      if (threadIdx.x == 0) tickets.put(drawn);
      ticket = tickets.next();
      if (ticket >= n_tickets) break;
      if (threadIdx.x == 0) drawn = atomicAdd(p.ticket, 1U);  // the next one, while this one is copied
      const ItemPlace place(ticket, n_items, n_heads_kv);
      const WorkItem& item = p.work.items[range.begin + place.index];
      if constexpr (S::kIsScaled) {
        widen_item<S>(p, item, place.kv_head, shared, signals, cursor);
      } else {
        copy_item<S>(p, item, place.kv_head, ring, signals, cursor);
      }
    }
    // Every block draws in vain once. The one that does so last leaves the counter as it was.
    if (threadIdx.x == 0 && ticket == n_tickets + gridDim.x - 1) *p.ticket = 0;
  } else {
    take_registers<S::kRowRegisters>();
    Cursor<S> keys{0}, values{1};
    WarpgroupRows<S>::first_turn();
    for (;;) {
      const std::uint32_t ticket = tickets.next();
      if (ticket >= n_tickets) break;
      const ItemPlace place(ticket, n_items, n_heads_kv);
      const WorkItem item = p.work.items[range.begin + place.index];
      WarpgroupRows<S> rows(p, item, place.kv_head, shared + S::kRingBytes);
      multiply_item<S>(rows, item.n_keys, ring, signals, keys, values);
      rows.store();
    }
  }
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1) attention_warpgroup_kernel(const __grid_constant__ TileParams p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char aligned_shared[];
  run_warpgroups<S>(p, aligned_shared);
#else
  __trap();  // never launched: find_tile_kernel looks at what the code was compiled for
#endif
}

template <class S>
TileKernel describe_warpgroup_kernel() {
  return {reinterpret_cast<const void*>(&attention_warpgroup_kernel<S>), S::kThreads, S::kSharedBytes};
}

}  // namespace banyan::kernels::cuda
