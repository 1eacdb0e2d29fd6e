// The arrays that say what attention has to do in a step, as they lie in host and in device memory. work_items.hpp says
// what they mean and builds them. Plain data with no header of weight, as every tile kernel's source reads this.
#pragma once

#include <cstdint>

#include "banyan/attention_types.hpp"

namespace banyan::kernels::cuda {

// 2,048 positions. A unit ends in one partial per row and head: 1 KiB written and read at 128 dims. The products of 128
// rows with 2,048 keys take some twenty times as long as that at 400 TFLOP/s.
constexpr std::int64_t kUnitPositions = 32 * kTilePositions;
// The longest chain: every call ends at a multiple of kTilePositions.
constexpr int kMaxPhases = static_cast<int>(kUnitPositions / kTilePositions);

// Tiles of 16 packed rows (one warp by itself), 64 and 128 (warps that share the keys they read); and 128 again, on
// Hopper's own matrix instructions, whose sums are not those of the others.
enum class TileKind : std::uint8_t { narrow, middle, wide, warpgroup };
constexpr int kTileKinds = 4;
constexpr std::int64_t kTileRows[kTileKinds] = {16, 64, 128, 128};

struct alignas(16) WorkItem {
  std::int32_t run = 0;           // of the step's runs: the one that has the piece's first key
  std::int32_t run_offset = 0;    // of that key in the run
  std::int32_t kv_position = 0;   // of that key in the path
  std::int32_t n_keys = 0;        // that some row of the tile sees; > 0
  std::int32_t row_begin = 0;     // first row of the packed numbering
  std::int32_t packed_begin = 0;  // packed rows [packed_begin, packed_begin + n_packed) are the tile
  std::int32_t n_packed = 0;
  std::int32_t ordinal = 0;    // of its partial's slot among those of each of its rows
  std::int32_t call = 0;       // index of the call
  std::int32_t continues = 0;  // 1: the slot holds the state of the unit's keys so far
  std::int32_t n_merged = 0;   // partials, the last in the item's own slot, that are merged into its state
};

struct alignas(16) RowInfo {
  std::int32_t position = 0;       // in the path
  std::int32_t partial_begin = 0;  // first slot
  std::int32_t n_partials = 0;     // at the end
  std::int32_t last_call = -1;     // the call after which the row is complete
};

// A row of which no partial is left at the end, or several.
struct MergeRow {
  std::int32_t row = 0;
  std::int32_t partial_begin = 0;  // slot of the first that is left
  std::int32_t n_partials = 0;
};

// Where the items of each launch stand; one for all KV heads. Goes to the device as it is.
struct WorkHeader {
  struct Range {
    std::int32_t begin = 0, end = 0;
  };
  Range items[kMaxPhases][kTileKinds];
  std::int32_t n_merge_rows = 0;
};

// The arrays of WorkItems on the device.
struct DeviceWork {
  const WorkHeader* header = nullptr;
  const WorkItem* items = nullptr;
  const RowInfo* rows = nullptr;         // [n_rows]
  const MergeRow* merge_rows = nullptr;  // [header->n_merge_rows]
  const SlotRun* runs = nullptr;
};

}  // namespace banyan::kernels::cuda
