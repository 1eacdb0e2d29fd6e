// Pictures of trees: what is in them, and that no text breaks out of them.
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "banyan/tree_view.hpp"
#include "engine/scripted.hpp"

using namespace banyan;
using banyan::test::PieceTokenizer;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

using Writer = void (*)(const SequenceTree&, const Tokenizer*, std::ostream&);

std::string written(Writer write, const SequenceTree& tree, const Tokenizer* tokenizer = nullptr) {
  std::ostringstream out;
  write(tree, tokenizer, out);
  return out.str();
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The data element, as a browser cuts it out: up to the first end tag, whatever stands in the texts.
std::string data_of_page(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"tree-data\">";
  const auto begin = page.find(open);
  REQUIRE(begin != std::string::npos);
  const auto end = page.find("</script", begin);
  REQUIRE(end != std::string::npos);
  return page.substr(begin + open.size(), end - begin - open.size());
}

// DOT with the inside of each quoted string taken out; what was in them goes to `strings`, backslash pairs as they are.
std::string outside_strings(const std::string& dot, std::vector<std::string>& strings) {
  std::string outside;
  bool inside = false;
  for (std::size_t i = 0; i < dot.size(); ++i) {
    if (!inside) outside += dot[i];
    if (dot[i] == '"') {
      if (inside) outside += '"';
      inside = !inside;
      if (inside) strings.emplace_back();
    } else if (inside) {
      strings.back() += dot[i];
      if (dot[i] == '\\') strings.back() += dot.at(++i);
    }
  }
  REQUIRE(!inside);
  return outside;
}

// Two problems under a root of 4 tokens, one of them forked inside its run; 3 leaves.
//
//     0 [1 2 3 4] ─┬─ 1 [5 6] ─┬(at 1)─ 3 [7]
//                  │           └─────── 4 [8 9]
//                  └─ 2 [5]
struct Small {
  SequenceTree tree;
  Small() {
    const std::vector<TokenId> root{1, 2, 3, 4}, problem{5, 6}, last{8, 9};
    const NodeId r = tree.add_root(root);
    const NodeId a = tree.fork(r);
    tree.append(a, problem);
    tree.append(tree.fork(r), 5);
    tree.append(tree.fork(a, 1), 7);
    tree.append(tree.fork(a), last);
  }
};

const std::vector<std::string> kHostile{
    "\"quoted\" \\N \\",
    std::string("nul\0nul", 7),
    "bad \xff\xc3 utf-8 \xe2\x82",
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "&quot;] evil -> worse; // &amp;",
    "\"]; evil -> worse [label=\"",
    "line\r\n\ttab \x1b[31m \x7f",
};

}  // namespace

TEST_CASE("tree view: JSON has each node with its edge, lengths and leaves") {
  const Small small;
  const json nodes = json::parse(written(write_tree_json, small.tree)).at("nodes");
  const json expected = json::parse(R"([
    {"id": 0, "parent": null, "attach": 0, "n_tokens": 4, "position": 0, "n_leaves": 3, "text": "1 2 3 4"},
    {"id": 1, "parent": 0,    "attach": 4, "n_tokens": 2, "position": 4, "n_leaves": 2, "text": "5 6"},
    {"id": 2, "parent": 0,    "attach": 4, "n_tokens": 1, "position": 4, "n_leaves": 1, "text": "5"},
    {"id": 3, "parent": 1,    "attach": 1, "n_tokens": 1, "position": 5, "n_leaves": 1, "text": "7"},
    {"id": 4, "parent": 1,    "attach": 2, "n_tokens": 2, "position": 6, "n_leaves": 1, "text": "8 9"}])");
  CHECK(nodes == expected);
}

TEST_CASE("tree view: pruned nodes are not shown") {
  Small small;
  small.tree.prune(NodeId{1});
  const json nodes = json::parse(written(write_tree_json, small.tree)).at("nodes");
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[0]["n_leaves"] == 1);
  CHECK(nodes[1]["id"] == 2);
  CHECK(written(write_tree_dot, small.tree).find("0->1") == std::string::npos);
}

TEST_CASE("tree view: DOT has each node and edge, named by id, and says where a run is forked") {
  const Small small;
  const std::string dot = written(write_tree_dot, small.tree);
  for (const char* edge : {"0->1 ;", "0->2 ;", "1->3 [label=\"at 1\"];", "1->4 ;"}) {
    CAPTURE(edge);
    CHECK(dot.find(edge) != std::string::npos);
  }
  CHECK(dot.find("0[label=\"0: 4 tokens, 3 leaves\\l1 2 3 4\\l\", tooltip=\"1 2 3 4\"];") != std::string::npos);
}

TEST_CASE("tree view: DOT shortens labels between characters") {
  const PieceTokenizer tokenizer({"€"});
  SequenceTree tree;
  tree.add_root(std::vector<TokenId>(200, 0));
  const std::string dot = written(write_tree_dot, tree, &tokenizer);
  CHECK(sanitize_utf8(dot) == dot);
  CHECK(dot.find("€…\\l") != std::string::npos);
}

TEST_CASE("tree view: hostile texts stay texts in all three forms") {
  const PieceTokenizer tokenizer(kHostile);
  SequenceTree tree;
  const NodeId root = tree.add_root({});
  for (TokenId i = 0; i < static_cast<TokenId>(kHostile.size()); ++i) tree.append(tree.fork(root), i);

  const std::string text = written(write_tree_json, tree, &tokenizer);
  const json nodes = json::parse(text).at("nodes");
  REQUIRE(nodes.size() == kHostile.size() + 1);
  for (std::size_t i = 0; i < kHostile.size(); ++i) CHECK(nodes[i + 1]["text"] == sanitize_utf8(kHostile[i]));

  const std::string page = written(write_tree_html, tree, &tokenizer);
  CHECK(json::parse(data_of_page(page)) == json::parse(text));
  CHECK(data_of_page(page).find('<') == std::string::npos);
  CHECK(page.find('\0') == std::string::npos);
  CHECK(sanitize_utf8(page) == page);

  const std::string dot = written(write_tree_dot, tree, &tokenizer);
  CHECK(dot.find('\0') == std::string::npos);
  CHECK(sanitize_utf8(dot) == dot);
  std::vector<std::string> strings;
  const std::string outside = outside_strings(dot, strings);
  CHECK(outside.find("evil") == std::string::npos);
  const std::regex node(R"(\d+\[label="", tooltip=""\];)"), edge(R"(0->\d+ ;)");
  const auto count = [&](const std::regex& what) {
    return std::distance(std::sregex_iterator(outside.begin(), outside.end(), what), std::sregex_iterator());
  };
  CHECK(count(node) == static_cast<std::ptrdiff_t>(kHostile.size()) + 1);
  CHECK(count(edge) == static_cast<std::ptrdiff_t>(kHostile.size()));
  // Behind two font names, label and tooltip of the root, and the first text's label.
  CHECK(strings.at(5) == R"(\"quoted\" \\\\N \\\\)");
  CHECK(strings.back() == "line␍\\l␉tab ␛[31m ␡");
}

TEST_CASE("tree view: a page needs nothing from outside") {
  const std::string page = written(write_tree_html, Small().tree);
  CHECK(page.find("<noscript>") != std::string::npos);
  for (const char* outside : {"http:", "https:", "src=", "href=", "url(", "@import"}) {
    CAPTURE(outside);
    CHECK(page.find(outside) == std::string::npos);
  }
}

TEST_CASE("tree view: an empty tree is a picture, too") {
  const SequenceTree tree;
  const json empty = json::parse(R"({"nodes": []})");
  CHECK(json::parse(written(write_tree_json, tree)) == empty);
  CHECK(json::parse(data_of_page(written(write_tree_html, tree))) == empty);
  const std::string dot = written(write_tree_dot, tree);
  CHECK(dot.starts_with("digraph"));
  CHECK(dot.find("->") == std::string::npos);
}

TEST_CASE("tree view: the file's ending chooses, and a file is written whole or not at all") {
  const Small small;
  const fs::path dir = fs::temp_directory_path() / ("banyan_tree_view_" + std::to_string(std::random_device{}()));
  fs::create_directories(dir);
  const std::vector<std::pair<const char*, Writer>> kinds{
      {"tree.json", write_tree_json}, {"tree.dot", write_tree_dot}, {"a.b.html", write_tree_html}};
  for (const auto& [name, write] : kinds) {
    CAPTURE(name);
    write_tree_view(small.tree, nullptr, (dir / name).string());
    CHECK(read_file(dir / name) == written(write, small.tree));
  }
  CHECK(std::distance(fs::directory_iterator(dir), {}) == 3);

  const auto code_of = [&](const fs::path& path) {
    try {
      write_tree_view(small.tree, nullptr, path.string());
    } catch (const Error& e) {
      CHECK(e.where() == path.string());
      return to_string(e.code());
    }
    return std::string_view("none");
  };
  for (const char* name : {"tree.svg", "tree", "html", ".html", "tree.HTML", "tree.html.gz"}) {
    CAPTURE(name);
    CHECK(code_of(dir / name) == "usage");
  }
  CHECK(code_of(dir / "absent" / "tree.html") == "device");
  fs::create_directory(dir / "folder.html");
  CHECK(code_of(dir / "folder.html") == "device");
  CHECK(std::distance(fs::directory_iterator(dir), {}) == 4);
  fs::remove_all(dir);
}
