// A step's planning allocates nothing after warm-up. An executable of its own, as all of its allocations are counted.
#include <doctest/doctest.h>
#include <vector>

#include "banyan/plan.hpp"
#include "bench/count_allocations.hpp"

using namespace banyan;

TEST_CASE("Planner and tree: decoding steps allocate nothing after warm-up, over new blocks of slots too") {
  using enum PlanOptions::Sharing;
  for (const auto sharing : {tree, one_level, unshared, decomposed}) {
    for (const bool deterministic : {false, true}) {
      KvPool pool(64 * 500 + 2000);
      SequenceTree forest(&pool);
      const std::vector<TokenId> prompt(300, 1);
      const NodeId root = forest.add_root(prompt);
      REQUIRE(forest.allocate_kv(root, 300));
      forest.commit_kv(root, 300);
      std::vector<StepSpan> spans;
      for (int i = 0; i < 64; ++i) {
        const NodeId leaf = forest.fork(root, 300 - i % 7);
        forest.reserve(leaf, 400);
        forest.append(leaf, 5);
        REQUIRE(forest.allocate_kv(leaf, 1));
        spans.push_back({leaf, 0, 1, 1, true});
      }
      Planner planner({.deterministic = deterministic, .sharing = sharing});
      Plan updated, built;
      bool same = true;
      std::int64_t before = 0;
      for (int step = 0; step < 300; ++step) {
        if (step == 20) before = n_allocations;
        planner.update(forest, spans, updated);
        for (StepSpan& span : spans) {
          forest.commit_kv(span.node, span.end);
          forest.append(span.node, TokenId{step});
          same = forest.allocate_kv(span.node, span.end + 1) && same;
          span = {span.node, span.end, span.end + 1, 1, true};
        }
      }
      CHECK(n_allocations == before);
      CHECK(same);
      planner.build(forest, spans, built);
      before = n_allocations;
      for (int i = 0; i < 5; ++i) planner.build(forest, spans, built);
      CHECK(n_allocations == before);
    }
  }
}
