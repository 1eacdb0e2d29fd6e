#include "plan/active_tree.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "banyan/error.hpp"

namespace banyan {

namespace {

constexpr std::size_t kMinTable = 64;
constexpr std::int64_t kMaxRows = std::numeric_limits<std::int32_t>::max();

std::size_t hash(NodeId id) { return static_cast<std::uint64_t>(id.value) * 0x9e3779b97f4a7c15ULL >> 20; }

// By the order in which rows are numbered.
bool stands_before(const ActiveNode& a, const ActiveNode& b) {
  return a.begin != b.begin ? a.begin > b.begin : a.id < b.id;
}

[[noreturn]] void throw_span(ErrorCode code, std::size_t i, const StepSpan& span, const std::string& message) {
  throw Error(code,
              "step span " + std::to_string(i) + " (node " + std::to_string(span.node.value) + ", tokens " +
                  std::to_string(span.begin) + " to " + std::to_string(span.end) + ")",
              message);
}

void check_span(const SequenceTree::Storage& storage, std::span<const StepSpan> spans, std::size_t i) {
  const StepSpan& span = spans[i];
  if (!storage.alive(span.node)) throw_span(ErrorCode::stale_handle, i, span, "the node is not in the tree");
  const auto& page = storage.page(span.node);
  const std::size_t row = SequenceTree::Storage::row(span.node);
  if (span.begin < 0 || span.begin >= span.end || span.end > page.n_tokens[row]) {
    throw_span(ErrorCode::usage, i, span, "is no part of the node's " + std::to_string(page.n_tokens[row]) + " tokens");
  }
  if (span.n_logits < 0 || span.n_logits > span.end - span.begin) {
    throw_span(ErrorCode::usage, i, span, "cannot give logits of " + std::to_string(span.n_logits) + " rows");
  }
  if (page.begin[row] + span.end > kMaxRows) throw_span(ErrorCode::usage, i, span, "stands behind position 2^31");
  if (i > 0 && (span.node < spans[i - 1].node || (span.node == spans[i - 1].node && span.begin < spans[i - 1].end))) {
    throw_span(ErrorCode::usage, i, span, "does not stand behind the span before it, by node and tokens");
  }
}

}  // namespace

void ActiveTree::build(const SequenceTree::Storage& storage, std::span<const StepSpan> spans) {
  nodes.clear();
  unordered_.clear();
  if (table_.empty()) table_.resize(kMinTable);
  std::fill(table_.begin(), table_.end(), -1);
  nodes.emplace_back();
  std::int64_t n_rows = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    check_span(storage, spans, i);
    n_rows += spans[i].end - spans[i].begin;
    if (i > 0 && spans[i].node == spans[i - 1].node) {
      ++nodes[static_cast<std::size_t>(find(spans[i].node))].span_end;
      continue;
    }
    // Ids only grow downwards and spans are sorted, so no earlier span has brought this node in as its ancestor.
    const std::int32_t node = add(storage, spans[i].node);
    nodes[static_cast<std::size_t>(node)].span_begin = static_cast<std::int32_t>(i);
    nodes[static_cast<std::size_t>(node)].span_end = static_cast<std::int32_t>(i) + 1;
    link_up(storage, node);
  }
  if (n_rows > kMaxRows) {
    throw Error(ErrorCode::usage, "step", "has " + std::to_string(n_rows) + " rows; 2^31 - 1 is the most");
  }
  for (const std::int32_t parent : unordered_) sort_children(parent);
}

// Links a new node under its parent, bringing in the ancestors that are not there yet.
void ActiveTree::link_up(const SequenceTree::Storage& storage, std::int32_t node) {
  for (std::int32_t child = node;;) {
    const ActiveNode& c = nodes[static_cast<std::size_t>(child)];
    const NodeId parent_id{c.page->parent[c.page_row()]};
    if (!parent_id.valid()) return link(child, 0);
    // Neighbours mostly share their parent.
    const std::int32_t recent = nodes[static_cast<std::size_t>(node) - 1].parent;
    if (recent > 0 && nodes[static_cast<std::size_t>(recent)].id == parent_id) return link(child, recent);
    std::int32_t parent = find(parent_id);
    if (parent >= 0) return link(child, parent);
    parent = add(storage, parent_id);
    link(child, parent);
    child = parent;
  }
}

std::int32_t ActiveTree::find(NodeId id) const {
  const std::size_t mask = table_.size() - 1;
  for (std::size_t h = hash(id) & mask;; h = (h + 1) & mask) {
    const std::int32_t node = table_[h];
    if (node < 0 || nodes[static_cast<std::size_t>(node)].id == id) return node;
  }
}

std::int32_t ActiveTree::add(const SequenceTree::Storage& storage, NodeId id) {
  const auto node = static_cast<std::int32_t>(nodes.size());
  ActiveNode& n = nodes.emplace_back();
  n.id = id;
  n.page = &storage.page(id);
  n.begin = static_cast<std::int32_t>(n.page->begin[n.page_row()]);  // fits: rows below it stand before 2^31
  if (nodes.size() * 2 > table_.size()) {
    table_.assign(table_.size() * 2, -1);
    for (std::int32_t i = 1; i < node; ++i) index(i);
  }
  index(node);
  return node;
}

void ActiveTree::index(std::int32_t node) {
  const std::size_t mask = table_.size() - 1;
  std::size_t h = hash(nodes[static_cast<std::size_t>(node)].id) & mask;
  while (table_[h] >= 0) h = (h + 1) & mask;
  table_[h] = node;
}

void ActiveTree::link(std::int32_t child, std::int32_t parent) {
  ActiveNode& c = nodes[static_cast<std::size_t>(child)];
  ActiveNode& p = nodes[static_cast<std::size_t>(parent)];
  c.parent = parent;
  if (p.last_child < 0) {
    p.first_child = child;
  } else {
    ActiveNode& last = nodes[static_cast<std::size_t>(p.last_child)];
    last.next_sibling = child;
    if (p.ordered && !stands_before(last, c)) {
      p.ordered = false;
      unordered_.push_back(parent);
    }
  }
  p.last_child = child;
}

void ActiveTree::sort_children(std::int32_t parent) {
  ActiveNode& p = nodes[static_cast<std::size_t>(parent)];
  sorted_.clear();
  for (std::int32_t c = p.first_child; c >= 0; c = nodes[static_cast<std::size_t>(c)].next_sibling)
    sorted_.push_back(c);
  std::sort(sorted_.begin(), sorted_.end(), [this](std::int32_t a, std::int32_t b) {
    return stands_before(nodes[static_cast<std::size_t>(a)], nodes[static_cast<std::size_t>(b)]);
  });
  p.first_child = sorted_.front();
  p.last_child = sorted_.back();
  for (std::size_t i = 0; i < sorted_.size(); ++i) {
    nodes[static_cast<std::size_t>(sorted_[i])].next_sibling = i + 1 < sorted_.size() ? sorted_[i + 1] : -1;
  }
}

}  // namespace banyan
