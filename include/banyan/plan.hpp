// The plan of one step, as plain data, and the pure function that builds it. Layer 3: knows the tree, no kernel.
//
// Rows are numbered by a depth-first walk, so all rows below a piece of a node are one contiguous range and each
// attention call is a slice of Q. Within a node: its own rows by position, then its children by (attach descending, id
// ascending). Then the rows that see the piece [a, b) of a run -- its own rows from position a on, and everything
// attached behind a -- are contiguous too.
//
//     node run   0 ........ 20 ........ 34       calls: [0,20)  rows of run, B, A
//                           |A          |B              [20,34) rows of run (from 20 on), B
//
// Calls stand in depth-first order, so a row's partials are merged root -> leaf in array order. Pieces that are seen by
// the same rows are one call. In deterministic plans calls are cut at multiples of kTilePositions path positions; a
// tile that straddles a fork is computed again for the rows of each side, from the segments of both.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "banyan/attention_types.hpp"
#include "banyan/tree.hpp"

namespace banyan {

// What a step computes of one node: its tokens [begin, end), each a row. Sorted by (node id, begin), disjoint.
struct StepSpan {
  NodeId node;
  std::int64_t begin = 0, end = 0;
  std::int64_t n_logits = 0;  // logits are wanted for the last n_logits of these rows
  bool write_kv = true;       // false: the KV is stored already and only the query is wanted (an exact prefix hit)
  friend bool operator==(const StepSpan&, const StepSpan&) = default;
};

struct PlanOptions {
  bool deterministic = false;
  // How attention shares: tree (every fork), one_level (roots only), unshared (each row reads its whole path alone),
  // decomposed (cut like `tree`, but each row is a call by itself). The last three are what benches compare with.
  enum class Sharing : std::uint8_t { tree, one_level, unshared, decomposed } sharing = Sharing::tree;
  friend bool operator==(const PlanOptions&, const PlanOptions&) = default;
};

struct Plan {
  // rows, [n_rows] each
  std::vector<TokenId> tokens;          // drawn_token(i): what query i of the step before draws
  std::vector<std::int32_t> positions;  // path position: RoPE, and the mask rule of AttentionCall
  std::vector<NodeId> nodes;
  std::vector<std::int64_t> kv_slots;  // slot that receives the row's K and V; -1: write_kv was false
  // attention
  std::vector<SlotRun> runs;
  std::vector<AttentionCall> calls;
  // rows whose logits are wanted, ascending: index into rows
  std::vector<std::int32_t> logit_rows;
  // of span i of the input, its first row (spans and rows are in different orders)
  std::vector<std::int32_t> span_rows;
  std::uint64_t epoch = 0;

  std::int64_t n_rows() const { return static_cast<std::int64_t>(tokens.size()); }
  friend bool operator==(const Plan&, const Plan&) = default;
};

// Builds plans. Holds scratch memory only, so that a step allocates nothing after warm-up: build() is a pure function
// of its arguments. The plan of a tree without a KV pool has no addresses: every kv_slots entry is -1, and calls have
// keys and rows, but no runs. Otherwise every token on a row's path up to the row itself needs its KV slot: throws
// Error{usage} naming the node where allocate_kv was not called, Error{stale_handle | usage} naming a span that is
// wrong. Rows of ancestors that lack KV must be among the spans, or have been computed before: asserted. A Planner is
// used by one thread at a time.
class Planner {
 public:
  explicit Planner(PlanOptions options = {});
  ~Planner();
  Planner(Planner&&) noexcept;

  void build(const SequenceTree& tree, std::span<const StepSpan> spans, Plan& plan);

  // Makes `plan` what build() would, byte for byte. `plan` must be the last plan that this planner made. Takes the
  // short way when the tree's epoch is unchanged, each span is the one-token continuation of its predecessor, at the
  // end of its node, and its slot is the next one of the same run; otherwise it builds.
  void update(const SequenceTree& tree, std::span<const StepSpan> spans, Plan& plan);

  const PlanOptions& options() const { return options_; }

 private:
  PlanOptions options_;
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
};

// --- what a plan costs ---------------------------------------------------------------------------------------------

struct AttentionShape {
  std::int64_t n_heads_q = 0, n_heads_kv = 0, head_dim = 0;
  std::int64_t kv_bytes = 2;  // bytes of one stored K or V element
};

// One layer's attention. Bytes: K and V of each call once (as far as its rows see them), Q read and O written once per
// row, and for each call beyond a row's first one partial (O in f32 and lse) written and read. Q and O are f32. FLOPs:
// 4 * head_dim * n_heads_q per visible (row, key).
struct PlanCost {
  double bytes = 0;
  double flops = 0;
  std::int64_t n_calls = 0;
};
PlanCost cost(const Plan& plan, const AttentionShape& shape);

// Constants measured by `banyan calibrate`; time = n_calls * call_us + max(bytes / bytes_per_us, flops / flops_per_us)
// per call, summed. Small: the planner's predictor, not a simulator.
struct CostModel {
  double call_us = 0, bytes_per_us = 0, flops_per_us = 0;
  std::string machine;  // what they were measured on
  friend bool operator==(const CostModel&, const CostModel&) = default;
};
double predict_us(const Plan& plan, const AttentionShape& shape, const CostModel& model);

// JSON of the four fields. Throws Error{bad_file} naming the file and the field: absent, not a number, or not positive
// (call_us may be 0).
CostModel load_cost_model(const std::string& path);
void save_cost_model(const CostModel& model, const std::string& path);

// Human-readable listing: rows, calls with their runs and ranges, and the counts of both. One line each.
std::string to_text(const Plan& plan);

}  // namespace banyan
