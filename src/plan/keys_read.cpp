#include "plan/keys_read.hpp"

#include "tree/storage.hpp"

namespace banyan {

namespace {

using Storage = SequenceTree::Storage;

// Whether the token of row `row` is on the path of the row behind it. If of none there, it is on no row's path: rows
// are numbered depth first, children attached further behind first.
bool is_continued(const Storage& storage, const Plan& plan, std::size_t row) {
  if (row + 1 == plan.nodes.size()) return false;
  const NodeId node = plan.nodes[row];
  NodeId at = plan.nodes[row + 1];
  std::int64_t n_on_path = storage.page(node).n_tokens[Storage::row(node)];  // of the node's tokens
  while (at > node) {
    const Storage::Page& page = storage.page(at);
    n_on_path = page.attach[Storage::row(at)];
    at = NodeId{page.parent[Storage::row(at)]};
  }
  return at == node && plan.positions[row] < storage.page(node).begin[Storage::row(node)] + n_on_path;
}

}  // namespace

KeysRead keys_read(const SequenceTree& tree, const Plan& plan) {
  KeysRead n;
  for (const AttentionCall& call : plan.calls) n.shared += call.n_keys;
  for (std::size_t row = 0; row < plan.nodes.size(); ++row) {
    if (!is_continued(tree.storage(), plan, row)) n.unshared += plan.positions[row] + 1;
  }
  return n;
}

}  // namespace banyan
