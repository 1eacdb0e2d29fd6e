#include "banyan/tree_file.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>

#include "banyan/error.hpp"
#include "banyan/read_file.hpp"
#include "base/json.hpp"

namespace banyan {

namespace {

using nlohmann::json;

constexpr std::int64_t kMaxTokens = std::numeric_limits<std::int32_t>::max();  // of a tree, in all
constexpr std::int64_t kMaxNodes = 1 << 20;    // of a tree by levels: two small numbers could ask for any amount
constexpr std::int64_t kDefaultHeadDim = 128;  // ragged files do not say

// A file or a part of it, by the name that error messages give it.
struct Source {
  const json& value;
  std::string where;

  [[noreturn]] void fail(const std::string& message) const { throw Error(ErrorCode::bad_file, where, message); }
  const json& field(const char* name) const {
    const auto it = value.find(name);
    if (it == value.end()) fail("lacks \"" + std::string(name) + "\".\n" + bench_tree_format());
    return *it;
  }
  std::int64_t integer(const json& x, const std::string& what, std::int64_t least, std::int64_t most) const {
    if (!x.is_number_integer()) fail(what + " is " + x.dump() + ", not an integer");
    const bool fits = !x.is_number_unsigned() || x.get<std::uint64_t>() <= static_cast<std::uint64_t>(kMaxTokens);
    const std::int64_t n = fits ? x.get<std::int64_t>() : kMaxTokens;
    if (!fits || n < least || n > most) {
      fail(what + " is " + x.dump() + ", not in " + std::to_string(least) + " ... " + std::to_string(most));
    }
    return n;
  }
  std::vector<std::int64_t> integers(const char* name, std::int64_t least) const {
    std::vector<std::int64_t> out;
    const json& list = field(name);
    if (!list.is_array()) fail("\"" + std::string(name) + "\" is no list");
    for (const json& x : list) {
      out.push_back(integer(x, std::string(name) + "[" + std::to_string(out.size()) + "]", least, kMaxTokens));
    }
    return out;
  }
};

struct NodeShape {
  std::int64_t parent, n_tokens, n_rows;
};

[[noreturn]] void fail_form(const std::string& where, const std::string& message) {
  throw Error(ErrorCode::bad_file, where, message + ".\n" + bench_tree_format());
}

json read_tree_file(const std::string& path) {
  const std::string text = read_file(path);
  try {
    return parse_json(text, path);
  } catch (const Error& error) {
    fail_form("", error.what());
  }
}

const json& trees_of(const json& file, const std::string& path) {
  const auto it = file.find("trees");
  if (it == file.end() || !it->is_array()) fail_form(path, "has no list \"trees\"");
  for (std::size_t i = 0; i < it->size(); ++i) {
    const auto name = (*it)[i].find("name");
    if (name == (*it)[i].end() || !name->is_string()) {
      fail_form(path, "trees[" + std::to_string(i) + "] has no \"name\"");
    }
  }
  return *it;
}

AttentionShape parse_heads(const Source& tree, const std::string& name, std::int64_t head_dim) {
  const auto digits = std::min(name.find_first_of("0123456789"), name.size());
  const char* end = name.data() + name.size();
  AttentionShape shape{0, 0, head_dim, 2};
  auto read = std::from_chars(name.data() + digits, end, shape.n_heads_q);
  shape.n_heads_kv = shape.n_heads_q;
  if (read.ec == std::errc{} && read.ptr != end && *read.ptr == '/') {
    read = std::from_chars(read.ptr + 1, end, shape.n_heads_kv);
  }
  if (read.ec != std::errc{} || read.ptr != end || shape.n_heads_q < 1 || shape.n_heads_kv < 1 ||
      shape.n_heads_q % shape.n_heads_kv != 0) {
    tree.fail("heads \"" + name + "\" is not of the form gqa32/8, with the first a multiple of the second");
  }
  return shape;
}

std::vector<NodeShape> read_levels(const Source& tree) {
  const auto n_nodes = tree.integers("nodes_per_level", 1);
  const auto n_tokens = tree.integers("tokens_per_node", 1);
  if (n_nodes.size() != n_tokens.size() || n_nodes.empty()) {
    tree.fail("has " + std::to_string(n_nodes.size()) + " nodes_per_level and " + std::to_string(n_tokens.size()) +
              " tokens_per_node; there must be as many of both, and at least one");
  }
  std::vector<NodeShape> nodes;
  std::int64_t above = 0;  // first node of the level above
  for (std::size_t level = 0; level < n_nodes.size(); ++level) {
    const auto first = static_cast<std::int64_t>(nodes.size());
    if (n_nodes[level] > kMaxNodes - first) tree.fail("has more than 2^20 nodes");
    for (std::int64_t j = 0; j < n_nodes[level]; ++j) {
      const std::int64_t parent = level == 0 ? -1 : above + j * n_nodes[level - 1] / n_nodes[level];
      nodes.push_back({parent, n_tokens[level], 1});
      if (parent >= 0) nodes[static_cast<std::size_t>(parent)].n_rows = 0;
    }
    above = first;
  }
  return nodes;
}

std::vector<NodeShape> read_ragged(const Source& tree) {
  const json& list = tree.field("nodes");
  if (!list.is_array()) tree.fail("\"nodes\" is no list");
  std::vector<NodeShape> nodes;
  for (const json& x : list) {
    const auto i = static_cast<std::int64_t>(nodes.size());
    const Source node{x, tree.where + ": node " + std::to_string(i)};
    if (!x.is_array() || x.size() != 3) node.fail("is " + x.dump() + ", not [parent, n_tokens, n_rows]");
    NodeShape n{};
    n.parent = node.integer(x[0], "parent", -1, i - 1);
    n.n_tokens = node.integer(x[1], "n_tokens", 0, kMaxTokens);
    n.n_rows = node.integer(x[2], "n_rows", 0, n.n_tokens);
    nodes.push_back(n);
  }
  return nodes;
}

void grow(BenchTree& out, const std::vector<NodeShape>& nodes, const Source& source) {
  std::int64_t n_slots = 0;
  for (const NodeShape& n : nodes) {
    n_slots += (n.n_tokens + kKvBlock - 1) / kKvBlock * kKvBlock;
    if (n_slots > kMaxTokens) source.fail("has more than 2^31 - 1 tokens");
  }
  out.pool = std::make_unique<KvPool>(std::max<std::int64_t>(n_slots, 1));
  out.tree = std::make_unique<SequenceTree>(out.pool.get());
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const NodeShape& n = nodes[i];
    tokens.resize(static_cast<std::size_t>(n.n_tokens));
    std::iota(tokens.begin(), tokens.end(), static_cast<TokenId>(i));
    // Ids of a fresh tree count up like the file's nodes.
    const NodeId node = n.parent < 0 ? out.tree->add_root(tokens) : out.tree->fork(NodeId{n.parent});
    if (n.parent >= 0) out.tree->append(node, tokens);
    if (out.tree->end_position(node) > kMaxTokens) source.fail("has a path of more than 2^31 - 1 tokens");
    if (!out.tree->allocate_kv(node, n.n_tokens)) source.fail("does not fit in its own pool");
    out.tree->commit_kv(node, n.n_tokens - n.n_rows);
    if (n.n_rows > 0) out.spans.push_back({node, n.n_tokens - n.n_rows, n.n_tokens, n.n_rows, true});
  }
}

}  // namespace

std::string bench_tree_format() {
  return R"(A file of trees is {"trees": [TREE, ...]}. A TREE is one of
  {"name": "a", "nodes_per_level": [1, 8], "tokens_per_node": [512, 16]}
      so many nodes of so many tokens on each level, spread evenly below those of the level above; each leaf has a row
  {"name": "b", "nodes": [[-1, 512, 0], [0, 16, 1], [0, 40, 1]]}
      [index of the parent or -1, tokens, rows] of each node, parents first; a node's rows are its last tokens)";
}

std::vector<std::string> bench_tree_names(const std::string& path) {
  const json file = read_tree_file(path);
  std::vector<std::string> names;
  for (const json& tree : trees_of(file, path)) names.push_back(tree["name"].get<std::string>());
  return names;
}

BenchTree load_bench_tree(const std::string& path, const std::string& name) {
  const json file = read_tree_file(path);
  const json& trees = trees_of(file, path);
  const auto it = std::find_if(trees.begin(), trees.end(), [&](const json& t) { return t["name"] == name; });
  if (it == trees.end()) {
    throw Error(ErrorCode::usage, path,
                "has no tree \"" + name + "\"; its " + std::to_string(trees.size()) + " trees begin with \"" +
                    (trees.empty() ? "" : trees[0]["name"].get<std::string>()) + "\"");
  }
  const Source tree{*it, path + ": tree " + name};
  BenchTree out;
  out.name = name;
  if (const auto source = it->find("source"); source != it->end() && source->is_string()) {
    out.source = source->get<std::string>();
  }
  const Source whole{file, path};
  const std::int64_t head_dim =
      file.contains("head_dim") ? whole.integer(file["head_dim"], "head_dim", 1, 1024) : kDefaultHeadDim;
  const json heads = it->value("heads", json::array());
  if (!heads.is_array()) tree.fail("\"heads\" is no list");
  for (const json& h : heads) {
    if (!h.is_string()) tree.fail("heads has " + h.dump() + ", not a name");
    out.heads.push_back({h.get<std::string>(), parse_heads(tree, h.get<std::string>(), head_dim)});
  }
  grow(out, it->contains("nodes") ? read_ragged(tree) : read_levels(tree), tree);
  return out;
}

}  // namespace banyan
