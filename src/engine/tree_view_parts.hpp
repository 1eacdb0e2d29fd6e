// What the three pictures of a tree have in common. Layer 7, internal. Reads a tree, changes nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "banyan/tokenizer.hpp"
#include "banyan/tree.hpp"

namespace banyan::detail {

// All nodes alive, by id: parents stand before their children.
std::vector<NodeId> alive_nodes(const SequenceTree& tree);

// [id_bound] leaves at or below each node: 1 for a node without children. 0 for dead ids.
std::vector<std::int64_t> count_leaves(const SequenceTree& tree, const std::vector<NodeId>& nodes);

// The run's own text as valid UTF-8, special tokens spelled out; its token ids where there is no tokenizer. A character
// whose bytes lie in two nodes shows as U+FFFD in both.
std::string node_text(const SequenceTree& tree, const Tokenizer* tokenizer, NodeId node);

// The HTML page (tree_view.html), with kTreeViewMark where the data goes.
extern const char* const kTreeViewPage;
constexpr const char* kTreeViewMark = "BANYAN_TREE_JSON";

}  // namespace banyan::detail
