// Whole models on a CUDA device against the CPU.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "engine/models.hpp"
#include "model_test.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

// Of the rows of two models' logits: mean Kullback-Leibler divergence in nats, and how often the likeliest agrees.
struct Agreement {
  double kl = 0, top_1 = 0;
};

std::vector<double> log_softmax(std::span<const float> row) {
  const double top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float x : row) sum += std::exp(x - top);
  std::vector<double> out;
  for (const float x : row) out.push_back(x - top - std::log(sum));
  return out;
}

Agreement compare(std::span<const float> right, std::span<const float> got, std::size_t vocab_size) {
  REQUIRE(right.size() == got.size());
  Agreement sum;
  const std::size_t n_rows = right.size() / vocab_size;
  for (std::size_t r = 0; r < n_rows; ++r) {
    const auto p = right.subspan(r * vocab_size, vocab_size), q = got.subspan(r * vocab_size, vocab_size);
    const auto log_p = log_softmax(p), log_q = log_softmax(q);
    for (std::size_t i = 0; i < vocab_size; ++i) sum.kl += std::exp(log_p[i]) * (log_p[i] - log_q[i]);
    sum.top_1 += argmax(p) == argmax(q) ? 1.0 : 0.0;
  }
  return {sum.kl / static_cast<double>(n_rows), sum.top_1 / static_cast<double>(n_rows)};
}

}  // namespace

TEST_CASE("cuda: the tiny model gives the CPU's logits, in every KV type, deterministic or not") {
  const auto golden = nlohmann::json::parse(read_file(BANYAN_SOURCE_DIR "/models/tiny/golden.json"));
  const std::vector<TokenId> prompt = golden["prompt"];
  const auto right = flat_logits(Model::load(kTinyGguf, {.compute = Compute::f32}), prompt);
  for (const bool deterministic : {false, true}) {
    const auto model = Model::load(kTinyGguf, {.device = Device::cuda, .deterministic = deterministic});
    CHECK(model->compute() == Compute::bf16);
    for (const DType kv_type : {DType::bf16, DType::f16, DType::f32, DType::f8_e4m3}) {
      const auto got = flat_logits(model, prompt, kv_type);
      // 8-bit mantissas of weights and activations, two layers, logits of about 10; as the CPU's own bf16 test. Keys
      // and values of four bits move them as much as in the CPU's own test of those.
      CHECK(max_difference(got, right) <= (kv_type == DType::f8_e4m3 ? 5.0F : 1.0F));
      CHECK(flat_logits(model, prompt, kv_type) == got);
    }
  }
}

TEST_CASE("cuda: no operation differs from the CPU's by more than rounding, and a checked model has the same bits") {
  const auto golden = nlohmann::json::parse(read_file(BANYAN_SOURCE_DIR "/models/tiny/golden.json"));
  const std::vector<TokenId> prompt = golden["prompt"];
  const auto model = Model::load(kTinyGguf, {.device = Device::cuda}),
             checked = Model::load(kTinyGguf, {.device = Device::check});
  for (const DType kv_type : {DType::bf16, DType::f16, DType::f32}) {
    CHECK(flat_logits(checked, prompt, kv_type) == flat_logits(model, prompt, kv_type));
  }
  if (smollm2().empty()) {
    MESSAGE("skipped: no SmolLM2 file");
    return;
  }
  const auto large = Model::load(smollm2(), {.device = Device::check});
  const auto ids = large->tokenizer()->encode(read_file(BANYAN_SOURCE_DIR "/docs/design.md").substr(0, 1200), {});
  CHECK_NOTHROW(flat_logits(large, ids, DType::bf16));
  CHECK_NOTHROW(greedy(large, ids, 4));
}

TEST_CASE("cuda: in deterministic mode every GPU of the machine has the same bits") {
  const int n = kernels::n_cuda_devices();
  if (n < 2) {
    MESSAGE("skipped: one GPU");
    return;
  }
  const std::string path = smollm2().empty() ? kTinyGguf : smollm2();
  std::vector<TokenId> ids;
  for (TokenId i = 0; i < 150; ++i) ids.push_back(3 + (i * 17 + i * i) % 60);
  const auto logits = [&](int index) {
    return flat_logits(Model::load(path, {.device = Device::cuda, .device_index = index, .deterministic = true}), ids,
                       DType::bf16);
  };
  const auto first = logits(0);
  for (int index = 1; index < n; ++index) CHECK(logits(index) == first);
}

TEST_CASE("cuda: SmolLM2 against the CPU in f32: divergence and agreement over a text") {
  if (smollm2().empty()) {
    MESSAGE("skipped: no SmolLM2 file");
    return;
  }
  const auto cpu = Model::load(smollm2(), {.compute = Compute::f32});
  const auto cuda = Model::load(smollm2(), {.device = Device::cuda});
  const std::string text = read_file(BANYAN_SOURCE_DIR "/docs/design.md").substr(0, 4000);
  const std::vector<TokenId> ids = cpu->tokenizer()->encode(text, {});
  const auto vocab_size = static_cast<std::size_t>(cpu->config().vocab_size);
  const auto right = flat_logits(cpu, ids), got = flat_logits(cuda, ids, DType::bf16);
  const Agreement in_f8 = compare(right, flat_logits(cuda, ids, DType::f8_e4m3), vocab_size);
  MESSAGE("KV in f8_e4m3: KL " << in_f8.kl << " nats per token, top-1 agreement " << in_f8.top_1);
  const Agreement a = compare(right, got, vocab_size);
  MESSAGE(ids.size() << " tokens: KL " << a.kl << " nats per token, top-1 agreement " << a.top_1);
  // bf16 weights and activations through 30 layers; the CPU's own bf16 has a KL of a few 1e-3 as well.
  CHECK(a.kl < 0.01);
  CHECK(a.top_1 > 0.95);
}
