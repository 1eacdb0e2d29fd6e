// The session over the tiny model: a path gives the same logits however it was stored.
#include <cmath>
#include <doctest/doctest.h>
#include <string>

#include "banyan/session.hpp"
#include "engine/models.hpp"

using namespace banyan;

namespace {

std::vector<TokenId> prompt_of(TokenId n) {
  std::vector<TokenId> t;
  for (TokenId i = 0; i < n; ++i) t.push_back(3 + (i * 17 + i * i) % 60);
  return t;
}

struct Run {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;  // of all 64 words at each position: logits, but for one constant a row
};

SampleOptions greedy(std::int64_t n) {
  SampleOptions o;
  o.max_tokens = n;
  o.ignore_eos = true;
  o.n_logprobs = 64;
  o.sampler.temperature = 0;
  return o;
}

Run run(Session& s, const Node& node, std::int64_t n) {
  auto t = s.run(s.sample(node, greedy(n)));
  if (t[0].error) FAIL(std::string(t[0].error->what()));
  Run r{t[0].tokens, {}};
  for (auto& row : t[0].top) {
    std::sort(row.begin(), row.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    for (const auto& x : row) r.logprobs.push_back(x.logprob);
  }
  return r;
}

void check_equal(const Run& a, const Run& b) {
  CHECK(a.tokens == b.tokens);
  REQUIRE(a.logprobs.size() == b.logprobs.size());
  float worst = 0;
  for (std::size_t i = 0; i < a.logprobs.size(); ++i) worst = std::max(worst, std::fabs(a.logprobs[i] - b.logprobs[i]));
  CHECK(worst <= 1e-4F);
}

}  // namespace

TEST_CASE("BL-06: a prompt that is stored in part, or whole, answers as a cold one") {
  const auto model = Model::load(test::tiny_model(), {.compute = Compute::f32, .n_threads = 1});
  const auto prompt = prompt_of(48);
  Session cold;
  cold.add_lane(make_runner(model, {.kv_type = DType::f32, .n_kv_slots = 4096}));
  const Run flat = run(cold, cold.insert(prompt), 32);
  for (std::size_t cut = 1; cut <= 48; ++cut) {
    Session s;
    s.add_lane(make_runner(model, {.kv_type = DType::f32, .n_kv_slots = 4096}));
    const Node first = s.insert(std::span(prompt).first(cut));
    run(s, first, 1);  // its KV is stored
    const Node rest = s.extend(first, std::span(prompt).subspan(cut));
    check_equal(run(s, rest, 32), flat);
    check_equal(run(s, rest, 32), flat);
  }
}

TEST_CASE("BL-05 on a model: siblings give what they give alone, before and after each other") {
  // Bits of a row that is asked for again are promised in deterministic mode: a cold prompt and a stored one may
  // otherwise be cut into other calls.
  const auto model = Model::load(test::tiny_model(), {.compute = Compute::f32, .n_threads = 1, .deterministic = true});
  Session s;
  s.add_lane(make_runner(model, {.kv_type = DType::f32, .n_kv_slots = 4096}));
  const std::vector<TokenId> root{11, 12, 13}, x{14, 15}, y{16, 17};
  const Node parent = s.insert(root);
  const Node child_x = s.extend(parent, x), child_y = s.extend(parent, y);
  const Run first_x = run(s, child_x, 6), first_y = run(s, child_y, 6), again_x = run(s, child_x, 6);
  CHECK(first_x.tokens == again_x.tokens);
  CHECK(first_x.logprobs == again_x.logprobs);  // bit for bit
  Session flat;
  flat.add_lane(make_runner(model, {.kv_type = DType::f32, .n_kv_slots = 4096}));
  check_equal(first_y, run(flat, flat.insert(std::vector<TokenId>{11, 12, 13, 16, 17}), 6));
}

TEST_CASE("attention bytes: one sample of a prompt saves nothing, 64 save what theory says") {
  constexpr std::int64_t kPrompt = 128, kTokens = 9;
  const auto model = Model::load(test::tiny_model(), {.compute = Compute::f32, .n_threads = 1});
  const auto per_token = static_cast<double>(kv_bytes_per_token(model->config(), DType::f32));
  for (const std::int64_t n : {1, 64}) {
    for (const std::int64_t max_rows : {1024, 64}) {  // the prompt whole; in two pieces
      Session s;
      s.add_lane(make_runner(model, {.kv_type = DType::f32, .n_kv_slots = 4096}), {.max_rows = max_rows});
      const Node few_shot = s.insert(prompt_of(kPrompt / 2));
      SampleOptions options = greedy(kTokens);
      options.n = n;
      s.run(s.sample(s.extend(few_shot, std::vector<TokenId>(kPrompt / 2, 7)), options));
      // The prompt, then a step for each token but the last, in which every sample has one more of its own.
      double shared = max_rows < kPrompt ? kPrompt + max_rows : kPrompt, unshared = shared;
      for (std::int64_t t = 1; t < kTokens; ++t) {
        shared += static_cast<double>(kPrompt + n * t);
        unshared += static_cast<double>(n * (kPrompt + t));
      }
      CHECK(s.stats().attention_bytes_shared == shared * per_token);
      CHECK(s.stats().attention_bytes_unshared == unshared * per_token);
      CHECK((shared == unshared) == (n == 1));
    }
  }
}

TEST_CASE("a plain list of prompts becomes a tree: prefixes are found, also inside a run") {
  const auto model = Model::load(test::tiny_model(), {.compute = Compute::f32, .n_threads = 1});
  Session s;
  s.add_lane(make_runner(model, {.kv_type = DType::f32, .n_kv_slots = 4096}));
  std::vector<Node> nodes;
  std::vector<std::vector<TokenId>> prompts;
  for (TokenId i = 0; i < 6; ++i) {
    auto p = prompt_of(40);
    for (std::size_t k = static_cast<std::size_t>(20 + 3 * i); k < p.size(); ++k) p[k] = 3 + (p[k] + i) % 60;
    prompts.push_back(p);
    nodes.push_back(s.insert(p));
  }
  const auto thoughts = s.run(s.sample(nodes, greedy(10)));
  CHECK(s.stats().n_prefill_computed < 6 * 40 - 5 * 20 + 1);
  CHECK(s.stats().n_prefill_computed + s.stats().n_prefill_saved == 6 * 40);
  CHECK(s.tree().roots().size() == 1);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Session alone;
    alone.add_lane(make_runner(model, {.kv_type = DType::f32, .n_kv_slots = 4096}));
    CHECK(thoughts[i].tokens == run(alone, alone.insert(prompts[i]), 10).tokens);
  }
}

TEST_CASE("score agrees with the log-probabilities that sampling reports, in pieces of any size") {
  const auto model = Model::load(test::tiny_model(), {.compute = Compute::f32, .n_threads = 1});
  for (const std::int64_t max_rows : {1, 7, 64, 1024}) {
    Session s;
    s.add_lane(make_runner(model, {.kv_type = DType::f32, .n_kv_slots = 4096}), {.max_rows = max_rows});
    const Node root = s.insert(prompt_of(30));
    SampleOptions o = greedy(100);
    o.sampler.temperature = 1;
    const auto t = s.run(s.sample(root, o));
    const Score score = s.run(s.score(root, t[0].tokens));
    REQUIRE(score.logprobs.size() == 100);
    for (std::size_t i = 0; i < 100; ++i) CHECK(score.logprobs[i] == doctest::Approx(t[0].logprobs[i]).epsilon(1e-4));
  }
}

TEST_CASE(
    "adopt_kv: a prompt's KV is what the pool holds, not computed; what has no room is refused and harms nothing") {
  Session s;
  s.add_lane(make_runner(Model::load(test::tiny_model(), {.compute = Compute::f32}),
                         {.kv_type = DType::f32, .n_kv_slots = 128, .random_kv = true}));
  const Node prompt = s.insert(prompt_of(48));
  s.adopt_kv(prompt);
  const Run adopted = run(s, prompt, 4);
  CHECK(adopted.tokens.size() == 4);
  CHECK(s.stats().n_prefill_computed == 0);
  const Node long_prompt = s.insert(std::vector<TokenId>(200, 5));
  CHECK_THROWS_WITH_AS(s.adopt_kv(long_prompt), doctest::Contains("200 tokens"), Error);
  CHECK(run(s, prompt, 4).logprobs == adopted.logprobs);

  // The numbers are random, so the answer is another than the computed one's.
  Session computed;
  computed.add_lane(make_runner(Model::load(test::tiny_model(), {.compute = Compute::f32}), {.n_kv_slots = 128}));
  CHECK(run(computed, computed.insert(prompt_of(48)), 4).logprobs != adopted.logprobs);
}
