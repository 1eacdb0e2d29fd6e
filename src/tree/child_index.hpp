// The children of one node by where they attach and the token they begin with, for nodes that have many: finding a
// prefix among a hundred thousand prompts below one root must not look at each of them. Internal to layer 2.
//
// It is brought up to date when it is asked, so that forking and appending cost nothing. What may have changed since a
// child was taken in (its first token, or whether something hangs in front of it) is told by unsettle(). Entries of
// dead children are passed over, and go when they are more than the living.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "banyan/tree.hpp"

namespace banyan {

class ChildIndex {
 public:
  using Storage = SequenceTree::Storage;

  // May the child's path be the query's at its first token? `begin`: path position of the parent's first token;
  // `matched`: how many of the parent's tokens match.
  static bool may_match(const Storage& s, NodeId child, std::int64_t begin, std::int64_t matched,
                        std::span<const TokenId> query);

  // Those of `children` (all children of the node, by id) that may match, by id.
  std::vector<NodeId> find(const Storage& s, std::span<const NodeId> children, std::int64_t begin, std::int64_t matched,
                           std::span<const TokenId> query);
  void unsettle(NodeId child) { loose_.push_back(child); }

 private:
  void update(const Storage& s, std::span<const NodeId> children);
  void settle(const Storage& s, NodeId child);

  std::unordered_map<std::uint64_t, std::vector<NodeId>> by_token_;  // attach << 32 | first token
  std::vector<std::int64_t> attaches_;                               // all that by_token_ has, ascending
  std::vector<NodeId> loose_;  // looked at one by one: unsettled since, or with a child attached in front of all tokens
  NodeId last_;                // the last that was taken in
  std::size_t n_settled_ = 0;
};

}  // namespace banyan
