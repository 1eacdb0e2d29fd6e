// SmolLM2-135M converted: F32, Q8_0 and Q4_K, as a .gguf and as a directory.
#include <cstdlib>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "banyan/convert.hpp"
#include "model_test.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

std::string smollm2_path() {
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : "") + "/.cache/banyan/SmolLM2-135M-Instruct.Q4_1.gguf";
}

struct Prompt {
  std::string text;
  std::vector<TokenId> ids, greedy;
};
std::vector<Prompt> golden_prompts() {
  const auto golden = nlohmann::json::parse(read_file(BANYAN_SOURCE_DIR "/tests/data/smollm2_golden.json"));
  std::vector<Prompt> out;
  for (const auto& p : golden["prompts"]) out.push_back({p["text"], p["ids"], p["greedy"]});
  return out;
}

constexpr int kTokens = 8;  // test_smollm2 computes them all

std::vector<TokenId> first_tokens(const Prompt& p) { return {p.greedy.begin(), p.greedy.begin() + kTokens}; }

std::vector<float> last_logits(const std::shared_ptr<const Model>& model, const Prompt& prompt) {
  return greedy(model, prompt.ids, 1).prompt_logits;
}

}  // namespace

TEST_CASE("convert: SmolLM2 gives the same ids and tokens in every form") {
  const std::string source = smollm2_path();
  if (!std::filesystem::exists(source)) {
    MESSAGE("skipped: SmolLM2-135M-Instruct.Q4_1.gguf is not in ~/.cache/banyan");
    return;
  }
  const TempDir dir("convert_smollm2");
  const auto prompts = golden_prompts();
  const auto original = Model::load(source, {.compute = Compute::f32});

  for (const char* name : {"f32.gguf", "f32_dir"}) {  // exactly the same weights
    CAPTURE(name);
    const ConvertReport report = convert(source, dir / name);
    REQUIRE(report.types.size() == 1);
    CHECK(report.types[0].error == 0);
    const auto model = Model::load(dir / name, {.compute = Compute::f32});
    CHECK(model->eos_ids() == original->eos_ids());
    CHECK(model->tokenizer()->spec().chat_template == original->tokenizer()->spec().chat_template);
    for (const Prompt& p : prompts) {
      CHECK(model->tokenizer()->encode(p.text, {.parse_special = true}) == p.ids);
      CHECK(greedy(model, p.ids, kTokens).ids == first_tokens(p));
    }
  }

  for (const DType type : {DType::q8_0, DType::q4_k}) {
    CAPTURE(to_string(type));
    const std::string path = dir / (std::string(to_string(type)) + ".gguf");
    const ConvertReport report = convert(dir / "f32_dir", path, {.type = type});
    for (const ConvertedType& t : report.types) {
      MESSAGE(to_string(t.type) << ": " << t.n_tensors << " tensors, error " << t.error << ", at most "
                                << t.largest_error);
      CHECK(t.error <= (t.type == DType::f32 ? 0.0 : t.type == DType::q8_0 ? 0.01 : 0.1));
    }
    // Rows of 576 elements are no blocks of 256; those of the down projections, 1536, are.
    CHECK(report.n_fallback == (type == DType::q4_k ? 181 : 0));
    const auto model = Model::load(path, {.compute = Compute::f32});
    for (const Prompt& p : prompts) {
      CHECK(model->tokenizer()->encode(p.text, {.parse_special = true}) == p.ids);
      const auto want = last_logits(original, p), got = last_logits(model, p);
      // Logits go up to about 20, and some first choices are close.
      CHECK(max_difference(got, want) < (type == DType::q8_0 ? 1.5F : 4.0F));
      CHECK(want[static_cast<std::size_t>(argmax(got))] > want[static_cast<std::size_t>(argmax(want))] - 1.0F);
    }
  }
}
