#include <cmath>
#include <cstdio>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>

#include "banyan/error.hpp"
#include "banyan/tree_file.hpp"
#include "tree/plan_check.hpp"

using namespace banyan;

namespace {

const std::string kShared = BANYAN_SHARED_DIR "/bench";

// A file that goes when the test ends.
struct TempFile {
  explicit TempFile(const std::string& text, const std::string& name)
      : path(std::string(BANYAN_BINARY_DIR) + "/" + name) {
    std::ofstream(path) << text;
  }
  ~TempFile() { std::remove(path.c_str()); }
  std::string path;
};

void check_whole_file(const std::string& path, std::size_t n_trees) {
  if (!std::filesystem::exists(path)) {
    MESSAGE("skipped: no " << path);
    return;
  }
  const auto names = bench_tree_names(path);
  CHECK(names.size() == n_trees);
  for (const std::string& tree_name : names) {
    const BenchTree bench = load_bench_tree(path, tree_name);
    CAPTURE(tree_name);
    REQUIRE(!bench.spans.empty());
    for (const bool deterministic : {false, true}) {
      const PlanOptions options{.deterministic = deterministic};
      Plan plan;
      Planner(options).build(*bench.tree, bench.spans, plan);
      test::check_plan(*bench.tree, bench.spans, plan, options);
    }
  }
}

}  // namespace

TEST_CASE("Tree files: every tree of trees.json is planned right") { check_whole_file(kShared + "/trees.json", 93); }
TEST_CASE("Tree files: every tree of ragged.json is planned right") { check_whole_file(kShared + "/ragged.json", 6); }

TEST_CASE("Tree files: both forms, read as they are") {
  const TempFile file(R"({"about": "x", "head_dim": 64, "trees": [
      {"name": "levels", "source": "here", "heads": ["mha32", "gqa32/8"], "nodes_per_level": [2, 3, 6], "tokens_per_node": [5, 4, 1]},
      {"name": "ragged", "heads": [], "nodes": [[-1, 6, 2], [0, 3, 0], [1, 2, 2]]}]})",
                      "tree_file.json");
  CHECK(bench_tree_names(file.path) == std::vector<std::string>{"levels", "ragged"});
  const BenchTree levels = load_bench_tree(file.path, "levels");
  CHECK(levels.source == "here");
  CHECK(levels.heads[0].shape.n_heads_kv == 32);
  CHECK(levels.heads[1].shape.n_heads_q == 32);
  CHECK(levels.heads[1].shape.n_heads_kv == 8);
  CHECK(levels.heads[1].shape.head_dim == 64);
  std::vector<std::int64_t> parents;
  for (NodeId n{0}; n.value < levels.tree->id_bound(); ++n.value) parents.push_back(levels.tree->parent(n).value);
  CHECK(parents == std::vector<std::int64_t>{-1, -1, 0, 0, 1, 2, 2, 3, 3, 4, 4});
  CHECK(levels.spans.size() == 6);
  const BenchTree ragged = load_bench_tree(file.path, "ragged");
  CHECK(ragged.spans == std::vector<StepSpan>{{NodeId{0}, 4, 6, 2, true}, {NodeId{2}, 0, 2, 2, true}});
  CHECK(ragged.tree->n_kv(NodeId{0}) == 4);
}

TEST_CASE("Tree files: the examples of the format, and the file of examples, are read") {
  std::string trees;
  const std::string format = bench_tree_format();
  for (auto at = format.find("  {"); at != std::string::npos; at = format.find("  {", at + 1)) {
    trees += (trees.empty() ? "" : ", ") + format.substr(at, format.find('\n', at) - at);
  }
  const TempFile file("{\"trees\": [" + trees + "]}", "tree_format.json");
  CHECK(load_bench_tree(file.path, "a").spans.size() == 8);
  CHECK(load_bench_tree(file.path, "b").spans.size() == 2);
  check_whole_file(std::string(BANYAN_SOURCE_DIR) + "/examples/trees.json", 3);
}

TEST_CASE("Tree files: what makes no sense is refused with file, tree and node") {
  const auto refuses = [](const std::string& tree, const std::string& message) {
    const TempFile file("{\"trees\": [{\"name\": \"t\", \"heads\": [\"mha8\"]" + tree + "}]}", "bad_tree.json");
    const std::string expected = file.path + ": tree t" + message;
    CHECK_THROWS_WITH_AS(load_bench_tree(file.path, "t"), expected.c_str(), Error);
  };
  refuses("", ": lacks \"nodes_per_level\".\n" + bench_tree_format());
  refuses(R"(, "nodes_per_level": [1, 2], "tokens_per_node": [1])",
          ": has 2 nodes_per_level and 1 tokens_per_node; there must be as many of both, and at least one");
  refuses(R"(, "nodes_per_level": [1, 0], "tokens_per_node": [1, 1])",
          ": nodes_per_level[1] is 0, not in 1 ... 2147483647");
  refuses(R"(, "nodes_per_level": [2147483647, 2147483647], "tokens_per_node": [1, 2147483647])",
          ": has more than 2^20 nodes");
  refuses(R"(, "nodes": [[-1, 1, 0], [1, 1, 0]])", ": node 1: parent is 1, not in -1 ... 0");
  refuses(R"(, "nodes": [[-1, 1, 2]])", ": node 0: n_rows is 2, not in 0 ... 1");
  refuses(R"(, "nodes": [[-1, 1]])", ": node 0: is [-1,1], not [parent, n_tokens, n_rows]");
  refuses(R"(, "nodes": [[-1, 18446744073709551615, 0]])",
          ": node 0: n_tokens is 18446744073709551615, not in 0 ... 2147483647");
  refuses(R"(, "nodes": [[-1, 2.5, 0]])", ": node 0: n_tokens is 2.5, not an integer");
  refuses(R"(, "nodes": [[-1, 2147483647, 0], [-1, 2147483647, 0]])", ": has more than 2^31 - 1 tokens");
  refuses(R"(, "nodes": 3)", ": \"nodes\" is no list");

  const TempFile heads(R"({"trees": [{"name": "t", "heads": ["gqa32/5"], "nodes": []}]})", "bad_heads.json");
  CHECK_THROWS_AS(load_bench_tree(heads.path, "t"), Error);
  const TempFile text("no json", "bad_json.json");
  CHECK_THROWS_WITH_AS(bench_tree_names(text.path), doctest::Contains(bench_tree_format().c_str()), Error);
  const TempFile list("[1]", "bad_list.json");
  CHECK_THROWS_WITH_AS(bench_tree_names(list.path), doctest::Contains(bench_tree_format().c_str()), Error);
  CHECK_THROWS_AS(bench_tree_names(std::string(BANYAN_BINARY_DIR) + "/none.json"), Error);
  try {
    load_bench_tree(heads.path, "other");
    FAIL("found");
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::usage);
  }
}

TEST_CASE("cost: bytes and FLOPs of a tree by hand, shared and unshared; predicted time") {
  const TempFile file(
      R"({"trees": [{"name": "t", "heads": ["gqa4/2"], "nodes": [[-1, 100, 0], [0, 10, 1], [0, 20, 1]]}]})",
      "cost_tree.json");
  const BenchTree bench = load_bench_tree(file.path, "t");
  const AttentionShape shape{4, 2, 8, 2};
  const double kv = 2 * 2 * 8 * 2;   // bytes of one token
  const double row = 2 * 4 * 8 * 4;  // Q and O of one row
  const double partial = 2 * 4 * (8 + 1) * 4;
  Plan plan;
  Planner().build(*bench.tree, bench.spans, plan);
  const PlanCost shared = cost(plan, shape);
  CHECK(shared.n_calls == 3);
  CHECK(shared.bytes == doctest::Approx(130 * kv + 2 * row + 2 * partial));
  CHECK(shared.flops == doctest::Approx(4.0 * 8 * 4 * (110 + 120)));
  const CostModel model{2, 100, 1000, "test"};
  CHECK(predict_us(plan, shape, model) ==
        doctest::Approx(6 + std::max((100 * kv + 2 * row) / 100, 4.0 * 8 * 4 * 200 / 1000) +
                        std::max((10 * kv + partial) / 100, 4.0 * 8 * 4 * 10 / 1000) +
                        std::max((20 * kv + partial) / 100, 4.0 * 8 * 4 * 20 / 1000)));
  Planner({.sharing = PlanOptions::Sharing::unshared}).build(*bench.tree, bench.spans, plan);
  const PlanCost unshared = cost(plan, shape);
  CHECK(unshared.n_calls == 2);
  CHECK(unshared.bytes == doctest::Approx(230 * kv + 2 * row));
  CHECK(unshared.flops == doctest::Approx(shared.flops));
  Planner({.sharing = PlanOptions::Sharing::decomposed}).build(*bench.tree, bench.spans, plan);
  CHECK(cost(plan, shape).bytes == doctest::Approx(230 * kv + 2 * row + 2 * partial));
}

TEST_CASE("to_text: rows, calls and runs, a line each") {
  const TempFile file(R"({"trees": [{"name": "t", "heads": [], "nodes": [[-1, 20, 0], [0, 1, 1], [0, 17, 1]]}]})",
                      "text_tree.json");
  const BenchTree bench = load_bench_tree(file.path, "t");
  Plan plan;
  Planner().build(*bench.tree, bench.spans, plan);
  CHECK(to_text(plan) ==
        "plan: 2 rows, 3 calls, 3 runs, 2 logit rows, epoch 3\n"
        "row 0: node 1 position 20 token 1 -> slot 32 logits\n"
        "row 1: node 2 position 36 token 18 -> slot 64 logits\n"
        "call 0: rows [0, 2) x positions [0, 20) in slots [0, 20)\n"
        "call 1: rows [0, 1) x positions [20, 21) in slots [32, 33)\n"
        "call 2: rows [1, 2) x positions [20, 37) in slots [48, 65)\n");
}

TEST_CASE("CostModel: survives its file; a broken file is refused by field") {
  const CostModel model{1.5, 2.0e4, 3.25e5, "cpu \"test\""};
  const TempFile file("", "cost_model.json");
  save_cost_model(model, file.path);
  CHECK(load_cost_model(file.path) == model);
  const auto refuses = [&](const std::string& text, const std::string& message) {
    std::ofstream(file.path) << text;
    const std::string expected = file.path + ": " + message + "; run `banyan calibrate` again";
    CHECK_THROWS_WITH_AS(load_cost_model(file.path), expected.c_str(), Error);
  };
  refuses("", "is no JSON object");
  refuses("[]", "is no JSON object");
  refuses(R"({"call_us": 1})", "bytes_per_us must be a number");
  refuses(R"({"call_us": -1})", "call_us is -1, but must be positive");
  refuses(R"({"call_us": 0, "bytes_per_us": 0})", "bytes_per_us is 0, but must be positive");
  refuses(R"({"call_us": 0, "bytes_per_us": 1, "flops_per_us": 1})", "machine must be a text");
  CHECK_THROWS_AS(load_cost_model(file.path + ".none"), Error);
  CHECK_THROWS_AS(save_cost_model(model, file.path + ".none/x"), Error);
}
