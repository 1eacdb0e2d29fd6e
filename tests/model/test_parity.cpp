// Every family and rope type against transformers: logits, greedy tokens, rewards; from both file forms, in one piece
// and cut into nodes.
#include <array>
#include <cstdio>
#include <doctest/doctest.h>

#include "banyan/session.hpp"
#include "parity_case.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

constexpr float kTolerance = 1e-4F;  // f32 through two to four layers, logits of about 10
const LoadOptions kF32{.compute = Compute::f32, .n_threads = 1};

void check_logits(const ParityCase& c, const std::shared_ptr<const Model>& model) {
  const auto all = flat_logits(model, c.prompt());
  const auto n = static_cast<std::size_t>(model->config().vocab_size);
  for (const auto& [position, expected] : c.logits()) {
    CAPTURE(position);
    CHECK(max_difference({all.data() + static_cast<std::size_t>(position) * n, n}, expected) <= kTolerance);
  }
}

// The node behind a chain of n nodes that share the prompt out evenly.
Node chain(Session& s, std::span<const TokenId> prompt, std::size_t n) {
  const auto end = [&](std::size_t piece) { return (piece + 1) * prompt.size() / n; };
  Node node = s.insert(prompt.first(end(0)));
  for (std::size_t piece = 1; piece < n; ++piece) {
    node = s.extend(node, prompt.subspan(end(piece - 1), end(piece) - end(piece - 1)));
  }
  return node;
}

// Logits as log-probabilities.
std::vector<float> log_softmax(std::vector<float> logits) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  for (float& x : logits) x = static_cast<float>(x - std::log(sum));
  return logits;
}

}  // namespace

TEST_CASE("parity: directories of every family and rope type give the logits and greedy tokens of transformers") {
  const TempDir dir("parity_hf");
  std::size_t n_checked = 0;
  for (const ParityCase& c : parity_cases()) {
    if (c.is_reward()) continue;
    CAPTURE(c.name);
    write_hf(c, dir);
    const auto model = Model::load(dir.str(), kF32);
    check_logits(c, model);
    CHECK(greedy(model, c.prompt(), static_cast<int>(c.greedy().size())).ids == c.greedy());
    check_logits(c, load_oracle(dir.str()));
    write_hf(c, dir, DType::bf16);  // holds the same values
    check_logits(c, Model::load(dir.str(), kF32));
    ++n_checked;
  }
  CHECK(n_checked == 20);
}

TEST_CASE("parity: GGUF files of every family and rope type do, too") {
  const TempDir dir("parity_gguf");
  std::size_t n_checked = 0;
  for (const ParityCase& c : parity_cases()) {
    if (!c.has_gguf()) continue;
    CAPTURE(c.name);
    write_gguf(c, dir / "m.gguf");
    const auto model = Model::load(dir / "m.gguf", kF32);
    check_logits(c, model);
    CHECK(greedy(model, c.prompt(), static_cast<int>(c.greedy().size())).ids == c.greedy());
    ++n_checked;
  }
  CHECK(n_checked == 19);
}

TEST_CASE("BL-06 on every family: a prompt cut into 1 to 48 nodes answers as one that is whole") {
  const TempDir dir("parity_nodes");
  for (const ParityCase& c : parity_cases()) {
    if (c.is_reward()) continue;
    CAPTURE(c.name);
    write_hf(c, dir);
    Session s;
    s.add_lane(make_runner(Model::load(dir.str(), kF32), {.n_kv_slots = 1 << 13}));
    const auto prompt = c.prompt();
    const auto n_vocab = c.config()["vocab_size"].get<std::int64_t>();
    std::vector<Node> nodes;
    for (std::size_t n = 1; n <= prompt.size(); ++n) nodes.push_back(chain(s, prompt, n));
    SampleOptions options{.max_tokens = static_cast<std::int64_t>(c.greedy().size()), .ignore_eos = true};
    options.sampler.temperature = 0;
    options.n_logprobs = n_vocab;
    const auto thoughts = s.run(s.sample(nodes, options));
    const auto expected = log_softmax(c.logits().at(47));
    for (const Thought& thought : thoughts) {
      const std::size_t n_nodes = thought.parent_index + 1;
      CAPTURE(n_nodes);
      CHECK(thought.tokens == c.greedy());
      std::vector<float> first(static_cast<std::size_t>(n_vocab));
      for (const auto& [id, logprob] : thought.top.at(0)) first[static_cast<std::size_t>(id)] = logprob;
      CHECK(max_difference(first, expected) <= kTolerance);
    }
  }
}

TEST_CASE("parity: rope's magnitude is that of transformers, and inspect prints it") {
  const TempDir dir("parity_magnitude");
  for (const ParityCase& c : parity_cases()) {
    CAPTURE(c.name);
    write_file(dir / "config.json", c.config().dump());
    const ModelSpec spec = config_from_json(dir / "config.json");
    const double magnitude = c.json["magnitude"];
    CHECK(spec.rope.magnitude == doctest::Approx(magnitude).epsilon(1e-9));
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "magnitude %.8g", magnitude);
    CHECK_MESSAGE(describe(spec.rope, spec.config.head_dim).ends_with(text.data()), text.data());
  }
}

TEST_CASE("inspect: what it says of every family") {
  const TempDir dir("parity_inspect");
  const std::map<std::string, std::vector<std::string>> said{
      {"llama-1", {"4 query heads x 12, 4 KV heads", "unscaled"}},
      {"llama-3.1", {"theta 500000, llama3, factor 8 from 128 positions (low 1, high 4)"}},
      {"llama-3.2-tied", {"tied to the embedding table"}},
      {"llama-linear", {"linear, factor 4"}},
      {"llama-yarn-factors", {"yarn, factor 4 from 1024 positions (beta 8 to 2)", "magnitude 1.25"}},
      {"llama-yarn-mscale", {"not truncated"}},
      {"llama-biases", {"q, k, v and output biases", "feed-forward biases"}},
      {"codellama", {"theta 1000000"}},
      {"qwen2.5", {"qwen2, 2 layers", "q, k and v biases"}},
      {"qwen3", {"qwen3, 2 layers", "q and k normed"}},
      {"smollm3", {"smollm3, 4 layers", "none in layers 3"}},
      {"phi-4-mini",
       {"longrope, short factors up to 128 positions", "12 of 16 dimensions", "context       128 positions"}},
      {"llama-reward", {"scalar: a reward model"}},
  };
  std::size_t n_checked = 0;
  for (const ParityCase& c : parity_cases()) {
    CAPTURE(c.name);
    write_hf(c, dir);
    const std::string text = load_oracle(dir.str())->describe();
    CAPTURE(text);
    for (const char* key : {"file ", "format        safetensors", "architecture ", "attention ", "rope ", "context ",
                            "head ", "weights ", "compute ", "tokenizer     none in the file", "eos ids "}) {
      CHECK_MESSAGE(contains(text, key), key);
    }
    const auto parts = said.find(c.name);
    if (parts == said.end()) continue;
    for (const std::string& part : parts->second) CHECK_MESSAGE(contains(text, part), part);
    ++n_checked;
  }
  CHECK(n_checked == said.size());
}

TEST_CASE("random weights have the shape of every family, and give finite logits that the seed decides") {
  const TempDir dir("parity_random");
  for (const ParityCase& c : parity_cases()) {
    CAPTURE(c.name);
    write_file(dir / "config.json", c.config().dump());
    const auto logits = [&](std::uint64_t seed) {
      return flat_logits(Model::random(dir / "config.json", seed, kF32), c.prompt());
    };
    const auto one = logits(1);
    CHECK(std::ranges::all_of(one, [](float x) { return std::isfinite(x); }));
    CHECK(one == logits(1));
    CHECK(one != logits(2));
  }
}

TEST_CASE("reward: a scalar head gives the rewards of transformers for every prefix, and no logits") {
  const TempDir dir("parity_reward");
  std::size_t n_checked = 0;
  for (const ParityCase& c : parity_cases()) {
    if (!c.is_reward()) continue;
    CAPTURE(c.name);
    write_hf(c, dir);
    const auto model = Model::load(dir.str(), kF32);
    CHECK(model->config().reward_head);
    Session s;
    s.add_lane(make_runner(model, {.n_kv_slots = 1024}));
    const std::vector<float> rewards = c.json["rewards"];
    const auto prompt = c.prompt();
    for (std::size_t n = 1; n <= prompt.size(); ++n) {
      CAPTURE(n);
      const Node node = s.insert(std::span(prompt).first(n));
      CHECK(std::fabs(s.run(s.reward(node)) - rewards[n - 1]) <= kTolerance);
    }
    const Node node = s.insert(prompt);
    const auto error = error_of([&] { s.run(s.next(node, 1)); });
    CHECK_MESSAGE((contains(error, "unsupported: ") && contains(error, "reward")), error);
    const auto thoughts = s.run(s.sample(node, {.max_tokens = 4}));
    CHECK(thoughts[0].finish == FinishReason::error);
    CHECK(std::fabs(s.run(s.reward(node)) - rewards.back()) <= kTolerance);  // and the session goes on
    ++n_checked;
  }
  CHECK(n_checked == 2);
}

TEST_CASE("reward: a model of words has none, and a head of two labels is refused by name") {
  const TempDir dir("reward_refused");
  Session s;
  s.add_lane(make_runner(Model::load(kTinyGguf, kF32), {.n_kv_slots = 64}));
  const Node node = s.insert(std::vector<TokenId>{3, 4});
  CHECK(contains(error_of([&] { s.run(s.reward(node)); }), "scalar"));
  for (const ParityCase& c : parity_cases()) {
    if (c.name != "llama-reward") continue;
    write_hf(c, dir);
    auto config = c.config();
    config["id2label"] = {{"0", "bad"}, {"1", "good"}};
    write_file(dir / "config.json", config.dump());
    const auto error = error_of([&] { load_oracle(dir.str()); });
    CHECK_MESSAGE((contains(error, "unsupported: ") && contains(error, "2 labels")), error);
  }
}
