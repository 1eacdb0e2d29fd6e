// Graphviz DOT. A file of its own, as Boost.Graph's writer alone takes longer to compile than the other pictures.
#include <algorithm>
#include <boost/graph/graphviz.hpp>
#include <boost/property_map/function_property_map.hpp>
#include <ostream>
#include <string_view>

#include "banyan/graph.hpp"
#include "banyan/tree_view.hpp"
#include "engine/tree_view_parts.hpp"

namespace banyan {
namespace {

constexpr std::size_t kLabelChars = 80;  // of a text's begin; the whole text is the tooltip

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

// The first characters of valid UTF-8.
std::string_view first_characters(std::string_view text, std::size_t n) {
  std::size_t end = 0;
  for (; end < text.size(); ++end) {
    if (starts_character(text[end]) && n-- == 0) break;
  }
  return text.substr(0, end);
}

// Inside the quotes of a DOT string that is shown: Graphviz reads backslashes and HTML entities there, and ends at NUL.
// Control characters become their pictures (U+2400 + code), lines end flush left. `backslash` is how one is written:
// Graphviz unescapes labels once, but tooltips twice (seen in 2.43; a version that does it once shows two of them).
constexpr std::string_view kLabelBackslash = R"(\\)", kTooltipBackslash = R"(\\\\)";
std::string escaped(std::string_view text, std::string_view backslash) {
  std::string out;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\l";
    } else if (c == '"') {
      out += "\\\"";
    } else if (c == '\\') {
      out += backslash;
    } else if (c == '&') {
      out += "&amp;";
    } else if (code < 0x20) {
      out += "\xE2\x90";
      out += static_cast<char>(0x80 + code);
    } else if (code == 0x7F) {
      out += "\xE2\x90\xA1";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void write_tree_dot(const SequenceTree& tree, const Tokenizer* tokenizer, std::ostream& out) {
  const SequenceGraph graph(tree);
  const auto n_leaves = detail::count_leaves(tree, graph.vertices());
  const auto write_node = [&](std::ostream& o, NodeId node) {
    const std::string text = detail::node_text(tree, tokenizer, node);
    const std::string_view begin = first_characters(text, kLabelChars);
    const auto n_tokens = tree.n_tokens(node), n = n_leaves[static_cast<std::size_t>(node.value)];
    o << "[label=\"" << node.value << ": " << n_tokens << (n_tokens == 1 ? " token, " : " tokens, ") << n
      << (n == 1 ? " leaf\\l" : " leaves\\l") << escaped(begin, kLabelBackslash)
      << (begin.size() < text.size() ? "…" : "") << "\\l\", tooltip=\"" << escaped(text, kTooltipBackslash) << "\"]";
  };
  // Only a fork inside a run says where.
  const auto write_edge = [&](std::ostream& o, const SequenceGraph::Edge& edge) {
    const auto attach = tree.attach(edge.target);
    if (attach < tree.n_tokens(edge.source)) o << "[label=\"at " << attach << "\"]";
  };
  const auto write_graph = [](std::ostream& o) {
    o << "rankdir=LR;\nnode [shape=box, fontname=\"monospace\"];\nedge [fontname=\"monospace\"];\n";
  };
  const auto id = boost::make_function_property_map<NodeId>([](NodeId node) { return node.value; });
  boost::write_graphviz(out, graph, write_node, write_edge, write_graph, id);
}

}  // namespace banyan
