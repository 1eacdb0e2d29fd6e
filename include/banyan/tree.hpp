// The sequence tree: a forest of token runs with one KV segment per node. Layer 2.
//
// A node is a run of tokens. It hangs on its parent at `attach`: the number of the parent's tokens that are on its path
// (0 … n_tokens(parent)). So a fork anywhere inside a run copies and moves nothing: handles, tokens and KV slots of the
// run stay as they are, and the planner alone sees the run in pieces.
//
//     root  [ few-shot prompt ............ ]
//                          |attach=20     |attach=34
//                      child A          child B ...
//
// Invariants: parent(id) < id; ids are never reused; attach(child) <= n_tokens(parent); n_kv(node) <= n_tokens(node);
// slots(node) covers at least n_kv tokens. Storage is a structure of arrays in pages; memory of dead pages is returned.
// Threads: none; the session loop alone writes (fork, append, prune), between steps.
// A NodeId that is dead, or was never given out by this tree, throws Error{stale_handle} naming it, from every call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "banyan/kv_pool.hpp"
#include "banyan/types.hpp"

namespace banyan {

struct NodeId {
  std::int64_t value = -1;
  bool valid() const { return value >= 0; }
  friend auto operator<=>(const NodeId&, const NodeId&) = default;
};
constexpr NodeId kNoNode{};

// A place on a path: behind the first `pos` tokens of `node`.
struct TreePosition {
  NodeId node;
  std::int64_t pos = 0;
  friend bool operator==(const TreePosition&, const TreePosition&) = default;
};

class SequenceTree {
 public:
  // The pool may be null: a tree of tokens alone (scripted models), whose plans have no addresses. It must outlive the
  // tree.
  explicit SequenceTree(KvPool* pool = nullptr);
  ~SequenceTree();
  SequenceTree(const SequenceTree&) = delete;
  SequenceTree& operator=(const SequenceTree&) = delete;

  // --- structure -----------------------------------------------------------------------------------------------
  NodeId add_root(std::span<const TokenId> tokens);
  // New empty child behind the first `pos` tokens of `node`; throws Error{usage} unless 0 <= pos <= n_tokens(node).
  NodeId fork(NodeId node, std::int64_t pos);
  NodeId fork(NodeId node) { return fork(node, n_tokens(node)); }
  // Adds tokens at the end of a run. Children keep their attach positions.
  void append(NodeId node, std::span<const TokenId> tokens);
  void append(NodeId node, TokenId token) { append(node, {&token, 1}); }
  // Puts a token in the place of one that drawn_token() stood for; throws Error{usage} where none does. Until then no
  // prefix matches there, but the place has a position, and may have KV.
  void set_token(NodeId node, std::int64_t pos, TokenId token);
  // Room for `n` further tokens, so that appending them allocates nothing.
  void reserve(NodeId node, std::int64_t n);
  // Drops the tokens (and KV) behind the first n; throws Error{usage} if a child is attached behind n.
  void truncate(NodeId node, std::int64_t n);
  // Removes the node and everything below it, pinned or not, and frees the KV. Handles to it become stale. A parent
  // that was released and has no children left now goes with it.
  void prune(NodeId node);

  // Walks the forest from the roots along `tokens`; returns the deepest stored position that matches (of equally deep
  // ones the first that a walk in id order meets; kNoNode if nothing matches, not even one token). Takes one comparison
  // per stored token that matches, and a look at each child passed, or, where a node has many, one at each offset where
  // some attach.
  TreePosition find_prefix(std::span<const TokenId> tokens) const;
  // find_prefix, then a new node there (or a new root) with the tokens that are left, possibly none. The new node is
  // always the caller's own; a plain list of prompts becomes a tree by itself.
  NodeId insert(std::span<const TokenId> tokens);

  // --- interest ------------------------------------------------------------------------------------------------
  // Counts of users. release() drops one (throws Error{usage} if there is none). A node whose last user has let go
  // goes as soon as it has no children, and then its released parents likewise; while it has children it loses the
  // tokens behind its last child's attach position. A node that was never pinned stays until it is pruned.
  void pin(NodeId node);
  void release(NodeId node);
  std::int64_t n_pins(NodeId node) const;

  // --- reading -------------------------------------------------------------------------------------------------
  bool alive(NodeId node) const noexcept;
  NodeId parent(NodeId node) const;                     // kNoNode for a root
  std::int64_t attach(NodeId node) const;               // 0 for a root
  std::span<const NodeId> children(NodeId node) const;  // in id order
  std::span<const NodeId> roots() const;                // in id order
  std::span<const TokenId> tokens(NodeId node) const;
  std::int64_t n_tokens(NodeId node) const;
  std::int64_t begin_position(NodeId node) const;  // path position of the node's first token
  std::int64_t end_position(NodeId node) const { return begin_position(node) + n_tokens(node); }
  // The whole path root -> node, written over `out`.
  void path_tokens(NodeId node, std::vector<TokenId>& out) const;
  std::int64_t n_nodes() const;   // alive
  std::int64_t id_bound() const;  // every id given out is below it
  std::int64_t n_children(NodeId node) const { return static_cast<std::int64_t>(children(node).size()); }
  // Grows with each change that moves what a plan refers to: of structure, by truncate, by evict_kv -- not by append
  // nor allocate_kv, which only add at the end, nor by set_token. Plans built at an older epoch are rebuilt.
  std::uint64_t epoch() const;

  // --- KV addresses ------------------------------------------------------------------------------------------------
  // Without a pool allocate_kv, slots and slot_of throw Error{usage}; the other calls keep count of computed tokens.
  // Leading tokens of the node whose KV is valid.
  std::int64_t n_kv(NodeId node) const;
  // Gives the node slots for its first n tokens (n <= n_tokens; those it has stay where they are). False: the pool
  // has not the room now; nothing changed.
  bool allocate_kv(NodeId node, std::int64_t n);
  // Called when a step that computed the KV of tokens [n_kv, n) was submitted. Throws Error{usage} unless
  // n_kv <= n <= allocated tokens (n_tokens without a pool).
  void commit_kv(NodeId node, std::int64_t n);
  // Frees the slots behind the node's first n_keep tokens. Its tokens stay, and n_kv becomes at most n_keep: a later
  // step computes them again.
  void evict_kv(NodeId node, std::int64_t n_keep = 0);
  // Gives slots that were set aside for growth back to the pool: for a node that is not going to grow soon.
  void trim_kv(NodeId node);
  std::span<const SlotRun> slots(NodeId node) const;
  std::int64_t slot_of(NodeId node, std::int64_t pos) const;  // throws Error{usage} unless pos < allocated tokens
  // Marks the path root -> node as used now; eviction takes the least recently used first, deepest first.
  void touch(NodeId node);
  std::uint64_t last_use(NodeId node) const;  // 0: never touched

  // The pages themselves, unchecked, for the library's own layers above (src/tree/storage.hpp): a planner reads
  // thousands of nodes in microseconds.
  struct Storage;
  const Storage& storage() const { return *storage_; }

 private:
  std::unique_ptr<Storage> storage_;
};

}  // namespace banyan
