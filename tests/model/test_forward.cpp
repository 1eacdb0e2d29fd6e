#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "banyan/plan.hpp"
#include "banyan/tree.hpp"
#include "model_test.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

struct Golden {
  std::vector<TokenId> prompt, greedy;
  std::vector<float> logits;  // [prompt, vocab_size]
};

Golden tiny_golden() {
  const auto json = nlohmann::json::parse(read_file(BANYAN_SOURCE_DIR "/models/tiny/golden.json"));
  Golden golden{.prompt = json["prompt"], .greedy = json["greedy"], .logits = {}};
  for (const auto& row : json["logits"]) {
    for (const auto& x : row) golden.logits.push_back(x.get<float>());
  }
  return golden;
}

}  // namespace

TEST_CASE("forward: the tiny model gives the float64 script's logits from both file forms, and the forms agree") {
  const Golden golden = tiny_golden();
  const auto dir = flat_logits(load_oracle(kTinyDir), golden.prompt);
  const auto gguf = flat_logits(load_oracle(kTinyGguf), golden.prompt);
  CHECK(max_difference(dir, golden.logits) <= 1e-4F);  // f32 activations through two layers, logits below 20
  CHECK(dir == gguf);                                  // same weights in the same order: same bits
}

TEST_CASE("forward: greedy continuation, one row a step, equals the float64 script's") {
  const Golden golden = tiny_golden();
  const auto n = static_cast<int>(golden.greedy.size());
  CHECK(greedy(load_oracle(kTinyGguf), golden.prompt, n).ids == golden.greedy);
}

TEST_CASE("forward: KV in f16, bf16 and f8_e4m3 stays near f32; other types are refused by name") {
  const Golden golden = tiny_golden();
  const auto model = load_oracle(kTinyGguf);
  // Rounding of K and V to 11, 8 and 4 bits moves logits of size 10 by about 1e-2, 1e-1 and 1.
  CHECK(max_difference(flat_logits(model, golden.prompt, DType::f16), golden.logits) <= 0.05F);
  CHECK(max_difference(flat_logits(model, golden.prompt, DType::bf16), golden.logits) <= 0.5F);
  const auto cpu = Model::load(kTinyGguf, {.compute = Compute::f32});
  CHECK(max_difference(flat_logits(cpu, golden.prompt, DType::f8_e4m3), golden.logits) <= 4.0F);
  CHECK_THROWS_WITH_AS(Forward(model, DType::q8_0, 16), doctest::Contains("q8_0"), Error);
  // K and V of two layers and two heads: eight rows of eight elements, and a scale each.
  CHECK(KvStore::bytes_per_token(model->config(), DType::bf16) == 8 * 8 * 2);
  CHECK(KvStore::bytes_per_token(model->config(), DType::f8_e4m3) == 8 * (8 + 4));
}

TEST_CASE("forward: the CPU backend, plain and fast, gives the float64 script's logits") {
  const Golden golden = tiny_golden();
  for (const bool reference : {false, true}) {
    for (const bool deterministic : {false, true}) {
      CAPTURE(reference);
      CAPTURE(deterministic);
      const auto model =
          Model::load(kTinyGguf, {.compute = Compute::f32, .deterministic = deterministic, .reference = reference});
      CHECK(model->compute() == Compute::f32);
      CHECK(max_difference(flat_logits(model, golden.prompt), golden.logits) <= 1e-4F);
    }
  }
  // 8-bit mantissas of weights and activations, two layers, logits of about 10.
  const auto bf16_model = Model::load(kTinyGguf, {.compute = Compute::bf16});
  CHECK(bf16_model->compute() == Compute::bf16);
  CHECK(max_difference(flat_logits(bf16_model, golden.prompt), golden.logits) <= 1.0F);
  CHECK(Model::load(kTinyGguf)->compute() != Compute::automatic);
}

TEST_CASE("BL-05: children of one node see their own path alone, and the first is unchanged by the second") {
  const auto model = Model::load(kTinyGguf, {.compute = Compute::f32});
  const auto vocab_size = static_cast<std::size_t>(model->config().vocab_size);
  KvPool pool(64);
  SequenceTree tree(&pool);
  Planner planner;
  Forward forward(model, DType::f32, pool.n_slots());
  Plan plan;
  // Computes the node's tokens [begin, end) and returns the last one's logits.
  const auto compute = [&](NodeId node, std::int64_t begin, bool write_kv) {
    const std::int64_t end = tree.n_tokens(node);
    REQUIRE(tree.allocate_kv(node, end));
    const StepSpan span{.node = node, .begin = begin, .end = end, .n_logits = 1, .write_kv = write_kv};
    planner.build(tree, {&span, 1}, plan);
    const auto logits = forward.run(plan);
    if (write_kv) tree.commit_kv(node, end);
    return std::vector<float>(logits.begin(), logits.end());
  };
  const auto flat = [&](std::vector<TokenId> ids) {
    const auto logits = flat_logits(model, ids);
    return std::vector<float>(logits.end() - static_cast<std::ptrdiff_t>(vocab_size), logits.end());
  };
  const NodeId root = tree.add_root(std::vector<TokenId>{1, 2, 3});
  compute(root, 0, true);
  const NodeId x = tree.fork(root), y = tree.fork(root);
  tree.append(x, std::vector<TokenId>{4, 5});
  tree.append(y, std::vector<TokenId>{6, 7});
  const auto first = compute(x, 0, true);
  CHECK(max_difference(compute(y, 0, true), flat({1, 2, 3, 6, 7})) <= 1e-4F);
  CHECK(max_difference(first, flat({1, 2, 3, 4, 5})) <= 1e-4F);
  CHECK(compute(x, 1, false) == compute(x, 1, false));
  CHECK(max_difference(compute(x, 1, false), first) <= 1e-4F);
  CHECK(std::ranges::equal(tree.tokens(root), std::vector<TokenId>{1, 2, 3}));
}
