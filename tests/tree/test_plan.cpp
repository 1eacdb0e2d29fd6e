#include <doctest/doctest.h>
#include <random>
#include <vector>

#include "banyan/error.hpp"
#include "banyan/plan.hpp"
#include "tree/plan_check.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

using Tokens = std::vector<TokenId>;

// A tree whose steps are played: tokens come, get KV slots, are planned and committed.
struct Stage {
  explicit Stage(std::int64_t n_slots = 20'000) : pool(n_slots), tree(&pool) {}

  NodeId root(std::int64_t n) { return tree.add_root(some(n)); }
  NodeId child(NodeId node, std::int64_t pos, std::int64_t n) {
    const NodeId c = tree.fork(node, pos);
    tree.append(c, some(n));
    return c;
  }
  void store_all() {
    for (const StepSpan& span : gather()) tree.commit_kv(span.node, span.end);
  }
  // Every token without KV is a row, and has a slot afterwards.
  std::vector<StepSpan> gather() {
    std::vector<StepSpan> spans;
    for (NodeId node{0}; node.value < tree.id_bound(); ++node.value) {
      if (!tree.alive(node) || tree.n_kv(node) == tree.n_tokens(node)) continue;
      REQUIRE(tree.allocate_kv(node, tree.n_tokens(node)));
      spans.push_back({node, tree.n_kv(node), tree.n_tokens(node), 1, true});
    }
    return spans;
  }
  Tokens some(std::int64_t n) {
    Tokens t(static_cast<std::size_t>(n));
    for (TokenId& x : t) x = next_token++;
    return t;
  }

  KvPool pool;
  SequenceTree tree;
  TokenId next_token = 100;
};

Plan planned(const SequenceTree& tree, const std::vector<StepSpan>& spans, PlanOptions options = {}) {
  Planner planner(options);
  Plan plan;
  planner.build(tree, spans, plan);
  check_plan(tree, spans, plan, options);
  return plan;
}

struct Call {
  std::int64_t kv_begin, kv_end, row_begin, row_end;
  friend bool operator==(const Call&, const Call&) = default;
};
std::vector<Call> calls_of(const Plan& plan) {
  std::vector<Call> out;
  for (const AttentionCall& c : plan.calls) {
    out.push_back({c.kv_position, c.kv_position + c.n_keys, c.row_begin, c.row_end});
  }
  return out;
}

// A random forest, part of its KV stored (each node's ancestors' visible KV is stored or in the step).
struct RandomStage : Stage {
  explicit RandomStage(unsigned seed) : Stage(400'000), rng(seed) {}
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(n)); }
  NodeId pick() {
    for (;;) {
      const NodeId node{below(tree.id_bound())};
      if (tree.alive(node)) return node;
    }
  }
  void grow_some(int n_nodes) {
    for (int i = 0; i < n_nodes; ++i) {
      const std::int64_t n = below(4) == 0 ? below(200) : below(4);
      if (tree.n_nodes() == 0 || below(12) == 0) {
        root(n);
      } else {
        const NodeId parent = pick();
        const std::int64_t end = tree.n_tokens(parent);
        child(parent, below(3) == 0 ? below(end + 1) : end, n);
      }
    }
  }
  // Asks again for some tokens that are stored: rows that write nothing, anywhere in a node.
  void add_replays(std::vector<StepSpan>& spans, int n) {
    for (int i = 0; i < n; ++i) {
      const NodeId node = pick();
      if (tree.n_kv(node) == 0) continue;
      const std::int64_t begin = below(tree.n_kv(node));
      const std::int64_t end = begin + 1 + below(std::min<std::int64_t>(3, tree.n_kv(node) - begin));
      const auto clashes = [&](const StepSpan& s) { return s.node == node && s.begin < end && begin < s.end; };
      if (std::any_of(spans.begin(), spans.end(), clashes)) continue;
      spans.push_back({node, begin, end, below(end - begin + 1), false});
    }
    std::sort(spans.begin(), spans.end(), [](const StepSpan& a, const StepSpan& b) {
      return a.node != b.node ? a.node < b.node : a.begin < b.begin;
    });
  }
  std::mt19937 rng;
};

}  // namespace

TEST_CASE("Planner: the drawing of plan.hpp: a run forked at 20 and 34") {
  Stage s;
  const NodeId run = s.root(35);
  const NodeId a = s.child(run, 20, 1);
  const NodeId b = s.child(run, 34, 1);
  s.tree.allocate_kv(run, 35);
  s.tree.commit_kv(run, 34);
  const Plan plan = planned(s.tree, s.gather());
  CHECK(plan.nodes == std::vector<NodeId>{run, b, a});
  CHECK(plan.positions == std::vector<std::int32_t>{34, 34, 20});
  CHECK(calls_of(plan) ==
        std::vector<Call>{{0, 20, 0, 3}, {20, 34, 0, 2}, {34, 35, 0, 1}, {34, 35, 1, 2}, {20, 21, 2, 3}});
  CHECK(plan.span_rows == std::vector<std::int32_t>{0, 2, 1});
  CHECK(plan.logit_rows == std::vector<std::int32_t>{0, 1, 2});
}

TEST_CASE("Planner: a chain of nodes is one call; a fork ends it") {
  Stage s;
  NodeId node = s.root(10);
  for (int i = 0; i < 30; ++i) node = s.child(node, s.tree.n_tokens(node), i % 3);
  s.store_all();
  const NodeId x = s.child(node, s.tree.n_tokens(node), 1);
  const Plan alone = planned(s.tree, s.gather());
  CHECK(calls_of(alone) == std::vector<Call>{{0, 41, 0, 1}});
  const NodeId y = s.child(node, s.tree.n_tokens(node), 1);
  CHECK(calls_of(planned(s.tree, s.gather())) == std::vector<Call>{{0, 40, 0, 2}, {40, 41, 0, 1}, {40, 41, 1, 2}});
  // Deterministic: the tile that straddles the fork is read by each side.
  CHECK(calls_of(planned(s.tree, s.gather(), {.deterministic = true})) ==
        std::vector<Call>{{0, 41, 0, 1}, {0, 41, 1, 2}});
  s.tree.append(x, s.some(50));
  s.tree.append(y, s.some(30));
  s.store_all();
  s.child(x, 51, 1);
  s.child(x, 45, 1);
  s.child(y, 31, 1);
  CHECK(calls_of(planned(s.tree, s.gather(), {.deterministic = true})) ==
        std::vector<Call>{{0, 64, 0, 2}, {64, 92, 0, 1}, {64, 86, 1, 2}, {0, 72, 2, 3}});
}

TEST_CASE("Planner: a cut inside the tile where a chain ends takes keys of several nodes down") {
  Stage s;
  const NodeId a = s.root(66);
  const NodeId b = s.child(a, 66, 4);
  s.store_all();
  s.child(b, 4, 1);
  s.child(b, 1, 1);
  const auto spans = s.gather();
  CHECK(calls_of(planned(s.tree, spans, {.deterministic = true})) ==
        std::vector<Call>{{0, 64, 0, 2}, {64, 71, 0, 1}, {64, 68, 1, 2}});
  CHECK(calls_of(planned(s.tree, spans)) == std::vector<Call>{{0, 67, 0, 2}, {67, 71, 0, 1}, {67, 68, 1, 2}});
}

TEST_CASE("Planner: modes of sharing that benches compare with") {
  using enum PlanOptions::Sharing;
  Stage s;
  const NodeId root = s.root(100);
  const NodeId mid = s.child(root, 100, 20);
  s.store_all();
  s.child(mid, 20, 2);
  s.child(mid, 20, 1);
  const auto spans = s.gather();
  CHECK(calls_of(planned(s.tree, spans, {false, PlanOptions::Sharing::tree})) ==
        std::vector<Call>{{0, 120, 0, 3}, {120, 122, 0, 2}, {120, 121, 2, 3}});
  CHECK(calls_of(planned(s.tree, spans, {false, one_level})) ==
        std::vector<Call>{{0, 100, 0, 3}, {100, 121, 0, 1}, {100, 122, 1, 2}, {100, 121, 2, 3}});
  CHECK(calls_of(planned(s.tree, spans, {false, unshared})) ==
        std::vector<Call>{{0, 121, 0, 1}, {0, 122, 1, 2}, {0, 121, 2, 3}});
  CHECK(calls_of(planned(s.tree, spans, {false, decomposed})) ==
        std::vector<Call>{
            {0, 120, 0, 1}, {0, 120, 1, 2}, {0, 120, 2, 3}, {120, 122, 0, 1}, {120, 122, 1, 2}, {120, 121, 2, 3}});
}

TEST_CASE("keys_read: a prompt over several nodes is one sequence; each fork makes one more") {
  Stage s;
  const NodeId root = s.root(100);
  const NodeId problem = s.child(root, 100, 20);
  const auto keys = [&](const std::vector<StepSpan>& spans) {
    const KeysRead k = keys_read(s.tree, planned(s.tree, spans));
    return std::pair(k.shared, k.unshared);
  };
  CHECK(keys(s.gather()) == std::pair<std::int64_t, std::int64_t>(120, 120));
  s.child(root, 60, 5);
  CHECK(keys(s.gather()) == std::pair<std::int64_t, std::int64_t>(125, 120 + 65));
  s.store_all();
  for (int i = 0; i < 64; ++i) s.child(problem, 20, 1);
  CHECK(keys(s.gather()) == std::pair<std::int64_t, std::int64_t>(120 + 64, 64 * 121));
}

TEST_CASE("Planner: random forests, all modes: each row sees its path once, in order, and nothing else") {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    RandomStage s(seed);
    s.grow_some(static_cast<int>(1 + s.below(40)));
    if (s.below(3) > 0) s.store_all();
    s.grow_some(static_cast<int>(s.below(40)));
    std::vector<StepSpan> spans = s.gather();
    s.add_replays(spans, static_cast<int>(s.below(20)));
    for (const PlanOptions& options : all_options()) planned(s.tree, spans, options);
  }
}

TEST_CASE("BL-06: prompts cut at every place, an exact hit included, are planned for the same keys") {
  for (const bool deterministic : {false, true}) {
    for (std::int64_t cut = 1; cut <= 48; ++cut) {
      Stage s;
      const NodeId first = s.root(cut);
      s.store_all();
      std::vector<StepSpan> spans;
      if (cut < 48) {
        const NodeId rest = s.child(first, cut, 48 - cut);
        spans = s.gather();
        CHECK(spans == std::vector<StepSpan>{{rest, 0, 48 - cut, 1, true}});
      } else {
        spans = {{first, 47, 48, 1, false}};  // nothing is left to compute but the query
      }
      const Plan plan = planned(s.tree, spans, {.deterministic = deterministic});
      CHECK(plan.positions.back() == 47);
      CHECK(calls_of(plan) == std::vector<Call>{{0, 48, 0, plan.n_rows()}});
      CHECK((plan.kv_slots.back() == -1) == (cut == 48));
    }
  }
}

TEST_CASE("Planner: deterministic: the tiles of a row do not depend on how its path is cut, nor on its company") {
  std::mt19937 rng(5);
  for (int round = 0; round < 60; ++round) {
    const std::int64_t length = 1 + static_cast<std::int64_t>(rng() % 400);
    Stage s;
    NodeId node = kNoNode;
    for (std::int64_t rest = length; rest > 0;) {
      const std::int64_t n = round == 0 ? rest : 1 + static_cast<std::int64_t>(rng() % static_cast<unsigned>(rest));
      const NodeId next = node.valid() ? s.child(node, s.tree.n_tokens(node), n) : s.root(n);
      rest -= n;
      // Company, anywhere on the path, and tokens behind the fork.
      for (auto i = rng() % 3; i > 0 && round > 0; --i) {
        s.child(next, static_cast<std::int64_t>(rng() % static_cast<unsigned>(n + 1)),
                static_cast<std::int64_t>(rng() % 90));
      }
      node = next;
    }
    if (round % 2 == 0) s.store_all();
    std::vector<StepSpan> spans = s.gather();
    if (round % 2 == 0) spans.push_back({node, s.tree.n_tokens(node) - 1, s.tree.n_tokens(node), 1, false});
    for (const PlanOptions& options : all_options()) {
      if (!options.deterministic) continue;
      const Plan plan = planned(s.tree, spans, options);
      std::int64_t row = 0;
      while (plan.nodes[static_cast<std::size_t>(row)] != node ||
             plan.positions[static_cast<std::size_t>(row)] != length - 1) {
        ++row;
      }
      std::vector<std::pair<std::int64_t, std::int64_t>> tiles, right;
      for (const AttentionCall& call : plan.calls) {
        if (row < call.row_begin || row >= call.row_end) continue;
        const std::int64_t end = call.kv_position + n_visible(plan, call, row);
        for (std::int64_t p = call.kv_position; p < end;) {
          const std::int64_t tile_end = std::min(end, p / kTilePositions * kTilePositions + kTilePositions);
          tiles.emplace_back(p, tile_end - p);
          p = tile_end;
        }
      }
      for (std::int64_t p = 0; p < length; p += kTilePositions)
        right.emplace_back(p, std::min(length - p, kTilePositions));
      REQUIRE(tiles == right);
    }
  }
}

TEST_CASE("Planner: a plan depends on tree and spans alone, not on what was planned before") {
  RandomStage s(77);
  s.grow_some(60);
  const auto spans = s.gather();
  Planner used;
  Plan other;
  std::vector<StepSpan> part(spans.begin(), spans.begin() + 1);
  used.build(s.tree, part, other);
  Plan a;
  used.build(s.tree, spans, a);
  used.build(s.tree, spans, other);
  CHECK(a == planned(s.tree, spans));
  CHECK(other == a);
}

TEST_CASE("Planner: update equals build, byte for byte, over random histories") {
  for (const PlanOptions& options : all_options()) {
    for (const unsigned seed : {1U, 2U, 3U}) {
      RandomStage s(seed + 100);
      Planner updating(options);
      Planner building(options);
      Plan updated, built;
      s.root(70);
      for (int step = 0; step < 300; ++step) {
        const std::int64_t what = s.below(20);
        if (what == 0) s.grow_some(3);
        if (what == 1 && s.tree.n_nodes() > 20) s.tree.prune(s.pick());
        if (what == 2 && s.tree.n_nodes() > 0) s.tree.append(s.pick(), s.some(s.below(70)));  // an `extend`
        if (what == 3 && s.tree.n_nodes() > 0) s.tree.evict_kv(s.pick());
        if (s.tree.n_nodes() == 0) s.root(5);
        // Leaves decode; in some steps only some of them.
        const bool all = what > 5;
        for (NodeId node{0}; node.value < s.tree.id_bound(); ++node.value) {
          if (!s.tree.alive(node) || s.tree.n_children(node) > 0) continue;
          if (all || s.below(3) > 0) s.tree.append(node, s.some(1));
        }
        std::vector<StepSpan> spans = s.gather();
        if (what == 4) s.add_replays(spans, 4);
        updating.update(s.tree, spans, updated);
        building.build(s.tree, spans, built);
        REQUIRE(updated == built);
        if (step % 10 == 0) check_plan(s.tree, spans, updated, options);
        for (const StepSpan& span : spans) {
          if (span.write_kv) s.tree.commit_kv(span.node, span.end);
        }
      }
    }
  }
}

TEST_CASE("Planner: a chain of 100,000 nodes needs no deep stack") {
  for (const bool deterministic : {false, true}) {
    Stage s(200'000);
    NodeId node = s.root(1);
    for (int i = 1; i < 100'000; ++i) node = s.child(node, 1, 1);
    const auto spans = s.gather();
    Planner planner({.deterministic = deterministic});
    Plan plan;
    planner.build(s.tree, spans, plan);
    REQUIRE(plan.n_rows() == 100'000);
    check_rows(s.tree, spans, plan);
    const std::vector<StepSpan> last{spans.back()};
    for (const StepSpan& span : spans) s.tree.commit_kv(span.node, span.end);
    planner.build(s.tree, last, plan);
    CHECK(calls_of(plan) == std::vector<Call>{{0, 100'000, 0, 1}});
  }
}

TEST_CASE("Planner: no rows, and rows below empty nodes") {
  Stage s;
  const NodeId root = s.root(0);
  const NodeId mid = s.child(root, 0, 0);
  CHECK(planned(s.tree, {}).calls.empty());
  s.child(mid, 0, 2);
  s.child(root, 0, 1);
  CHECK(calls_of(planned(s.tree, s.gather())) == std::vector<Call>{{0, 2, 0, 2}, {0, 1, 2, 3}});
}

TEST_CASE("Planner: wrong spans are refused by name") {
  Stage s;
  const NodeId a = s.root(4);
  const NodeId b = s.child(a, 4, 4);
  Planner planner;
  Plan plan;
  const auto refuses = [&](const std::vector<StepSpan>& spans, const char* message) {
    CHECK_THROWS_WITH_AS(planner.build(s.tree, spans, plan), message, Error);
  };
  refuses(
      {{a, 0, 2}},
      "node 0: has KV slots for 0 of the 2 tokens that the step reads or writes; allocate_kv comes before planning");
  s.store_all();
  refuses({{b, 0, 5}}, "step span 0 (node 1, tokens 0 to 5): is no part of the node's 4 tokens");
  refuses({{b, 2, 2}}, "step span 0 (node 1, tokens 2 to 2): is no part of the node's 4 tokens");
  refuses({{b, 2, 3, 2}}, "step span 0 (node 1, tokens 2 to 3): cannot give logits of 2 rows");
  refuses({{b, 0, 1}, {a, 0, 1}},
          "step span 1 (node 0, tokens 0 to 1): does not stand behind the span before it, by node and tokens");
  refuses({{a, 0, 2}, {a, 1, 3}},
          "step span 1 (node 0, tokens 1 to 3): does not stand behind the span before it, by node and tokens");
  refuses({{NodeId{7}, 0, 2}}, "step span 0 (node 7, tokens 0 to 2): the node is not in the tree");
  // And it goes on with good input.
  planner.update(s.tree, std::vector<StepSpan>{{b, 3, 4, 1, false}}, plan);
  CHECK(calls_of(plan) == std::vector<Call>{{0, 8, 0, 1}});
}

TEST_CASE("Planner: a tree without a pool has the same rows and calls, and no addresses") {
  Stage s;
  SequenceTree bare;
  Planner planner;
  Plan with, without;
  for (SequenceTree* tree : {&s.tree, &bare}) {
    const NodeId root = tree->add_root(Tokens{1, 2, 3});
    tree->append(tree->fork(root), Tokens{4});
    tree->append(tree->fork(root, 1), Tokens{5});
  }
  auto spans = s.gather();
  planned(s.tree, spans);
  for (int step = 0; step < 3; ++step) {
    Planner(PlanOptions{}).build(s.tree, spans, with);
    planner.update(bare, spans, without);
    CHECK(without.tokens == with.tokens);
    CHECK(without.positions == with.positions);
    CHECK(without.nodes == with.nodes);
    CHECK(calls_of(without) == calls_of(with));
    CHECK(without.runs.empty());
    CHECK(without.kv_slots == std::vector<std::int64_t>(static_cast<std::size_t>(with.n_rows()), -1));
    for (const StepSpan& span : spans) {
      for (SequenceTree* tree : {&s.tree, &bare}) {
        tree->commit_kv(span.node, span.end);
        if (tree->n_children(span.node) == 0) tree->append(span.node, TokenId{7 + step});
      }
    }
    spans = s.gather();
  }
}
