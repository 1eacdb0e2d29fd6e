// The planner's oracle: what a plan must give each row, found by walking the tree from the row's node to its root
// through the public reading calls. Knows nothing of how plans are built.
#pragma once

#include <algorithm>
#include <doctest/doctest.h>
#include <map>
#include <set>
#include <vector>

#include "banyan/plan.hpp"
#include "plan/keys_read.hpp"

namespace banyan::test {

// Slot runs in path order; runs that touch are one.
inline void push_run(std::vector<SlotRun>& runs, SlotRun run) {
  if (run.n == 0) return;
  if (!runs.empty() && runs.back().first + runs.back().n == run.first) {
    runs.back().n += run.n;
  } else {
    runs.push_back(run);
  }
}

// The first n slots of `from`, at the end of `runs`.
template <typename Runs>
void push_first(std::vector<SlotRun>& runs, const Runs& from, std::int64_t n) {
  for (const SlotRun& run : from) {
    push_run(runs, {run.first, std::min(run.n, n)});
    n -= std::min(run.n, n);
  }
  REQUIRE(n == 0);
}

// Slots of path positions [0, end) of the path that ends in `node`.
inline std::vector<SlotRun> path_slots(const SequenceTree& tree, NodeId node, std::int64_t end) {
  std::vector<std::pair<NodeId, std::int64_t>> pieces;  // the node's first n tokens
  for (; node.valid(); node = tree.parent(node)) {
    pieces.emplace_back(node, std::max<std::int64_t>(end - tree.begin_position(node), 0));
    end = std::min(end, tree.begin_position(node));
  }
  std::vector<SlotRun> runs;
  for (auto it = pieces.rbegin(); it != pieces.rend(); ++it) push_first(runs, tree.slots(it->first), it->second);
  return runs;
}

inline std::int64_t n_visible(const Plan& plan, const AttentionCall& call, std::int64_t row) {
  const std::int64_t position = plan.positions[static_cast<std::size_t>(row)];
  return std::clamp<std::int64_t>(position + 1 - call.kv_position, 0, call.n_keys);
}

inline void check_rows(const SequenceTree& tree, const std::vector<StepSpan>& spans, const Plan& plan) {
  const auto n_rows = static_cast<std::size_t>(plan.n_rows());
  REQUIRE(plan.positions.size() == n_rows);
  REQUIRE(plan.nodes.size() == n_rows);
  REQUIRE(plan.kv_slots.size() == n_rows);
  REQUIRE(plan.span_rows.size() == spans.size());
  REQUIRE(plan.epoch == tree.epoch());
  std::vector<bool> seen(n_rows, false);
  std::set<std::int64_t> written;
  std::vector<std::int32_t> logit_rows;
  for (std::size_t s = 0; s < spans.size(); ++s) {
    const StepSpan& span = spans[s];
    for (std::int64_t i = span.begin; i < span.end; ++i) {
      const auto row = static_cast<std::size_t>(plan.span_rows[s] + i - span.begin);
      REQUIRE(row < n_rows);
      REQUIRE(!seen[row]);
      seen[row] = true;
      REQUIRE(plan.nodes[row] == span.node);
      REQUIRE(plan.tokens[row] == tree.tokens(span.node)[static_cast<std::size_t>(i)]);
      REQUIRE(plan.positions[row] == tree.begin_position(span.node) + i);
      REQUIRE(plan.kv_slots[row] == (span.write_kv ? tree.slot_of(span.node, i) : -1));
      if (span.write_kv) REQUIRE(written.insert(plan.kv_slots[row]).second);
      if (i >= span.end - span.n_logits) logit_rows.push_back(static_cast<std::int32_t>(row));
    }
  }
  REQUIRE(std::find(seen.begin(), seen.end(), false) == seen.end());
  std::sort(logit_rows.begin(), logit_rows.end());
  REQUIRE(plan.logit_rows == logit_rows);
}

// The rows below every node are one range, and rows of a node stand by position before those of its children.
inline void check_depth_first(const SequenceTree& tree, const Plan& plan) {
  struct Range {
    std::int64_t first, last, n;
  };
  std::map<NodeId, Range> below;
  for (std::int64_t row = 0; row < plan.n_rows(); ++row) {
    const NodeId own = plan.nodes[static_cast<std::size_t>(row)];
    for (NodeId node = own; node.valid(); node = tree.parent(node)) {
      const auto [it, is_new] = below.try_emplace(node, Range{row, row, 0});
      it->second.last = row;
      ++it->second.n;
    }
    if (row > 0 && plan.nodes[static_cast<std::size_t>(row) - 1] == own) {
      REQUIRE(plan.positions[static_cast<std::size_t>(row) - 1] < plan.positions[static_cast<std::size_t>(row)]);
    }
  }
  for (const auto& [node, range] : below) {
    REQUIRE(range.last - range.first + 1 == range.n);
    std::int64_t row = range.first;
    while (row <= range.last && plan.nodes[static_cast<std::size_t>(row)] == node) ++row;
    for (; row <= range.last; ++row) REQUIRE(plan.nodes[static_cast<std::size_t>(row)] != node);
  }
  // Siblings by (attach descending, id ascending).
  std::map<NodeId, std::vector<NodeId>> siblings;
  for (const auto& [node, range] : below) siblings[tree.parent(node)].push_back(node);
  for (auto& [parent, nodes] : siblings) {
    std::sort(nodes.begin(), nodes.end(), [&](NodeId a, NodeId b) {
      return tree.attach(a) != tree.attach(b) ? tree.attach(a) > tree.attach(b) : a < b;
    });
    for (std::size_t i = 1; i < nodes.size(); ++i) REQUIRE(below[nodes[i - 1]].last < below[nodes[i]].first);
  }
}

// Each row's calls, in array order, give it exactly the slots of its path positions 0 ... position, in order.
inline void check_calls(const SequenceTree& tree, const Plan& plan, const PlanOptions& options) {
  std::vector<std::vector<std::size_t>> calls_of(static_cast<std::size_t>(plan.n_rows()));
  for (std::size_t c = 0; c < plan.calls.size(); ++c) {
    const AttentionCall& call = plan.calls[c];
    REQUIRE(call.run_begin < call.run_end);
    REQUIRE(call.run_end <= static_cast<std::int64_t>(plan.runs.size()));
    REQUIRE(call.row_begin < call.row_end);
    REQUIRE(call.row_end <= plan.n_rows());
    std::int64_t n_keys = 0;
    for (std::int64_t r = call.run_begin; r < call.run_end; ++r) n_keys += plan.runs[static_cast<std::size_t>(r)].n;
    REQUIRE(call.n_keys == n_keys);
    if (options.deterministic) REQUIRE(call.kv_position % kTilePositions == 0);
    for (std::int64_t r = call.row_begin; r < call.row_end; ++r) calls_of[static_cast<std::size_t>(r)].push_back(c);
  }
  for (std::int64_t row = 0; row < plan.n_rows(); ++row) {
    const std::int64_t end = plan.positions[static_cast<std::size_t>(row)] + 1;
    std::int64_t covered = 0;
    std::vector<SlotRun> seen;
    const auto& own = calls_of[static_cast<std::size_t>(row)];
    for (std::size_t i = 0; i < own.size(); ++i) {
      const AttentionCall& call = plan.calls[own[i]];
      const std::int64_t n = n_visible(plan, call, row);
      REQUIRE(call.kv_position == covered);
      REQUIRE(n > 0);
      covered += n;
      push_first(seen,
                 std::span(plan.runs)
                     .subspan(static_cast<std::size_t>(call.run_begin))
                     .first(static_cast<std::size_t>(call.run_end - call.run_begin)),
                 n);
      if (options.deterministic) REQUIRE((covered % kTilePositions == 0 || covered == end));
      if (i > 0 && options.sharing == PlanOptions::Sharing::tree) {
        const AttentionCall& before = plan.calls[own[i - 1]];
        // Pieces that the same rows see are one call.
        REQUIRE((before.row_begin != call.row_begin || before.row_end != call.row_end));
      }
    }
    REQUIRE(covered == end);
    REQUIRE(seen == path_slots(tree, plan.nodes[static_cast<std::size_t>(row)], end));
  }
}

// With full sharing each stored key is read by one call only.
inline void check_read_once(const Plan& plan) {
  std::vector<SlotRun> runs = plan.runs;
  std::sort(runs.begin(), runs.end(), [](const SlotRun& a, const SlotRun& b) { return a.first < b.first; });
  for (std::size_t i = 1; i < runs.size(); ++i) REQUIRE(runs[i - 1].first + runs[i - 1].n <= runs[i].first);
}

// What the plan reads, and what its sequences would read alone: a row that another row has on its path ends none.
inline void check_keys_read(const SequenceTree& tree, const Plan& plan) {
  std::map<NodeId, std::int64_t> n_seen;  // leading tokens of a node that stand in front of some row on its path
  for (std::size_t row = 0; row < plan.nodes.size(); ++row) {
    NodeId node = plan.nodes[row];
    for (std::int64_t n = plan.positions[row] - tree.begin_position(node); node.valid(); node = tree.parent(node)) {
      n_seen[node] = std::max(n_seen[node], n);
      n = tree.attach(node);
    }
  }
  std::int64_t shared = 0, unshared = 0;
  for (const AttentionCall& call : plan.calls) shared += call.n_keys;
  for (std::size_t row = 0; row < plan.nodes.size(); ++row) {
    const bool ends = plan.positions[row] - tree.begin_position(plan.nodes[row]) >= n_seen[plan.nodes[row]];
    if (ends) unshared += plan.positions[row] + 1;
  }
  const KeysRead keys = keys_read(tree, plan);
  REQUIRE(keys.shared == shared);
  REQUIRE(keys.unshared == unshared);
}

inline void check_plan(const SequenceTree& tree, const std::vector<StepSpan>& spans, const Plan& plan,
                       const PlanOptions& options) {
  check_rows(tree, spans, plan);
  check_depth_first(tree, plan);
  check_calls(tree, plan, options);
  check_keys_read(tree, plan);
  const bool shares_all =
      options.sharing == PlanOptions::Sharing::tree || options.sharing == PlanOptions::Sharing::decomposed;
  if (shares_all && !options.deterministic) check_read_once(plan);
}

inline std::vector<PlanOptions> all_options() {
  using enum PlanOptions::Sharing;
  std::vector<PlanOptions> out;
  for (const bool deterministic : {false, true}) {
    for (const auto sharing : {tree, one_level, unshared, decomposed}) out.push_back({deterministic, sharing});
  }
  return out;
}

}  // namespace banyan::test
