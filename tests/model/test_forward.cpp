#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

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

TEST_CASE("forward: KV in f16 and bf16 stays near f32") {
  const Golden golden = tiny_golden();
  const auto model = load_oracle(kTinyGguf);
  // Rounding of K and V to 11 and 8 bits moves logits of size 10 by about 1e-2 and 1e-1.
  CHECK(max_difference(flat_logits(model, golden.prompt, DType::f16), golden.logits) <= 0.05F);
  CHECK(max_difference(flat_logits(model, golden.prompt, DType::bf16), golden.logits) <= 0.5F);
}
