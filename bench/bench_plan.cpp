// How long planning takes: a step's plan built from nothing, and the plan of the next step, in which every leaf, or one
// leaf alone, is one token longer. The tree exists already and has grown outside the clock. Medians, the 90th
// percentile in brackets; heap allocations are those of all measured calls together, after warm-up.
//
//   bench_plan FILE [TREE] [--out NAME.json]      FILE: trees.json or ragged.json
//
// "same runs" are steps whose new slots go on where each leaf's run ends; in a "new runs" step some leaf begins another
// block of slots, which the pool put elsewhere, and update() builds.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "banyan/tree_file.hpp"
#include "count_allocations.hpp"
#include "result_file.hpp"

namespace {

using namespace banyan;

constexpr int kWarm = 40;
constexpr int kRounds = 320;

class Timing {
 public:
  void add(double us, std::int64_t n) {
    us_.push_back(us);
    n_allocations_ += n;
  }
  double at(double share) const {
    if (us_.empty()) return std::nan("");  // null in the file
    std::vector<double> sorted = us_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
  }
  std::string text() const {
    char out[64];
    std::snprintf(out, sizeof out, "%8.2f [%7.2f]", at(0.5), at(0.9));
    return us_.empty() ? "       -          " : out;
  }
  std::int64_t n_allocations() const { return n_allocations_; }

 private:
  std::vector<double> us_;
  std::int64_t n_allocations_ = 0;
};

struct Measured {
  double us = 0;
  std::int64_t n_allocations = 0;
};
template <typename F>
Measured measure(F&& f) {
  const std::int64_t before = n_allocations;
  const auto begin = std::chrono::steady_clock::now();
  f();
  const auto end = std::chrono::steady_clock::now();
  return {std::chrono::duration<double, std::micro>(end - begin).count(), n_allocations - before};
}

// The tree of a file, with room in the pool for n_more tokens in each leaf.
struct GrowingTree {
  GrowingTree(const BenchTree& from, std::int64_t n_more)
      : pool(from.pool->n_slots() + static_cast<std::int64_t>(from.spans.size()) * (n_more + 2 * kKvBlock)),
        tree(&pool),
        spans(from.spans) {
    for (NodeId node{0}; node.value < from.tree->id_bound(); ++node.value) {
      const NodeId parent = from.tree->parent(node);
      const NodeId copy = parent.valid() ? tree.fork(parent, from.tree->attach(node)) : tree.add_root({});
      tree.append(copy, from.tree->tokens(node));
      tree.allocate_kv(copy, tree.n_tokens(copy));
      tree.commit_kv(copy, from.tree->n_kv(node));
    }
    for (const StepSpan& span : spans) tree.reserve(span.node, n_more);
  }
  // The step is done and each of its leaves has one more token.
  void grow(std::vector<StepSpan>& step) {
    for (StepSpan& span : step) {
      tree.commit_kv(span.node, span.end);
      tree.append(span.node, TokenId{1});
      tree.allocate_kv(span.node, span.end + 1);
      span = {span.node, span.end, span.end + 1, 1, true};
    }
  }
  KvPool pool;
  SequenceTree tree;
  std::vector<StepSpan> spans;
};

void run(const BenchTree& from, bool deterministic, bench::ResultFile& file) {
  GrowingTree growing(from, 2 * (kWarm + kRounds) + 1);
  Planner planner({.deterministic = deterministic});
  Plan plan;
  Timing build, same_runs, new_runs, one_leaf;
  for (int i = 0; i < kWarm + kRounds; ++i) {
    const Measured m = measure([&] { planner.build(growing.tree, growing.spans, plan); });
    if (i >= kWarm) build.add(m.us, m.n_allocations);
  }
  const auto n_rows = plan.n_rows();
  const auto n_calls = plan.calls.size();
  std::vector<StepSpan> one{growing.spans.front()};
  for (std::vector<StepSpan>* step : {&growing.spans, &one}) {
    for (int i = 0; i < kWarm + kRounds; ++i) {
      growing.grow(*step);
      const std::size_t n_runs = plan.runs.size();
      const Measured m = measure([&] { planner.update(growing.tree, *step, plan); });
      if (i < kWarm) continue;
      const bool is_same = plan.runs.size() == n_runs;
      if (step == &one && is_same) one_leaf.add(m.us, m.n_allocations);
      if (step != &one) (is_same ? same_runs : new_runs).add(m.us, m.n_allocations);
    }
    one = {growing.spans.front()};
  }
  const std::int64_t n_heap =
      build.n_allocations() + same_runs.n_allocations() + new_runs.n_allocations() + one_leaf.n_allocations();
  std::printf(
      "%-72s %5lld %5lld %5zu %s %s %s %s %lld\n", (from.name + (deterministic ? " (deterministic)" : "")).c_str(),
      static_cast<long long>(growing.tree.n_nodes()), static_cast<long long>(n_rows), n_calls, build.text().c_str(),
      same_runs.text().c_str(), new_runs.text().c_str(), one_leaf.text().c_str(), static_cast<long long>(n_heap));
  file.add_row({{"tree", from.name},
                {"deterministic", deterministic},
                {"n_nodes", growing.tree.n_nodes()},
                {"n_rows", n_rows},
                {"n_calls", n_calls},
                {"build_us", build.at(0.5)},
                {"build_p90_us", build.at(0.9)},
                {"update_us", same_runs.at(0.5)},
                {"update_p90_us", same_runs.at(0.9)},
                {"update_new_runs_us", new_runs.at(0.5)},
                {"update_one_leaf_us", one_leaf.at(0.5)},
                {"n_allocations", n_heap}});
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("How long planning takes");
  std::string path, tree, out;
  app.add_option("file", path, "Trees: trees.json or ragged.json")->required();
  app.add_option("tree", tree, "Only the tree of this name");
  app.add_option("--out", out, "Result file, NAME.json");
  CLI11_PARSE(app, argc, argv);
  bench::ResultFile file("plan", argc, argv);
  std::printf("%-72s %5s %5s %5s %18s %18s %18s %18s %s\n", "tree; times in us", "nodes", "rows", "calls", "build",
              "update, same runs", "update, new runs", "update, one leaf", "allocations");
  const std::vector<std::string> names = tree.empty() ? bench_tree_names(path) : std::vector<std::string>{tree};
  for (const std::string& name : names) {
    const BenchTree from = load_bench_tree(path, name);
    for (const bool deterministic : {false, true}) run(from, deterministic, file);
  }
  if (!out.empty()) file.write(out);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_plan: %s\n", e.what());
  return 1;
}
