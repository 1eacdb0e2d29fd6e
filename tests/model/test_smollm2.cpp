// SmolLM2-135M-Instruct against the golden file that tools/golden_smollm2.py makes in float64.
#include <cstdlib>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "model_test.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

// Where the demo keeps the model; empty where it is not there.
std::string smollm2_path() {
  const char* home = std::getenv("HOME");
  const std::string path = std::string(home != nullptr ? home : "") + "/.cache/banyan/SmolLM2-135M-Instruct.Q4_1.gguf";
  return std::filesystem::exists(path) ? path : "";
}

}  // namespace

TEST_CASE("parity: SmolLM2 in f32 gives the golden ids, top logits and greedy tokens") {
  const std::string path = smollm2_path();
  if (path.empty()) {
    MESSAGE("skipped: SmolLM2-135M-Instruct.Q4_1.gguf is not in ~/.cache/banyan");
    return;
  }
  const auto golden = nlohmann::json::parse(read_file(BANYAN_SOURCE_DIR "/tests/data/smollm2_golden.json"));
  const auto model = Model::load(path, {.compute = Compute::f32});
  REQUIRE(model->tokenizer());
  CHECK(model->eos_ids() == std::vector<TokenId>{2});
  CHECK(model->config().tied_embeddings);
  MESSAGE(model->describe());

  for (const auto& prompt : golden["prompts"]) {
    const std::string text = prompt["text"];
    CAPTURE(text);
    const std::vector<TokenId> ids = prompt["ids"], expected = prompt["greedy"];
    CHECK(model->tokenizer()->encode(text, {.parse_special = true}) == ids);

    const Greedy got = greedy(model, ids, static_cast<int>(expected.size()));
    float worst = 0;
    for (const auto& entry : prompt["top"]) {
      worst = std::max(worst, std::fabs(got.prompt_logits[entry[0].get<std::size_t>()] - entry[1].get<float>()));
    }
    CHECK(worst <= 1e-3F);  // f32 through 30 layers, logits of about 20
    CHECK(argmax(got.prompt_logits) == prompt["top"][0][0].get<TokenId>());
    CHECK(got.ids == expected);
  }
}
