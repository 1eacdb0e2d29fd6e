#include <algorithm>
#include <doctest/doctest.h>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "banyan/error.hpp"
#include "banyan/tree.hpp"
#include "tree/storage.hpp"

using namespace banyan;

namespace {

using Tokens = std::vector<TokenId>;

Tokens tokens_of(const SequenceTree& tree, NodeId node) {
  const auto t = tree.tokens(node);
  return {t.begin(), t.end()};
}

Tokens path_of(const SequenceTree& tree, NodeId node) {
  Tokens out{-7};  // overwritten
  tree.path_tokens(node, out);
  return out;
}

ErrorCode code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  FAIL("no error");
  return ErrorCode::device;
}

// The tree as the plainest thing that behaves like it: whole paths and parents by id.
struct FlatTree {
  struct Node {
    std::int64_t parent = -1, attach = 0;
    Tokens tokens;
  };
  std::map<std::int64_t, Node> nodes;

  Tokens path(std::int64_t id) const {
    const Node& n = nodes.at(id);
    Tokens out;
    if (n.parent >= 0) {
      out = path(n.parent);
      const auto own = nodes.at(n.parent).tokens.size();
      out.resize(out.size() - own + static_cast<std::size_t>(n.attach));
    }
    out.insert(out.end(), n.tokens.begin(), n.tokens.end());
    return out;
  }
  void prune(std::int64_t id) {
    std::vector<std::int64_t> below;
    for (const auto& [child, n] : nodes) {
      if (n.parent == id) below.push_back(child);
    }
    for (const auto child : below) prune(child);
    nodes.erase(id);
  }
  std::int64_t longest_match(const Tokens& query) const {
    std::size_t best = 0;
    for (const auto& [id, n] : nodes) {
      const Tokens p = path(id);
      best = std::max(best, static_cast<std::size_t>(
                                std::mismatch(p.begin(), p.end(), query.begin(), query.end()).first - p.begin()));
    }
    return static_cast<std::int64_t>(best);
  }
};

void check_same(const SequenceTree& tree, const FlatTree& flat) {
  REQUIRE(tree.n_nodes() == static_cast<std::int64_t>(flat.nodes.size()));
  std::map<std::int64_t, std::vector<NodeId>> children;
  for (const auto& [id, n] : flat.nodes) children[n.parent].push_back(NodeId{id});
  const auto same = [&](std::span<const NodeId> a, std::int64_t of) {
    return std::equal(a.begin(), a.end(), children[of].begin(), children[of].end());
  };
  REQUIRE(same(tree.roots(), -1));
  for (const auto& [id, n] : flat.nodes) {
    const NodeId node{id};
    REQUIRE(tree.alive(node));
    REQUIRE(tree.parent(node).value == n.parent);
    REQUIRE(tree.attach(node) == n.attach);
    REQUIRE(tokens_of(tree, node) == n.tokens);
    REQUIRE(path_of(tree, node) == flat.path(id));
    REQUIRE(tree.end_position(node) == static_cast<std::int64_t>(flat.path(id).size()));
    REQUIRE(same(tree.children(node), id));
    if (n.parent >= 0) REQUIRE(n.parent < id);
  }
}

}  // namespace

TEST_CASE("SequenceTree: a fork inside a run copies and moves nothing") {
  KvPool pool(64);
  SequenceTree tree(&pool);
  const NodeId root = tree.add_root(Tokens{1, 2, 3, 4, 5});
  REQUIRE(tree.allocate_kv(root, 5));
  const auto slots = std::vector<SlotRun>(tree.slots(root).begin(), tree.slots(root).end());
  const NodeId child = tree.fork(root, 3);
  tree.append(child, Tokens{9, 8});
  CHECK(tokens_of(tree, root) == Tokens{1, 2, 3, 4, 5});
  CHECK(std::vector<SlotRun>(tree.slots(root).begin(), tree.slots(root).end()) == slots);
  CHECK(path_of(tree, child) == Tokens{1, 2, 3, 9, 8});
  CHECK(tree.begin_position(child) == 3);
  tree.append(root, 6);
  CHECK(path_of(tree, tree.fork(root)) == Tokens{1, 2, 3, 4, 5, 6});
  CHECK(path_of(tree, child) == Tokens{1, 2, 3, 9, 8});
  CHECK(pool.n_free() == 64 - 16);
  tree.prune(root);
  CHECK(pool.n_free() == 64);
}

TEST_CASE("BL-05: branches of one root do not see each other, and the parent keeps its tokens and slots") {
  KvPool pool(256);
  SequenceTree tree(&pool);
  const NodeId root = tree.add_root(Tokens{1, 2, 3});
  REQUIRE(tree.allocate_kv(root, 3));
  tree.commit_kv(root, 3);
  const NodeId x = tree.fork(root);
  tree.append(x, Tokens{4, 5});
  REQUIRE(tree.allocate_kv(x, 2));
  tree.commit_kv(x, 2);
  const auto x_slots = std::vector<std::int64_t>{tree.slot_of(x, 0), tree.slot_of(x, 1)};
  const NodeId y = tree.fork(root);
  tree.append(y, Tokens{6, 7});
  REQUIRE(tree.allocate_kv(y, 2));
  CHECK(path_of(tree, x) == Tokens{1, 2, 3, 4, 5});
  CHECK(path_of(tree, y) == Tokens{1, 2, 3, 6, 7});
  CHECK(path_of(tree, root) == Tokens{1, 2, 3});
  CHECK(tree.slot_of(x, 0) == x_slots[0]);
  CHECK(tree.slot_of(x, 1) == x_slots[1]);
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t j = 0; j < 2; ++j) CHECK(tree.slot_of(x, i) != tree.slot_of(y, j));
  }
  // A token in each of two children of x: the parent object is never the child.
  const NodeId a = tree.fork(x);
  const NodeId b = tree.fork(x);
  tree.append(a, 10);
  tree.append(b, 11);
  CHECK(path_of(tree, a) == Tokens{1, 2, 3, 4, 5, 10});
  CHECK(path_of(tree, b) == Tokens{1, 2, 3, 4, 5, 11});
  CHECK(path_of(tree, x) == Tokens{1, 2, 3, 4, 5});
}

TEST_CASE("SequenceTree: random histories agree with a flat tree; pruning gives all slots back") {
  for (const unsigned seed : {1U, 2U, 3U}) {
    std::mt19937 rng(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(rng() % n); };
    KvPool pool(5000);
    {
      SequenceTree tree(&pool);
      FlatTree flat;
      const auto pick = [&] {
        auto it = flat.nodes.begin();
        std::advance(it, static_cast<std::ptrdiff_t>(below(flat.nodes.size())));
        return it->first;
      };
      const auto some_tokens = [&](std::size_t n) {
        Tokens t(below(n));
        for (TokenId& x : t) x = static_cast<TokenId>(below(3));
        return t;
      };
      for (int step = 0; step < 400; ++step) {
        const std::size_t what = flat.nodes.empty() ? 0 : below(9);
        const auto epoch = tree.epoch();
        if (what == 0) {
          const Tokens t = some_tokens(6);
          flat.nodes[tree.add_root(t).value] = {-1, 0, t};
          CHECK(tree.epoch() > epoch);
        } else if (what <= 3) {
          const auto parent = pick();
          const auto pos = static_cast<std::int64_t>(below(flat.nodes[parent].tokens.size() + 1));
          const NodeId node = tree.fork(NodeId{parent}, pos);
          flat.nodes[node.value] = {parent, pos, {}};
          CHECK(tree.epoch() > epoch);
        } else if (what <= 5) {
          const auto id = pick();
          const Tokens t = some_tokens(5);
          tree.append(NodeId{id}, t);
          auto& own = flat.nodes[id].tokens;
          own.insert(own.end(), t.begin(), t.end());
          REQUIRE(tree.allocate_kv(NodeId{id}, static_cast<std::int64_t>(below(own.size() + 1))));
          CHECK(tree.epoch() == epoch);
        } else if (what == 6) {
          const auto id = pick();
          std::int64_t least = 0;
          for (const auto& [child, n] : flat.nodes) {
            if (n.parent == id) least = std::max(least, n.attach);
          }
          auto& own = flat.nodes[id].tokens;
          tree.truncate(NodeId{id}, least);
          own.resize(static_cast<std::size_t>(least));
        } else if (what == 7 && below(3) == 0) {
          const auto id = pick();
          tree.prune(NodeId{id});
          flat.prune(id);
          CHECK_FALSE(tree.alive(NodeId{id}));
        } else {
          const Tokens query = some_tokens(12);
          const TreePosition found = tree.find_prefix(query);
          const std::int64_t longest = flat.longest_match(query);
          REQUIRE(found.node.valid() == (longest > 0));
          if (longest > 0) {
            REQUIRE(tree.begin_position(found.node) + found.pos == longest);
            Tokens path = flat.path(found.node.value);
            path.resize(static_cast<std::size_t>(longest));
            REQUIRE(std::equal(path.begin(), path.end(), query.begin()));
          }
          if (below(2) == 0) {
            const NodeId node = tree.insert(query);
            REQUIRE(path_of(tree, node) == query);
            flat.nodes[node.value] = {tree.parent(node).value, tree.attach(node), tokens_of(tree, node)};
          }
        }
        check_same(tree, flat);
      }
    }
    CHECK(pool.n_free() == 5000);
  }
}

TEST_CASE("SequenceTree: fork and prune leave the tree as it was") {
  KvPool pool(512);
  SequenceTree tree(&pool);
  const NodeId root = tree.add_root(Tokens{1, 2, 3, 4});
  REQUIRE(tree.allocate_kv(root, 4));
  const NodeId keep = tree.fork(root, 2);
  tree.append(keep, 5);
  const auto n_free = pool.n_free();
  for (int round = 0; round < 10; ++round) {
    const NodeId child = tree.fork(root, round % 5);
    tree.append(child, Tokens(20, 7));
    REQUIRE(tree.allocate_kv(child, 20));
    const NodeId grandchild = tree.fork(child, 10);
    tree.append(grandchild, 8);
    REQUIRE(tree.allocate_kv(grandchild, 1));
    tree.prune(child);
    CHECK_FALSE(tree.alive(grandchild));
    CHECK(tree.n_nodes() == 2);
    CHECK(pool.n_free() == n_free);
    CHECK(std::vector<NodeId>(tree.children(root).begin(), tree.children(root).end()) == std::vector<NodeId>{keep});
    CHECK(tokens_of(tree, root) == Tokens{1, 2, 3, 4});
  }
}

TEST_CASE("SequenceTree: find_prefix among many children gives what looking at each of them gives") {
  std::mt19937 rng(12);
  for (int round = 0; round < 8; ++round) {
    // Few different tokens and short runs, so that a few nodes have hundreds of children, empty ones among them.
    SequenceTree tree;
    FlatTree flat;
    std::vector<NodeId> nodes;
    const auto random_tokens = [&](unsigned most) {
      Tokens tokens(rng() % (most + 1));
      for (auto& t : tokens) t = static_cast<TokenId>(rng() % 3);
      return tokens;
    };
    const auto pick = [&] {
      return nodes[round % 2 == 0 ? rng() % std::min<std::size_t>(nodes.size(), 3) : rng() % nodes.size()];
    };
    for (int step = 0; step < 1200; ++step) {
      const unsigned what = nodes.empty() ? 0 : rng() % 10;
      if (what < 5) {
        const NodeId parent = nodes.empty() || rng() % 4 == 0 ? kNoNode : pick();
        const std::int64_t at =
            parent.valid() ? static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(tree.n_tokens(parent) + 1))
                           : 0;
        const Tokens tokens = random_tokens(3);
        const NodeId node = parent.valid() ? tree.fork(parent, at) : tree.add_root({});
        tree.append(node, tokens);
        flat.nodes[node.value] = {parent.value, at, tokens};
        nodes.push_back(node);
      } else if (what == 5) {  // a node gets further tokens, perhaps its first
        const NodeId node = nodes[rng() % nodes.size()];
        const Tokens tokens = random_tokens(2);
        tree.append(node, tokens);
        auto& own = flat.nodes[node.value].tokens;
        own.insert(own.end(), tokens.begin(), tokens.end());
      } else if (what == 6) {  // or loses all, to begin with another
        const NodeId node = nodes[rng() % nodes.size()];
        if (!tree.children(node).empty()) continue;
        tree.truncate(node, 0);
        flat.nodes[node.value].tokens.clear();
      } else if (what == 7 && nodes.size() > 300) {
        const NodeId node = nodes[nodes.size() / 2 + rng() % (nodes.size() / 2)];
        tree.prune(node);
        flat.prune(node.value);
        std::erase_if(nodes, [&](NodeId n) { return !tree.alive(n); });
      } else {
        const Tokens query = random_tokens(9);
        const TreePosition found = tree.find_prefix(query);
        const std::int64_t depth = found.node.valid() ? tree.begin_position(found.node) + found.pos : 0;
        REQUIRE(depth == flat.longest_match(query));
        if (found.node.valid()) {
          const Tokens path = path_of(tree, found.node);
          REQUIRE(std::equal(path.begin(), path.begin() + depth, query.begin()));
        }
      }
    }
    std::size_t most = tree.roots().size();
    for (const NodeId node : nodes) most = std::max(most, tree.children(node).size());
    REQUIRE(most > 64);
  }
}

TEST_CASE("SequenceTree: a hundred thousand prompts below one prefix are inserted and released in time") {
  // One look at each sibling of each would be five thousand million.
  SequenceTree tree;
  Tokens prompt(200, 1);
  std::vector<NodeId> nodes;
  for (int i = 0; i < 100'000; ++i) {
    prompt[195] = 10 + i / 2;
    prompt[196] = i % 2;
    prompt.resize(i % 10 == 3 ? 195 : 200);  // some are the prefix itself
    nodes.push_back(tree.insert(prompt));
    tree.pin(nodes.back());
    prompt.resize(200, 1);
  }
  std::int64_t n_tokens = 0;
  for (const NodeId node : nodes) n_tokens += tree.n_tokens(node);
  CHECK(n_tokens < 200 + 5 * 100'000);
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) tree.release(*it);
  CHECK(tree.n_nodes() == 0);
}

TEST_CASE("SequenceTree: insert makes a tree of a list of prompts") {
  SequenceTree tree;
  const NodeId a = tree.insert(Tokens{1, 2, 3, 4});
  const NodeId b = tree.insert(Tokens{1, 2, 5});
  const NodeId c = tree.insert(Tokens{1, 2, 5, 6});
  const NodeId again = tree.insert(Tokens{1, 2, 3, 4});
  const NodeId shorter = tree.insert(Tokens{1, 2});
  const NodeId other = tree.insert(Tokens{9});
  CHECK(tree.parent(a) == kNoNode);
  CHECK(tree.parent(b) == a);
  CHECK(tree.attach(b) == 2);
  CHECK(tree.parent(c) == b);
  CHECK(tree.parent(again) == a);
  CHECK(tree.attach(again) == 4);
  CHECK(tree.n_tokens(again) == 0);
  CHECK(tree.parent(shorter) == a);
  CHECK(tree.attach(shorter) == 2);
  CHECK(tree.parent(other) == kNoNode);
  CHECK(tree.find_prefix(Tokens{1, 2, 5, 7}) == TreePosition{b, 1});
  CHECK(tree.find_prefix(Tokens{2}) == TreePosition{});
  CHECK(tree.find_prefix(Tokens{}) == TreePosition{});
}

TEST_CASE("SequenceTree: find_prefix follows every one of several equal runs, and looks through empty nodes") {
  SequenceTree tree;
  const NodeId root = tree.add_root(Tokens{1});
  const NodeId first = tree.fork(root);
  tree.append(first, Tokens{2, 3});
  const NodeId empty = tree.fork(tree.fork(root));
  const NodeId second = tree.fork(empty);
  tree.append(second, Tokens{2, 3, 4});
  CHECK(tree.find_prefix(Tokens{1, 2, 3, 4, 5}) == TreePosition{second, 3});
  CHECK(tree.find_prefix(Tokens{1, 2, 3}) == TreePosition{first, 2});
  CHECK(tree.find_prefix(Tokens{1}) == TreePosition{root, 1});
}

TEST_CASE("SequenceTree: release lets a node go when nothing stands on it, and its released parents with it") {
  KvPool pool(256);
  SequenceTree tree(&pool);
  const NodeId root = tree.add_root(Tokens{1, 2, 3, 4, 5, 6});
  REQUIRE(tree.allocate_kv(root, 6));
  tree.commit_kv(root, 6);
  const NodeId a = tree.fork(root, 2);
  const NodeId b = tree.fork(root, 4);
  for (const NodeId node : {root, a, b}) tree.pin(node);
  tree.pin(a);
  CHECK(tree.n_pins(a) == 2);

  tree.release(root);  // stands under two children: keeps what they stand on
  CHECK(tokens_of(tree, root) == Tokens{1, 2, 3, 4});
  CHECK(tree.n_kv(root) == 4);
  tree.release(b);
  CHECK_FALSE(tree.alive(b));
  CHECK(tokens_of(tree, root) == Tokens{1, 2});
  tree.release(a);
  CHECK(tree.alive(a));
  tree.release(a);
  CHECK(tree.n_nodes() == 0);
  CHECK(pool.n_free() == 256);

  // Never pinned: stays. Pinned again: stays. Released and pruned bare: goes.
  const NodeId r = tree.add_root(Tokens{1});
  const NodeId child = tree.fork(r);
  tree.pin(child);
  tree.release(child);
  CHECK(tree.alive(r));
  const NodeId other = tree.fork(r);
  tree.pin(r);
  tree.release(r);
  tree.pin(r);
  tree.prune(other);
  CHECK(tree.alive(r));
  const NodeId last = tree.fork(r);
  tree.release(r);
  CHECK(tree.alive(r));
  tree.prune(last);
  CHECK_FALSE(tree.alive(r));
  const NodeId unpinned = tree.add_root(Tokens{1});
  CHECK(code_of([&] { tree.release(unpinned); }) == ErrorCode::usage);
}

TEST_CASE(
    "SequenceTree: a token still to be drawn has a place and KV, matches nothing, and is found once it is there") {
  for (const int n_children : {2, 100}) {  // looked at one by one; by the index
    KvPool pool(4096);
    SequenceTree tree(&pool);
    const NodeId root = tree.add_root(Tokens{1, 2});
    std::vector<NodeId> children;
    for (int i = 0; i < n_children; ++i) {
      children.push_back(tree.fork(root));
      tree.append(children.back(), drawn_token(i));
    }
    const NodeId some = children[1];
    CHECK(tree.find_prefix(Tokens{1, 2, 7, 8}) == TreePosition{root, 2});
    CHECK(tree.end_position(some) == 3);
    CHECK(tree.allocate_kv(some, 1));
    tree.commit_kv(some, 1);
    tree.append(some, drawn_token(5));
    const std::uint64_t epoch = tree.epoch();
    tree.set_token(some, 0, 7);
    CHECK(tree.epoch() == epoch);
    CHECK(tokens_of(tree, some) == Tokens{7, drawn_token(5)});
    CHECK(tree.find_prefix(Tokens{1, 2, 7, 8}) == TreePosition{some, 1});
    tree.set_token(some, 1, 8);
    CHECK(tree.find_prefix(Tokens{1, 2, 7, 8}) == TreePosition{some, 2});
    CHECK_THROWS_WITH(tree.set_token(some, 1, 9), "node 2: has no token that is still to be drawn at 1 of its 2");
    CHECK(code_of([&] { tree.set_token(some, 2, 9); }) == ErrorCode::usage);
    CHECK(code_of([&] { tree.set_token(some, -1, 9); }) == ErrorCode::usage);
    tree.append(some, drawn_token(3));
    tree.truncate(some, 2);
    CHECK(tokens_of(tree, some) == Tokens{7, 8});
  }
  for (const std::int64_t i : {0, 1, 70'000}) {
    CHECK(is_drawn_token(drawn_token(i)));
    CHECK(query_of(drawn_token(i)) == i);
  }
  CHECK_FALSE(is_drawn_token(kNoToken));
}

TEST_CASE("SequenceTree: a stale or foreign handle is a typed error from every call, and the tree goes on") {
  KvPool pool(64);
  SequenceTree tree(&pool);
  const NodeId dead = tree.add_root(Tokens{1, 2});
  tree.prune(dead);
  const NodeId live = tree.add_root(Tokens{3});
  std::vector<TokenId> out;
  const std::vector<std::function<void(NodeId)>> calls = {
      [&](NodeId n) { tree.fork(n, 0); },        [&](NodeId n) { tree.fork(n); },
      [&](NodeId n) { tree.append(n, 1); },      [&](NodeId n) { tree.append(n, std::span<const TokenId>{}); },
      [&](NodeId n) { tree.reserve(n, 1); },     [&](NodeId n) { tree.truncate(n, 0); },
      [&](NodeId n) { tree.prune(n); },          [&](NodeId n) { tree.pin(n); },
      [&](NodeId n) { tree.release(n); },        [&](NodeId n) { tree.n_pins(n); },
      [&](NodeId n) { tree.parent(n); },         [&](NodeId n) { tree.attach(n); },
      [&](NodeId n) { tree.children(n); },       [&](NodeId n) { tree.tokens(n); },
      [&](NodeId n) { tree.n_tokens(n); },       [&](NodeId n) { tree.begin_position(n); },
      [&](NodeId n) { tree.end_position(n); },   [&](NodeId n) { tree.path_tokens(n, out); },
      [&](NodeId n) { tree.n_children(n); },     [&](NodeId n) { tree.n_kv(n); },
      [&](NodeId n) { tree.allocate_kv(n, 0); }, [&](NodeId n) { tree.commit_kv(n, 0); },
      [&](NodeId n) { tree.evict_kv(n); },       [&](NodeId n) { tree.slots(n); },
      [&](NodeId n) { tree.slot_of(n, 0); },     [&](NodeId n) { tree.touch(n); },
      [&](NodeId n) { tree.last_use(n); },       [&](NodeId n) { tree.set_token(n, 0, 1); },
  };
  for (const NodeId bad : {dead, kNoNode, NodeId{2}, NodeId{1'000'000'000'000}}) {
    CHECK_FALSE(tree.alive(bad));
    for (const auto& call : calls) CHECK(code_of([&] { call(bad); }) == ErrorCode::stale_handle);
  }
  CHECK_THROWS_WITH(tree.tokens(dead), "node 0: was pruned or released; its handle is of no use any more");
  CHECK_THROWS_WITH(tree.tokens(NodeId{9}), "node 9: was never given out by this tree; its ids so far are below 2");
  CHECK(tokens_of(tree, live) == Tokens{3});
  CHECK(tree.n_nodes() == 1);
}

TEST_CASE("SequenceTree: arguments out of range are refused with their values") {
  KvPool pool(16);
  SequenceTree tree(&pool);
  const NodeId node = tree.add_root(Tokens{1, 2, 3});
  const NodeId child = tree.fork(node, 2);
  CHECK_THROWS_WITH(tree.fork(node, 4), "node 0: cannot fork behind 4 of its 3 tokens");
  CHECK(code_of([&] { tree.fork(node, -1); }) == ErrorCode::usage);
  CHECK_THROWS_WITH(tree.truncate(node, 1), "node 0: cannot keep 1 tokens: node 1 is attached behind 2");
  CHECK(code_of([&] { tree.truncate(node, 4); }) == ErrorCode::usage);
  CHECK(code_of([&] { tree.reserve(node, -1); }) == ErrorCode::usage);
  CHECK(code_of([&] { tree.allocate_kv(node, 4); }) == ErrorCode::usage);
  CHECK(code_of([&] { tree.slot_of(node, 0); }) == ErrorCode::usage);
  REQUIRE(tree.allocate_kv(node, 2));
  CHECK(code_of([&] { tree.commit_kv(node, 3); }) == ErrorCode::usage);
  tree.commit_kv(node, 2);
  CHECK(code_of([&] { tree.commit_kv(node, 1); }) == ErrorCode::usage);
  tree.append(child, Tokens(20, 4));
  CHECK_FALSE(tree.allocate_kv(child, 20));
  CHECK(tree.slots(child).empty());
  SequenceTree bare;
  const NodeId root = bare.add_root(Tokens{1});
  CHECK_THROWS_WITH(bare.slots(root), "sequence tree: has no KV pool: it was made for tokens alone");
  CHECK(code_of([&] { bare.allocate_kv(root, 1); }) == ErrorCode::usage);
  CHECK(code_of([&] { bare.slot_of(root, 0); }) == ErrorCode::usage);
  // Without a pool the count of computed tokens is kept all the same.
  CHECK(code_of([&] { bare.commit_kv(root, 2); }) == ErrorCode::usage);
  bare.commit_kv(root, 1);
  CHECK(bare.n_kv(root) == 1);
  bare.evict_kv(root);
  CHECK(bare.n_kv(root) == 0);
  bare.commit_kv(root, 1);
  bare.truncate(root, 0);
  CHECK(bare.n_kv(root) == 0);
}

TEST_CASE("SequenceTree: KV addresses: allocate, commit, evict, touch") {
  KvPool pool(160);
  SequenceTree tree(&pool);
  const NodeId root = tree.add_root(Tokens(40, 1));
  const NodeId a = tree.fork(root, 30);
  tree.append(a, Tokens(3, 2));
  REQUIRE(tree.allocate_kv(root, 40));
  REQUIRE(tree.allocate_kv(a, 1));
  REQUIRE(tree.allocate_kv(a, 3));
  REQUIRE(tree.allocate_kv(a, 2));  // has them already
  std::int64_t pos = 0;
  for (const SlotRun& run : tree.slots(a)) {
    for (std::int64_t i = 0; i < run.n; ++i) CHECK(tree.slot_of(a, pos++) == run.first + i);
  }
  CHECK(pos == 3);
  tree.commit_kv(root, 40);
  const auto epoch = tree.epoch();
  tree.evict_kv(root);
  CHECK(tree.epoch() > epoch);
  CHECK(tree.n_kv(root) == 0);
  CHECK(tree.slots(root).empty());
  CHECK(tree.n_tokens(root) == 40);
  CHECK(tree.last_use(root) == 0);
  tree.touch(a);
  CHECK(tree.last_use(a) > 0);
  CHECK(tree.last_use(root) == tree.last_use(a));
  tree.touch(root);
  CHECK(tree.last_use(root) > tree.last_use(a));
}

TEST_CASE("SequenceTree: ids are never reused, and pages of dead nodes are returned") {
  SequenceTree tree;
  constexpr std::int64_t kPage = SequenceTree::Storage::kPageNodes;
  const NodeId root = tree.add_root(Tokens{1});
  std::vector<NodeId> nodes;
  for (std::int64_t i = 1; i < 5 * kPage; ++i) nodes.push_back(tree.fork(root));
  const auto n_pages = [&] {
    return std::count_if(tree.storage().pages.begin(), tree.storage().pages.end(), [](const auto& p) { return !!p; });
  };
  CHECK(n_pages() == 5);
  for (const NodeId node : nodes) tree.prune(node);
  CHECK(n_pages() == 1);
  CHECK_FALSE(tree.alive(nodes.back()));
  CHECK(tree.id_bound() == 5 * kPage);
  CHECK(tree.fork(root).value == 5 * kPage);
  CHECK(code_of([&] { tree.n_tokens(nodes[2000]); }) == ErrorCode::stale_handle);
}

TEST_CASE("SequenceTree: a chain of 100,000 nodes is built, read, released and pruned without deep recursion") {
  SequenceTree tree;
  NodeId node = tree.add_root(Tokens{0});
  const NodeId root = node;
  for (int i = 1; i < 100'000; ++i) {
    node = tree.fork(node);
    tree.append(node, i % 50);
  }
  Tokens path = path_of(tree, node);
  CHECK(path.size() == 100'000);
  CHECK(tree.find_prefix(path) == TreePosition{node, 1});
  tree.touch(node);
  CHECK(tree.last_use(root) == 1);
  tree.prune(root);
  CHECK(tree.n_nodes() == 0);
}
