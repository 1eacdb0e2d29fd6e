// The words that the planner and the attention kernels share: slot runs and attention calls, plain data. Layer 0, so
// that kernels know neither trees nor plans, and plans know no kernel.
#pragma once

#include <cstdint>

namespace banyan {

// Token slots [first, first + n) of a KV pool, holding consecutive tokens of one path.
struct SlotRun {
  std::int64_t first = 0;
  std::int64_t n = 0;
  friend bool operator==(const SlotRun&, const SlotRun&) = default;
};

// One batched attention call: the queries of rows [row_begin, row_end) against n_keys keys.
//
//   keys:  the slots of runs [run_begin, run_end) of the plan's run list, in path order; the first key stands at path
//          position kv_position, the next at kv_position + 1, and so on.
//   mask:  row r sees the first clamp(position[r] + 1 - kv_position, 0, n_keys) keys. That one rule covers a dense call
//          over an ancestor (every row sees all) and a causal one inside a node's own new tokens.
//
// The calls of one row, in array order, cover its path root -> leaf exactly once. Partials are merged in that order.
struct AttentionCall {
  std::int64_t run_begin = 0, run_end = 0;
  std::int64_t n_keys = 0;
  std::int64_t kv_position = 0;
  std::int64_t row_begin = 0, row_end = 0;
  friend bool operator==(const AttentionCall&, const AttentionCall&) = default;
};

// Deterministic plans cut calls at multiples of this many path positions, and kernels walk every call's keys in tiles
// that end at multiples of it, so the arithmetic of a row depends on its path alone. 64 keys x 128 dims of f32 K and V
// are 64 KiB: a tile and its queries stay in a 1 MiB L2.
constexpr std::int64_t kTilePositions = 64;

// Elements of the largest head that kernels take.
constexpr std::int64_t kMaxHeadDim = 512;

}  // namespace banyan
