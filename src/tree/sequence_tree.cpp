#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "banyan/error.hpp"
#include "banyan/tree.hpp"
#include "tree/storage.hpp"

namespace banyan {

namespace {

using Storage = SequenceTree::Storage;
using State = Storage::State;

constexpr std::size_t kMostScanned = 64;  // children that are looked at one by one; more have an index

std::string name_of(NodeId node) { return "node " + std::to_string(node.value); }

[[noreturn]] void throw_usage(NodeId node, const std::string& message) {
  throw Error(ErrorCode::usage, name_of(node), message);
}

// A live node: its page and its row there.
template <typename PageType>
struct Place {
  PageType& page;
  std::size_t i;
};

void check_alive(const Storage& s, NodeId node) {
  if (s.alive(node)) return;
  const bool given_out = node.value >= 0 && node.value < s.id_bound;
  throw Error(ErrorCode::stale_handle, name_of(node),
              given_out ? "was pruned or released; its handle is of no use any more"
                        : "was never given out by this tree; its ids so far are below " + std::to_string(s.id_bound));
}

Place<Storage::Page> at(Storage& s, NodeId node) {
  check_alive(s, node);
  return {s.page(node), Storage::row(node)};
}

Place<const Storage::Page> at(const Storage& s, NodeId node) {
  check_alive(s, node);
  return {s.page(node), Storage::row(node)};
}

KvPool& pool_of(const Storage& s) {
  if (s.pool == nullptr) throw Error(ErrorCode::usage, "sequence tree", "has no KV pool: it was made for tokens alone");
  return *s.pool;
}

NodeId add_node(Storage& s, NodeId parent, std::int64_t attach) {
  const NodeId node{s.id_bound};
  if (node.value % Storage::kPageNodes == 0) s.pages.push_back(std::make_unique<Storage::Page>());
  auto& siblings = parent.valid() ? s.page(parent).children[Storage::row(parent)] : s.roots;
  siblings.push_back(node);
  ++s.id_bound;
  ++s.n_nodes;
  ++s.epoch;
  Storage::Page& page = s.page(node);
  const std::size_t i = Storage::row(node);
  ++page.n_alive;
  page.state[i] = State::alive;
  page.parent[i] = parent.value;
  page.attach[i] = attach;
  page.begin[i] = parent.valid() ? s.page(parent).begin[Storage::row(parent)] + attach : 0;
  page.first_token[i] = kNoToken;
  page.last_token[i] = kNoToken;
  return node;
}

// The node's first token, or what hangs in front of it, is no longer what its parent's index has.
void unsettle(Storage& s, NodeId node) {
  if (s.indexes.empty()) return;
  const auto index = s.indexes.find(s.page(node).parent[Storage::row(node)]);
  if (index != s.indexes.end()) index->second.unsettle(node);
}

void keep_slots(Storage& s, Storage::Page& page, std::size_t i, std::int64_t n_keep) {
  page.n_kv[i] = std::min(page.n_kv[i], n_keep);
  if (s.pool == nullptr) return;
  KvSegment& segment = page.segment[i];
  s.pool->shrink(segment, std::min(n_keep, segment.n_used));
  page.n_slots[i] = segment.n_used;
  page.last_run[i] = segment.runs.empty() ? SlotRun{} : segment.runs.back();
}

void keep_tokens(Storage& s, NodeId node, std::int64_t n_keep) {
  Storage::Page& page = s.page(node);
  const std::size_t i = Storage::row(node);
  auto& tokens = page.tokens[i];
  if (n_keep == page.n_tokens[i]) return;
  tokens.resize(static_cast<std::size_t>(n_keep));
  page.n_tokens[i] = n_keep;
  page.last_token[i] = tokens.empty() ? kNoToken : tokens.back();
  if (tokens.empty()) {
    page.first_token[i] = kNoToken;
    unsettle(s, node);
  }
  keep_slots(s, page, i, n_keep);
  ++s.epoch;
}

// Frees everything of a node without children; the parent's list is the caller's business.
void erase_leaf(Storage& s, NodeId node) {
  Storage::Page& page = s.page(node);
  const std::size_t i = Storage::row(node);
  assert(page.children[i].empty());
  keep_slots(s, page, i, 0);
  page.tokens[i] = {};
  page.children[i] = {};
  if (!s.indexes.empty()) s.indexes.erase(node.value);
  page.segment[i] = {};
  page.state[i] = State::dead;
  --s.n_nodes;
  --page.n_alive;
  const std::int64_t number = node.value / Storage::kPageNodes;
  const bool all_ids_given_out = s.id_bound >= (number + 1) * Storage::kPageNodes;
  if (page.n_alive == 0 && all_ids_given_out) s.pages[static_cast<std::size_t>(number)].reset();
}

// Erases the nodes below `top`, deepest first, and then `top`; a chain of any length takes no stack.
void erase_subtree(Storage& s, NodeId top) {
  const NodeId parent{s.page(top).parent[Storage::row(top)]};
  auto& siblings = parent.valid() ? s.page(parent).children[Storage::row(parent)] : s.roots;
  siblings.erase(std::lower_bound(siblings.begin(), siblings.end(), top));
  for (NodeId node = top;;) {
    auto& children = s.page(node).children[Storage::row(node)];
    if (!children.empty()) {
      node = children.back();
      children.pop_back();
      continue;
    }
    const NodeId up{s.page(node).parent[Storage::row(node)]};
    erase_leaf(s, node);
    if (node == top) break;
    node = up;
  }
  ++s.epoch;
}

// What a released node keeps is what its children stand on; with none it goes, and its parent is looked at.
void collect(Storage& s, NodeId node) {
  while (node.valid()) {
    Storage::Page& page = s.page(node);
    const std::size_t i = Storage::row(node);
    if (page.state[i] != State::released) return;
    if (!page.children[i].empty()) {
      std::int64_t n_keep = 0;
      for (const NodeId child : page.children[i]) {
        n_keep = std::max(n_keep, s.page(child).attach[Storage::row(child)]);
        if (n_keep == page.n_tokens[i]) break;  // one of many children goes: mostly another keeps it all
      }
      keep_tokens(s, node, n_keep);
      return;
    }
    const NodeId parent{page.parent[i]};
    erase_subtree(s, node);
    node = parent;
  }
}

}  // namespace

SequenceTree::SequenceTree(KvPool* pool) : storage_(std::make_unique<Storage>()) { storage_->pool = pool; }

SequenceTree::~SequenceTree() {
  while (!storage_->roots.empty()) erase_subtree(*storage_, storage_->roots.back());
}

NodeId SequenceTree::add_root(std::span<const TokenId> tokens) {
  const NodeId node = add_node(*storage_, kNoNode, 0);
  append(node, tokens);
  return node;
}

NodeId SequenceTree::fork(NodeId node, std::int64_t pos) {
  const auto [page, i] = at(*storage_, node);
  if (pos < 0 || pos > page.n_tokens[i]) {
    throw_usage(
        node, "cannot fork behind " + std::to_string(pos) + " of its " + std::to_string(page.n_tokens[i]) + " tokens");
  }
  if (pos == 0 && !page.forked_at_begin[i]) {
    page.forked_at_begin[i] = true;
    unsettle(*storage_, node);
  }
  return add_node(*storage_, node, pos);
}

void SequenceTree::append(NodeId node, std::span<const TokenId> added) {
  const auto [page, i] = at(*storage_, node);
  if (added.empty()) return;
  auto& tokens = page.tokens[i];
  if (tokens.empty()) unsettle(*storage_, node);
  tokens.insert(tokens.end(), added.begin(), added.end());
  page.n_tokens[i] = static_cast<std::int64_t>(tokens.size());
  page.first_token[i] = tokens.front();
  page.last_token[i] = tokens.back();
}

void SequenceTree::set_token(NodeId node, std::int64_t pos, TokenId token) {
  const auto [page, i] = at(*storage_, node);
  auto& tokens = page.tokens[i];
  if (pos < 0 || pos >= page.n_tokens[i] || !is_drawn_token(tokens[static_cast<std::size_t>(pos)])) {
    throw_usage(node, "has no token that is still to be drawn at " + std::to_string(pos) + " of its " +
                          std::to_string(page.n_tokens[i]));
  }
  tokens[static_cast<std::size_t>(pos)] = token;
  page.last_token[i] = tokens.back();
  if (pos > 0) return;
  page.first_token[i] = token;
  unsettle(*storage_, node);
}

void SequenceTree::reserve(NodeId node, std::int64_t n) {
  const auto [page, i] = at(*storage_, node);
  if (n < 0) throw_usage(node, "cannot reserve room for " + std::to_string(n) + " tokens");
  page.tokens[i].reserve(page.tokens[i].size() + static_cast<std::size_t>(n));
  if (storage_->pool == nullptr) return;
  // A run a block at worst, while the pool has whole blocks; one for the shared block and one for a partial end.
  auto& runs = page.segment[i].runs;
  runs.reserve(runs.size() + static_cast<std::size_t>(n / kKvBlock + 2));
}

void SequenceTree::truncate(NodeId node, std::int64_t n) {
  const auto [page, i] = at(*storage_, node);
  if (n < 0 || n > page.n_tokens[i]) {
    throw_usage(node, "cannot keep " + std::to_string(n) + " of its " + std::to_string(page.n_tokens[i]) + " tokens");
  }
  for (const NodeId child : page.children[i]) {
    const std::int64_t attach = storage_->page(child).attach[Storage::row(child)];
    if (attach > n) {
      throw_usage(node, "cannot keep " + std::to_string(n) + " tokens: " + name_of(child) + " is attached behind " +
                            std::to_string(attach));
    }
  }
  keep_tokens(*storage_, node, n);
}

void SequenceTree::prune(NodeId node) {
  const auto [page, i] = at(*storage_, node);
  const NodeId parent{page.parent[i]};
  erase_subtree(*storage_, node);
  collect(*storage_, parent);
}

TreePosition SequenceTree::find_prefix(std::span<const TokenId> query) const {
  Storage& s = *storage_;
  TreePosition best;
  std::int64_t best_depth = 0;
  // Copies of one run may stand side by side (samples that agree so far), so every match is followed to its end.
  std::vector<NodeId> stack;
  const auto push_matching = [&](std::span<const NodeId> children, NodeId parent, std::int64_t begin,
                                 std::int64_t matched) {
    if (children.size() > kMostScanned) {
      const auto found = s.indexes[parent.value].find(s, children, begin, matched, query);
      stack.insert(stack.end(), found.rbegin(), found.rend());
      return;
    }
    for (auto it = children.rbegin(); it != children.rend(); ++it) {
      if (ChildIndex::may_match(s, *it, begin, matched, query)) stack.push_back(*it);
    }
  };
  push_matching(s.roots, kNoNode, 0, 0);
  while (!stack.empty()) {
    const NodeId node = stack.back();
    stack.pop_back();
    const Storage::Page& page = s.page(node);
    const std::size_t i = Storage::row(node);
    const auto rest = query.subspan(static_cast<std::size_t>(page.begin[i]));
    const auto& tokens = page.tokens[i];
    const auto end = std::mismatch(tokens.begin(), tokens.end(), rest.begin(), rest.end()).first;
    const std::int64_t matched = end - tokens.begin();
    if (page.begin[i] + matched > best_depth) {
      best_depth = page.begin[i] + matched;
      best = {node, matched};
    }
    push_matching(page.children[i], node, page.begin[i], matched);
  }
  return best;
}

NodeId SequenceTree::insert(std::span<const TokenId> tokens) {
  const TreePosition place = find_prefix(tokens);
  if (!place.node.valid()) return add_root(tokens);
  const NodeId node = fork(place.node, place.pos);
  append(node, tokens.subspan(static_cast<std::size_t>(begin_position(node))));
  return node;
}

void SequenceTree::pin(NodeId node) {
  const auto [page, i] = at(*storage_, node);
  ++page.n_pins[i];
  page.state[i] = State::alive;
}

void SequenceTree::release(NodeId node) {
  const auto [page, i] = at(*storage_, node);
  if (page.n_pins[i] == 0) throw_usage(node, "is not pinned, so there is nothing to release");
  if (--page.n_pins[i] > 0) return;
  page.state[i] = State::released;
  collect(*storage_, node);
}

std::int64_t SequenceTree::n_pins(NodeId node) const {
  const auto [page, i] = at(std::as_const(*storage_), node);
  return page.n_pins[i];
}

bool SequenceTree::alive(NodeId node) const noexcept { return storage_->alive(node); }

NodeId SequenceTree::parent(NodeId node) const {
  const auto [page, i] = at(std::as_const(*storage_), node);
  return NodeId{page.parent[i]};
}

std::int64_t SequenceTree::attach(NodeId node) const {
  const auto [page, i] = at(std::as_const(*storage_), node);
  return page.attach[i];
}

std::span<const NodeId> SequenceTree::children(NodeId node) const {
  const auto [page, i] = at(std::as_const(*storage_), node);
  return page.children[i];
}

std::span<const NodeId> SequenceTree::roots() const { return storage_->roots; }

std::span<const TokenId> SequenceTree::tokens(NodeId node) const {
  const auto [page, i] = at(std::as_const(*storage_), node);
  return page.tokens[i];
}

std::int64_t SequenceTree::n_tokens(NodeId node) const {
  const auto [page, i] = at(std::as_const(*storage_), node);
  return page.n_tokens[i];
}

std::int64_t SequenceTree::begin_position(NodeId node) const {
  const auto [page, i] = at(std::as_const(*storage_), node);
  return page.begin[i];
}

void SequenceTree::path_tokens(NodeId node, std::vector<TokenId>& out) const {
  std::int64_t end = end_position(node);
  out.resize(static_cast<std::size_t>(end));
  while (node.valid()) {
    const Storage::Page& page = storage_->page(node);
    const std::size_t i = Storage::row(node);
    const std::int64_t n = end - page.begin[i];
    std::copy_n(page.tokens[i].begin(), n, out.begin() + page.begin[i]);
    end = page.begin[i];
    node = NodeId{page.parent[i]};
  }
}

std::int64_t SequenceTree::n_nodes() const { return storage_->n_nodes; }
std::int64_t SequenceTree::id_bound() const { return storage_->id_bound; }
std::uint64_t SequenceTree::epoch() const { return storage_->epoch; }

std::int64_t SequenceTree::n_kv(NodeId node) const {
  const auto [page, i] = at(std::as_const(*storage_), node);
  return page.n_kv[i];
}

bool SequenceTree::allocate_kv(NodeId node, std::int64_t n) {
  const auto [page, i] = at(*storage_, node);
  KvPool& pool = pool_of(*storage_);
  if (n < 0 || n > page.n_tokens[i]) {
    throw_usage(node, "cannot have KV slots for " + std::to_string(n) + " of its " + std::to_string(page.n_tokens[i]) +
                          " tokens");
  }
  if (n <= page.n_slots[i]) return true;
  KvSegment& segment = page.segment[i];
  if (!pool.grow(segment, n - page.n_slots[i])) return false;
  page.n_slots[i] = n;
  page.last_run[i] = segment.runs.back();
  return true;
}

void SequenceTree::commit_kv(NodeId node, std::int64_t n) {
  const auto [page, i] = at(*storage_, node);
  const std::int64_t most = storage_->pool != nullptr ? page.n_slots[i] : page.n_tokens[i];
  if (n < page.n_kv[i] || n > most) {
    throw_usage(node, "cannot have the KV of " + std::to_string(n) + " tokens: " + std::to_string(page.n_kv[i]) +
                          " are stored and there is place for " + std::to_string(most));
  }
  page.n_kv[i] = n;
}

void SequenceTree::evict_kv(NodeId node, std::int64_t n_keep) {
  const auto [page, i] = at(*storage_, node);
  if (page.n_slots[i] <= n_keep && page.n_kv[i] <= n_keep) return;
  keep_slots(*storage_, page, i, n_keep);
  ++storage_->epoch;
}

void SequenceTree::trim_kv(NodeId node) {
  const auto [page, i] = at(*storage_, node);
  pool_of(*storage_).trim(page.segment[i]);
}

std::span<const SlotRun> SequenceTree::slots(NodeId node) const {
  const auto [page, i] = at(std::as_const(*storage_), node);
  pool_of(*storage_);
  return page.segment[i].runs;
}

std::int64_t SequenceTree::slot_of(NodeId node, std::int64_t pos) const {
  const auto [page, i] = at(std::as_const(*storage_), node);
  pool_of(*storage_);
  if (pos < 0 || pos >= page.n_slots[i]) {
    throw_usage(node, "token " + std::to_string(pos) + " has no KV slot: " + std::to_string(page.n_slots[i]) +
                          " tokens have one");
  }
  const auto& runs = page.segment[i].runs;
  // From the back: asked for is mostly the newest token.
  std::int64_t begin = page.n_slots[i];
  for (auto run = runs.rbegin();; ++run) {
    begin -= run->n;
    if (pos >= begin) return run->first + (pos - begin);
  }
}

void SequenceTree::touch(NodeId node) {
  check_alive(*storage_, node);
  ++storage_->clock;
  while (node.valid()) {
    Storage::Page& page = storage_->page(node);
    page.last_use[Storage::row(node)] = storage_->clock;
    node = NodeId{page.parent[Storage::row(node)]};
  }
}

std::uint64_t SequenceTree::last_use(NodeId node) const {
  const auto [page, i] = at(std::as_const(*storage_), node);
  return page.last_use[i];
}

}  // namespace banyan
