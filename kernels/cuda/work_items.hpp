// How the attention of one step is cut into work items for the CUDA kernels: plain data, built on the host once a step
// and read by every layer. Knows calls, rows and keys; no tree, no CUDA header, no arithmetic of attention.
//
// A call's queries are *packed rows*: row r and head g of a KV head's group are packed row (r - row_begin) * group + g.
// An item is a tile of packed rows of one call against a *piece* of the call's keys; the kernels run it once for each
// KV head. What an item computes of a row is a partial (output, maximum, sum). The partials of one row are numbered
// root -> leaf and stored side by side, so the merge reads them in order:
//
//     row r:  call A, piece 0 | call A, piece 1 | call B        n_partials = 3
//             slot partial_begin + 0, + 1, + 2
//
// A row with one partial needs no slot: its item writes the result. A piece of which a row sees no key (the mask rule
// of AttentionCall) makes no partial for that row, so calls without visible keys change nothing at all.
//
// Merging. Where all partials that a row has so far come from earlier launches (wider tiles are launched first) and are
// few, the next item merges them into its own state, which takes the slot of the last of them: below a root with many
// rows, a leaf's item so ends in the result. What is left is merged behind the last launch. Not when deterministic.
//
// Pieces. Otherwise: of equal lengths, as many as fill the device at least cost (work_items.cpp has the formula).
// Tiles of kind warpgroup are for such items alone, in calls of more than 64 packed rows.
// Deterministic: cut at multiples of kUnitPositions *path positions*, and nowhere else; a unit that several calls share
// is computed by a chain of items. The first begins it, each later one loads the state that its predecessor stored in
// the unit's slot and goes on with the next tile, so the arithmetic of a row is tile after tile of its path whatever
// calls it was cut into. Items of a chain stand in different *phases*, which are launched one after the other.
//
// Items of a launch (phase, tile kind) stand together, those with most keys first. One thread builds; building
// allocates only while the arrays grow.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "banyan/attention_types.hpp"
#include "kernels/cuda/work_layout.hpp"

namespace banyan::kernels::cuda {

struct WorkOptions {
  std::int64_t n_heads_q = 1, n_heads_kv = 1;
  bool deterministic = false;
  int n_sms = 132;               // multiprocessors to fill; ignored when deterministic
  bool warpgroup_tiles = false;  // the device has them (attention.hpp); ignored when deterministic
};

class WorkItems {
 public:
  // Throws Error{usage} where counts pass what the kernels index with 32 bits (2^31 / n_heads_kv items, 2^31 slots,
  // runs, packed rows of a call), naming the count.
  void build(std::span<const std::int32_t> positions, std::span<const SlotRun> runs,
             std::span<const AttentionCall> calls, const WorkOptions& options);

  std::span<const WorkItem> items() const { return items_; }
  std::span<const RowInfo> rows() const { return rows_; }
  std::span<const MergeRow> merge_rows() const { return merge_rows_; }
  const WorkHeader& header() const { return header_; }
  std::int64_t n_partials() const { return n_partials_; }  // slots for each query head
  int n_phases() const { return n_phases_; }

 private:
  struct RowState {
    std::int32_t n_partials = 0;  // so far: the last of its slots
    std::int32_t n_pieces = 0;    // that touched the row; more than n_partials where a chain or a merging item did
    std::int32_t n_slots = 0;
    std::int32_t kind = kTileKinds;  // of its tiles so far, the one launched last; not looked at when deterministic
    std::int32_t unit = -1;          // of its last partial (deterministic)
    std::int32_t phase = 0;          // of the last piece
    std::int32_t last_call = -1;
    bool may_share_tile(const RowState& o) const {
      return n_partials == o.n_partials && n_slots == o.n_slots && unit == o.unit && phase == o.phase && kind == o.kind;
    }
  };
  struct Piece {
    std::int32_t begin, end;  // of the call's keys
    std::int32_t run, run_offset;
    std::int32_t unit;
  };
  // Rows that stand alike before a call, and the keys that they see of it.
  struct Segment {
    std::int32_t row_begin, row_end;
    std::int32_t fewest_keys, most_keys;
  };
  struct PieceLengths {
    std::array<std::int64_t, kTileKinds> n_keys;
  };

  PieceLengths piece_lengths();
  std::int64_t piece_length(std::size_t kind) const;
  double makespan(std::size_t kind, std::int64_t length) const;
  // The kind of tile for n_left of the n_packed rows of a call, or of a part of it.
  TileKind kind_of(std::int64_t n_left, std::int64_t n_packed) const;
  void cut_keys(const AttentionCall& call, std::int64_t length);
  void add_call(std::int32_t index, const AttentionCall& call);
  void add_tiles(std::int32_t index, const AttentionCall& call, const Segment& segment);
  void advance_rows(std::int32_t index, const AttentionCall& call, const Segment& segment);
  std::int32_t n_visible(const AttentionCall& call, std::int32_t row) const;
  std::int32_t most_visible(const AttentionCall& call, std::int32_t row_begin, std::int32_t row_end) const;
  bool continues(const RowState& state) const { return options_.deterministic && state.unit == pieces_.front().unit; }
  // How many partials of these rows their item merges into its own.
  std::int32_t n_merged(const RowState& state, const Segment& segment, std::int32_t n_packed) const;
  void finish_rows();
  void sort_items();

  WorkOptions options_;
  std::int32_t group_ = 1;
  std::span<const std::int32_t> positions_;
  std::span<const SlotRun> runs_;
  std::span<const AttentionCall> calls_;

  std::vector<WorkItem> unsorted_, items_;
  std::vector<std::int32_t> keys_of_sort_;  // launch and length of each unsorted item
  std::vector<std::int32_t> bucket_;
  // Of the calls that each kind of tile has most of.
  struct KindLoad {
    struct LongCall {  // long enough to be cut
      std::int64_t n_tiles, n_keys;
    };
    std::vector<LongCall> long_calls;
    std::int64_t longest = 0;        // keys of a call
    double n_items = 0, n_keys = 0;  // over all heads, of the calls that are not long
    double n_long_keys = 0;          // over all heads
  };
  std::array<KindLoad, kTileKinds> loads_;
  std::vector<Piece> pieces_;
  std::vector<RowState> states_;
  std::vector<RowInfo> rows_;
  std::vector<MergeRow> merge_rows_;
  WorkHeader header_;
  std::int64_t n_partials_ = 0;
  int n_phases_ = 0;
};

// The kind of tile for n packed rows: the smallest that holds them, or the widest. Bits of a row are the same in each.
constexpr TileKind tile_kind(std::int64_t n_packed) {
  return n_packed <= kTileRows[0] ? TileKind::narrow : n_packed <= kTileRows[1] ? TileKind::middle : TileKind::wide;
}

}  // namespace banyan::kernels::cuda
