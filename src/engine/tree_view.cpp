#include "banyan/tree_view.hpp"

#include <cassert>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <string_view>

#include "engine/tree_view_parts.hpp"

namespace banyan {
namespace detail {

std::vector<NodeId> alive_nodes(const SequenceTree& tree) {
  std::vector<NodeId> nodes;
  nodes.reserve(static_cast<std::size_t>(tree.n_nodes()));
  for (NodeId node{0}; node.value < tree.id_bound(); ++node.value) {
    if (tree.alive(node)) nodes.push_back(node);
  }
  return nodes;
}

std::vector<std::int64_t> count_leaves(const SequenceTree& tree, const std::vector<NodeId>& nodes) {
  std::vector<std::int64_t> n_leaves(static_cast<std::size_t>(tree.id_bound()), 0);
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {  // children before their parents
    auto& n = n_leaves[static_cast<std::size_t>(node->value)];
    if (tree.n_children(*node) == 0) n = 1;
    if (const NodeId parent = tree.parent(*node); parent.valid()) n_leaves[static_cast<std::size_t>(parent.value)] += n;
  }
  return n_leaves;
}

std::string node_text(const SequenceTree& tree, const Tokenizer* tokenizer, NodeId node) {
  auto tokens = tree.tokens(node);
  while (!tokens.empty() && is_drawn_token(tokens.back())) tokens = tokens.first(tokens.size() - 1);  // in flight
  if (tokenizer != nullptr) {
    return sanitize_utf8(tokenizer->decode(tokens, tree.begin_position(node) == 0, /*with_special=*/true));
  }
  std::string ids;
  for (const TokenId id : tokens) {
    if (!ids.empty()) ids += ' ';
    ids += std::to_string(id);
  }
  return ids;
}

}  // namespace detail

void write_tree_json(const SequenceTree& tree, const Tokenizer* tokenizer, std::ostream& out) {
  const auto nodes = detail::alive_nodes(tree);
  const auto n_leaves = detail::count_leaves(tree, nodes);
  out << "{\"nodes\": [";
  const char* separator = "\n";
  for (const NodeId node : nodes) {
    nlohmann::ordered_json j;
    j["id"] = node.value;
    j["parent"] = nullptr;
    if (const NodeId parent = tree.parent(node); parent.valid()) j["parent"] = parent.value;
    j["attach"] = tree.attach(node);
    j["n_tokens"] = tree.n_tokens(node);
    j["position"] = tree.begin_position(node);
    j["n_leaves"] = n_leaves[static_cast<std::size_t>(node.value)];
    j["text"] = detail::node_text(tree, tokenizer, node);
    out << separator << j.dump();
    separator = ",\n";
  }
  out << "\n]}\n";
}

void write_tree_html(const SequenceTree& tree, const Tokenizer* tokenizer, std::ostream& out) {
  const std::string_view page = detail::kTreeViewPage;
  const std::string_view mark = detail::kTreeViewMark;
  const auto at = page.find(mark);
  assert(at != std::string_view::npos);
  std::ostringstream json;
  write_tree_json(tree, tokenizer, json);
  out << page.substr(0, at);
  // No text can end the script element or open a comment in it: in JSON '<' stands in strings alone.
  for (const char c : json.view()) {
    if (c == '<') {
      out << "\\u003c";
    } else {
      out << c;
    }
  }
  out << page.substr(at + mark.size());
}

void write_tree_view(const SequenceTree& tree, const Tokenizer* tokenizer, const std::string& path) {
  const auto ending = std::filesystem::path(path).extension();
  const auto write = ending == ".json"   ? write_tree_json
                     : ending == ".dot"  ? write_tree_dot
                     : ending == ".html" ? write_tree_html
                                         : nullptr;
  if (write == nullptr) {
    throw Error(ErrorCode::usage, path,
                "a tree is written as .json, .dot or .html, chosen by the file's ending, which is '" + ending.string() +
                    "' here");
  }
  const std::string partial = path + ".partial";
  const auto fail = [&](const std::string& why) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw Error(ErrorCode::device, path, "cannot be written: " + why);
  };
  errno = 0;
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  if (file) write(tree, tokenizer, file);
  file.close();
  if (!file) fail(std::strerror(errno));
  std::error_code error;
  std::filesystem::rename(partial, path, error);
  if (error) fail(error.message());
}

}  // namespace banyan
