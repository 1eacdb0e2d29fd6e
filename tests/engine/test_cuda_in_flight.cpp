// On a CUDA device: one step in flight or two, launched one by one or replayed as graphs, give the same bits.
#include <doctest/doctest.h>
#include <functional>
#include <string>

#include "banyan/session.hpp"
#include "engine/models.hpp"

using namespace banyan;

namespace {

struct Way {
  int max_in_flight = 1;
  bool graphs = false;
};
constexpr Way kWays[] = {{1, false}, {1, true}, {2, false}, {2, true}};

struct Outcome {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<float>> logprobs;
  std::vector<std::string> texts, ends;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

struct Run {
  Outcome outcome;
  LaneStats stats;
};

Run run(const std::shared_ptr<const Model>& model, const Way& way, const SampleOptions& options,
        std::int64_t n_slots = 1 << 14) {
  Session s;
  s.add_lane(make_runner(
      model,
      {.kv_type = DType::bf16, .n_kv_slots = n_slots, .max_in_flight = way.max_in_flight, .graphs = way.graphs}));
  std::vector<Node> nodes;
  for (TokenId which = 0; which < 3; ++which) {
    std::vector<TokenId> prompt;
    for (TokenId i = 0; i < 90; ++i) prompt.push_back(3 + (i * 5 + (i > 50 ? which : 0)) % 60);
    nodes.push_back(s.insert(prompt));
  }
  Run r;
  for (const Thought& t : s.run(s.sample(nodes, options))) {
    if (t.error) FAIL(std::string(t.error->what()));
    r.outcome.tokens.push_back(t.tokens);
    r.outcome.logprobs.push_back(t.logprobs);
    r.outcome.texts.push_back(t.text);
    r.outcome.ends.emplace_back(to_string(t.finish));
  }
  s.run();
  r.stats = s.stats();
  return r;
}

SampleOptions options_of(std::int64_t n, std::int64_t max_tokens) {
  SampleOptions o;
  o.n = n;
  o.max_tokens = max_tokens;
  o.seed = 11;
  o.ignore_eos = true;
  return o;
}

}  // namespace

TEST_CASE("cuda in flight: samples of one length are the same bits in every way, deterministic or not") {
  for (const bool deterministic : {false, true}) {
    const auto model = Model::load(test::tiny_model(), {.device = Device::cuda, .deterministic = deterministic});
    for (const std::int64_t n : {1, 2, 40}) {
      const SampleOptions o = options_of(n, 150);
      constexpr std::int64_t kRoomForAll = 1 << 15;  // who is preempted leaves surplus rows
      const Run first = run(model, kWays[0], o, kRoomForAll);
      for (const Way& way : kWays) {
        CAPTURE(way.max_in_flight);
        CAPTURE(way.graphs);
        const Run got = run(model, way, o, kRoomForAll);
        CHECK(got.outcome == first.outcome);
        CHECK(got.stats.n_steps == first.stats.n_steps);
        CHECK(got.stats.n_surplus_rows == 0);
        CHECK(got.stats.device_ms > 0);
        MESSAGE((3 * n) << " rows, " << way.max_in_flight << " in flight, graphs " << way.graphs << ": device "
                        << got.stats.device_ms << " ms, idle " << got.stats.device_idle_ms << " ms");
      }
    }
  }
}

TEST_CASE("cuda in flight: ends, stop strings, penalties, hooks, lists, a small pool: deterministic, the same bits") {
  const auto model = Model::load(test::tiny_model(), {.device = Device::cuda, .deterministic = true});
  const auto compare = [&](const SampleOptions& o, std::int64_t n_slots = 1 << 14) {
    const Run first = run(model, kWays[0], o, n_slots);
    for (const Way& way : kWays) {
      CAPTURE(way.max_in_flight);
      CAPTURE(way.graphs);
      const Run got = run(model, way, o, n_slots);
      CHECK(got.outcome == first.outcome);
      CHECK(got.stats.n_generated == first.stats.n_generated);
      CHECK(got.stats.kv_slots_used <= n_slots);
    }
    return first;
  };
  const Run plain = compare(options_of(12, 80));
  SampleOptions ends = options_of(12, 80);
  ends.ignore_eos = false;
  // Tokens that do come, so that samples end here and there.
  ends.eos_ids = {plain.outcome.tokens[0][30], plain.outcome.tokens[5][12]};
  compare(ends);
  SampleOptions stops = options_of(12, 80);
  for (const std::size_t i : {1, 4, 20}) stops.stop.push_back(plain.outcome.texts[i].substr(20, 3));
  compare(stops);
  SampleOptions penalties = options_of(6, 40);
  penalties.sampler = {.temperature = 0.8, .top_k = 20, .repetition_penalty = 1.2, .presence_penalty = 0.3};
  compare(penalties);
  SampleOptions hook = options_of(4, 30);
  hook.hook = [](std::span<const TokenId> path, std::span<float> logits) {
    logits[static_cast<std::size_t>(path.back())] = -1e30F;
  };
  compare(hook);
  SampleOptions lists = options_of(4, 30);
  lists.n_logprobs = 7;
  compare(lists);
  compare(options_of(12, 80), 700);  // waiting, eviction, recomputation
}
