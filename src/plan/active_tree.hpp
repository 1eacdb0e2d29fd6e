// The part of a sequence tree that a step is about: the nodes that have rows, and their ancestors. Internal to layer 3.
//
// Children stand in the order that rows are numbered in: (attach descending, id ascending). Entry 0 stands above the
// roots and has no tokens. Scratch memory: a build allocates nothing once its vectors have been as large before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "banyan/plan.hpp"
#include "tree/storage.hpp"

namespace banyan {

// One cache line: a build is bound by how much of it the caches hold.
struct alignas(64) ActiveNode {
  NodeId id;
  const SequenceTree::Storage::Page* page = nullptr;
  std::int32_t begin = 0;  // path position of the first token
  std::int32_t cover = 0;  // path position behind the keys that calls of ancestors give to all its rows
  std::int32_t parent = -1, first_child = -1, last_child = -1, next_sibling = -1;
  std::int32_t span_begin = 0, span_end = 0;             // its spans among the step's
  std::int32_t row_begin = 0, own_end = 0, row_end = 0;  // rows: own ones [row_begin, own_end), all to row_end
  bool ordered = true;                                   // its children were linked in order

  std::size_t page_row() const { return SequenceTree::Storage::row(id); }
  std::int64_t n_slots() const { return page->n_slots[page_row()]; }
};

class ActiveTree {
 public:
  // Throws Error{stale_handle} for a dead node, Error{usage} for spans that are unsorted, overlap or leave their node.
  void build(const SequenceTree::Storage& storage, std::span<const StepSpan> spans);

  std::vector<ActiveNode> nodes;

 private:
  std::int32_t find(NodeId id) const;
  std::int32_t add(const SequenceTree::Storage& storage, NodeId id);
  void index(std::int32_t node);
  void link(std::int32_t child, std::int32_t parent);
  void link_up(const SequenceTree::Storage& storage, std::int32_t node);
  void sort_children(std::int32_t parent);

  std::vector<std::int32_t> table_;  // open addressing by id: an index into nodes, or -1
  std::vector<std::int32_t> unordered_, sorted_;
};

}  // namespace banyan
