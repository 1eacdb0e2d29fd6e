// How a SequenceTree is stored: structure of arrays in pages of kPageNodes ids. Internal to layers 2 and 3.
//
// A page stays until all of its ids were given out and all its nodes are dead; then it is freed, and its entry in the
// page table is null. So a long session costs 8 bytes per kPageNodes ids, plus the pages of nodes that live.
// Nothing here checks handles: SequenceTree does. The arrays that a planner reads once per leaf and step (n_tokens,
// last_token, n_slots, last_run) repeat what the vectors say, so that it need not follow their pointers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "banyan/tree.hpp"
#include "tree/child_index.hpp"

namespace banyan {

struct SequenceTree::Storage {
  static constexpr std::int64_t kPageNodes = 1024;

  // A cache line longer than its nodes need: columns a power of two apart would fall into the same sets of a level 1
  // cache and push each other out.
  template <typename T>
  using Column = std::array<T, kPageNodes + (sizeof(T) < 64 ? 64 / sizeof(T) : 1)>;

  enum class State : std::uint8_t { dead, alive, released };  // released: alive, and its last user let go

  struct Page {
    Column<State> state{};
    Column<std::int64_t> parent{};  // id value; -1: root
    Column<std::int64_t> attach{};
    Column<std::int64_t> begin{};  // path position of the first token
    Column<std::int64_t> n_tokens{};
    Column<TokenId> first_token{};   // kNoToken: no tokens
    Column<TokenId> last_token{};    // likewise
    Column<bool> forked_at_begin{};  // had a child at attach 0, which may match where the node itself does not
    Column<std::int64_t> n_slots{};  // allocated tokens
    Column<SlotRun> last_run{};      // of the segment; n 0: none
    Column<std::int64_t> n_kv{};
    Column<std::int64_t> n_pins{};
    Column<std::uint64_t> last_use{};
    Column<std::vector<TokenId>> tokens;
    Column<std::vector<NodeId>> children;
    Column<KvSegment> segment;
    std::int64_t n_alive = 0;
  };

  static std::size_t row(NodeId node) { return static_cast<std::size_t>(node.value) % kPageNodes; }
  static std::size_t number(NodeId node) { return static_cast<std::size_t>(node.value) / kPageNodes; }
  const Page& page(NodeId node) const { return *pages[number(node)]; }
  Page& page(NodeId node) { return *pages[number(node)]; }
  bool alive(NodeId node) const noexcept {
    if (node.value < 0 || node.value >= id_bound) return false;
    const Page* p = pages[number(node)].get();
    return p != nullptr && p->state[row(node)] != State::dead;
  }

  std::vector<std::unique_ptr<Page>> pages;
  std::vector<NodeId> roots;
  std::unordered_map<std::int64_t, ChildIndex>
      indexes;  // of nodes with many children that were searched; -1: the roots
  KvPool* pool = nullptr;
  std::int64_t id_bound = 0;
  std::int64_t n_nodes = 0;
  std::uint64_t epoch = 0;
  std::uint64_t clock = 0;
};

}  // namespace banyan
