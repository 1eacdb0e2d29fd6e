// Two steps in flight against one: a sample's tokens, texts and ends, KV and budgets are the same. The scripted runner
// gives a step's answers out only when the next one has been submitted, and finds the tokens between them itself, as a
// device does; its logits are a hash of the whole path.
#include <doctest/doctest.h>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "banyan/session.hpp"
#include "engine/scripted.hpp"

using namespace banyan;
using banyan::test::hashed_logits;
using banyan::test::PieceTokenizer;

namespace {

constexpr TokenId kVocab = 16;

ScriptedModel model_of(int max_in_flight) {
  std::vector<std::string> pieces;
  for (char c = 'a'; c < 'a' + kVocab; ++c) pieces.emplace_back(1, c);
  ScriptedModel m;
  m.vocab_size = kVocab;
  m.tokenizer = std::make_shared<PieceTokenizer>(pieces);
  m.logits = hashed_logits;
  m.max_in_flight = max_in_flight;
  return m;
}

std::vector<TokenId> prompt_of(TokenId n, TokenId which = 0) {
  std::vector<TokenId> t(static_cast<std::size_t>(n));
  for (TokenId i = 0; i < n; ++i) t[static_cast<std::size_t>(i)] = (i * 7 + 3 + (i > n / 2 ? which : 0)) % kVocab;
  return t;
}

// What a sample has given, as one string, and what its node holds.
std::string seen(const Thought& t) {
  std::string s = std::string(to_string(t.finish)) + " " + t.text + " |";
  for (const TokenId token : t.tokens) s += " " + std::to_string(token);
  s += " |";
  for (const float lp : t.logprobs) s += " " + std::to_string(lp);
  if (t.node) {
    s += " |";
    for (const TokenId token : t.node.tokens()) s += " " + std::to_string(token);
  }
  if (t.error) s += " error " + std::to_string(static_cast<int>(t.error->code()));
  return s;
}

std::vector<std::string> seen(const std::vector<Thought>& thoughts) {
  std::vector<std::string> out;
  for (const Thought& t : thoughts) out.push_back(seen(t));
  return out;
}

// Slots of the nodes that are alive; the pool must have given out no others, but for reserves.
std::int64_t n_slots_in_tree(const SequenceTree& tree) {
  std::int64_t n = 0;
  for (std::int64_t id = 0; id < tree.id_bound(); ++id) {
    if (!tree.alive(NodeId{id})) continue;
    for (const SlotRun& run : tree.slots(NodeId{id})) n += run.n;
    CHECK(tree.n_kv(NodeId{id}) <= tree.n_tokens(NodeId{id}));
    for (const TokenId token : tree.tokens(NodeId{id})) CHECK(token >= 0);
  }
  return n;
}

struct Outcome {
  std::vector<std::string> samples;
  LaneStats stats;
  std::int64_t n_slots = 0;  // of the tree that is left
};

SampleOptions options_of(std::int64_t n, std::int64_t max_tokens) {
  SampleOptions o;
  o.n = n;
  o.max_tokens = max_tokens;
  o.seed = 5;
  return o;
}

// Samples of three prompts that share their first half.
Outcome run(ScriptedModel model, const SampleOptions& options, const LaneOptions& lane = {}) {
  Session s;
  s.add_lane(make_scripted_runner(std::move(model)), lane);
  std::vector<Node> nodes;
  for (TokenId which = 0; which < 3; ++which) nodes.push_back(s.insert(prompt_of(40, which)));
  const auto thoughts = s.run(s.sample(nodes, options));
  s.run();  // what was in flight
  return {seen(thoughts), s.stats(), n_slots_in_tree(s.tree())};
}

// Both ways; what must be the same is checked.
std::pair<Outcome, Outcome> compare(const std::function<void(ScriptedModel&)>& change, const SampleOptions& options,
                                    const LaneOptions& lane = {}) {
  Outcome outcomes[2];
  for (const int n : {1, 2}) {
    auto model = model_of(n);
    change(model);
    outcomes[n - 1] = run(std::move(model), options, lane);
  }
  const auto& [one, two] = outcomes;
  CHECK(one.samples == two.samples);
  if (one.stats.n_evicted_slots + one.stats.n_preempted == 0) CHECK(one.n_slots == two.n_slots);
  CHECK(one.stats.n_generated == two.stats.n_generated);
  CHECK(two.stats.kv_slots_used <= two.n_slots + 64);  // shared blocks of few tokens
  return {one, two};
}

const auto kNothing = [](ScriptedModel&) {};

}  // namespace

TEST_CASE("in flight: a limit of tokens or of the context is foreseen, and nothing is surplus") {
  for (const std::int64_t max_tokens : {1, 2, 3, 17}) {
    CAPTURE(max_tokens);
    const auto [one, two] = compare(kNothing, options_of(4, max_tokens));
    CHECK(two.stats.n_surplus_rows == 0);
    CHECK(two.stats.n_rows == one.stats.n_rows);
    CHECK(two.stats.n_prefill_computed == one.stats.n_prefill_computed);
    CHECK(two.stats.n_prefill_saved == one.stats.n_prefill_saved);
    CHECK(two.stats.n_steps == one.stats.n_steps);
  }
  const auto [one, two] = compare([](ScriptedModel& m) { m.max_positions = 50; }, options_of(4, -1));
  CHECK(two.samples[0].starts_with("context"));
  CHECK(two.stats.n_surplus_rows == 0);
}

TEST_CASE("in flight: ends of text and stop strings are seen one step late, and that never shows") {
  SampleOptions stops = options_of(32, 40);
  stops.stop = {"ab", "c", "no"};
  for (const bool include : {false, true}) {
    stops.include_stop = include;
    const auto [one, two] = compare(kNothing, stops);
    CHECK(two.stats.n_surplus_rows > 0);
    CHECK(two.stats.n_rows == one.stats.n_rows + two.stats.n_surplus_rows);
    CHECK(two.stats.n_prefill_computed == one.stats.n_prefill_computed);
    CHECK(two.stats.n_recomputed == 0);
  }
  const auto ends = [](ScriptedModel& m) { m.eos_ids = {4, 11}; };
  for (const bool keep_nodes : {false, true}) {
    SampleOptions o = options_of(32, 40);
    o.keep_nodes = keep_nodes;
    const auto [one, two] = compare(ends, o);
    CHECK(two.stats.n_rows == one.stats.n_rows + two.stats.n_surplus_rows);
  }
}

TEST_CASE("in flight: texts are shown piece by piece as with one") {
  std::map<std::uint64_t, std::string> shown[2];
  for (const int n : {1, 2}) {
    SampleOptions o = options_of(8, 30);
    o.stop = {"ef"};
    o.on_text = [&](std::size_t node, std::uint64_t sample, std::string_view text) {
      shown[n - 1][node * 100 + sample] += std::string(text) + "/";
    };
    run(model_of(n), o);
  }
  CHECK(shown[0] == shown[1]);
}

TEST_CASE("in flight: what reads tokens waits for them, by itself: penalties, hooks; log-probabilities go ahead") {
  SampleOptions penalties = options_of(6, 20);
  penalties.sampler = {.temperature = 0.7, .repetition_penalty = 1.3, .frequency_penalty = 0.5};
  compare(kNothing, penalties);
  SampleOptions hook = options_of(6, 20);
  hook.hook = [](std::span<const TokenId> path, std::span<float> logits) {
    for (const TokenId token : path) CHECK(token >= 0);
    logits[static_cast<std::size_t>(path.back())] = -std::numeric_limits<float>::infinity();  // no token twice running
  };
  compare(kNothing, hook);
  SampleOptions lists = options_of(6, 20);
  lists.n_logprobs = 5;
  const auto [one, two] = compare(kNothing, lists);
  CHECK(two.stats.n_steps == one.stats.n_steps);

  // Beside those that wait, the others take every step.
  for (const int n : {1, 2}) {
    Session s;
    s.add_lane(make_scripted_runner(model_of(n)));
    const Node root = s.insert(prompt_of(10));
    penalties.n = 2;
    auto waits = s.start(s.sample(root, penalties));
    auto goes = s.start(s.sample(root, options_of(3, 40)));
    while (!goes.done()) s.step();
    CHECK(s.stats().n_steps <= 41);
    s.run();
    CHECK(waits.result()[0].tokens.size() == 20);
  }
  // Fewer than those that wait: they share steps with them.
  Session s;
  s.add_lane(make_scripted_runner(model_of(2)));
  const Node root = s.insert(prompt_of(10));
  penalties.n = 4;
  auto waits = s.start(s.sample(root, penalties));
  s.step();
  auto goes = s.start(s.sample(root, options_of(2, 19)));
  s.run();
  CHECK(waits.done());
  CHECK(goes.done());
  CHECK(s.stats().n_steps == 20);
}

TEST_CASE("in flight: scores, lists of next tokens and rewards") {
  for (const int n : {1, 2}) {
    auto model = model_of(n);
    model.reward = [](std::span<const TokenId> path) { return static_cast<double>(path.size()); };
    Session s;
    s.add_lane(make_scripted_runner(std::move(model)), {.max_rows = 16});
    const Node root = s.insert(prompt_of(30));
    auto score = s.start(s.score(root, prompt_of(200, 5)));
    auto samples = s.start(s.sample(root, options_of(3, 25)));
    auto next = s.start(s.next(root, 4));
    auto reward = s.start(s.reward(root));
    s.run();
    static double sum = 0;
    static std::vector<std::string> first;
    static std::vector<TokenLogprob> top;
    const Score got = score.result();
    CHECK(got.logprobs.size() == 200);
    CHECK(reward.result() == 30);
    if (n == 1) {
      sum = got.sum, first = seen(samples.result()), top = next.result();
    } else {
      CHECK(got.sum == sum);
      CHECK(seen(samples.result()) == first);
      CHECK(next.result() == top);
      CHECK(s.tree().n_nodes() == 1);
    }
  }
}

TEST_CASE("in flight: a pool that is nearly full: waiting, eviction, preemption, recomputation") {
  for (const std::int64_t n_slots : {1000, 260, 150, 100, 75}) {
    CAPTURE(n_slots);
    SampleOptions o = options_of(10, 30);
    o.stop = {"ab", "ef"};
    const auto [one, two] = compare([&](ScriptedModel& m) { m.n_kv_slots = n_slots; }, o, {.max_rows = 64});
    CHECK(two.stats.kv_slots_used <= n_slots);
    if (n_slots < 300) CHECK(two.stats.n_preempted > 0);
    if (n_slots < 300) CHECK(two.stats.n_recomputed < 2 * two.stats.n_generated + 500);
  }
}

TEST_CASE("in flight: random mixtures of pools, batches, ends, and samples that wait for their tokens") {
  std::mt19937 rng(17);
  const auto any = [&rng](std::int64_t begin, std::int64_t end) {
    return begin + static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(end - begin));
  };
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const std::int64_t n_slots = any(0, 2) == 0 ? 10'000 : any(90, 400);
    const LaneOptions lane{.max_batch = any(1, 20), .max_rows = any(1, 100)};
    struct Wanted {
      std::int64_t prompt;
      SampleOptions options;
      int start;  // behind so many steps
    };
    std::vector<Wanted> wanted;
    for (std::int64_t i = any(1, 7); i > 0; --i) {
      SampleOptions o = options_of(any(1, 9), any(1, 40));
      o.first_sample = static_cast<std::uint64_t>(100 * i);
      o.priority = static_cast<std::int32_t>(any(0, 3));
      if (any(0, 3) == 0) o.sampler.presence_penalty = 1;
      if (any(0, 2) == 0) o.stop = {"ab", "d"};
      if (any(0, 2) == 0) o.eos_ids = {static_cast<TokenId>(any(0, kVocab))};
      wanted.push_back({any(0, 3), o, static_cast<int>(any(0, 20))});
    }
    std::vector<std::string> samples[2];
    for (const int n : {1, 2}) {
      auto model = model_of(n);
      model.n_kv_slots = n_slots;
      Session s;
      s.add_lane(make_scripted_runner(std::move(model)), lane);
      std::vector<Job<std::vector<Thought>>> jobs;
      std::int64_t score_sum = 0;
      for (int step = 0; step < 20; ++step) {
        for (const Wanted& w : wanted) {
          if (w.start != step) continue;
          const Node node = s.insert(prompt_of(static_cast<TokenId>(30 + w.prompt), static_cast<TokenId>(w.prompt)));
          jobs.push_back(s.start(s.sample(node, w.options)));
        }
        s.step();
      }
      auto score = s.start(s.score(s.insert(prompt_of(20)), prompt_of(60, 3)));
      s.run();
      score_sum = static_cast<std::int64_t>(1e4 * score.result().sum);
      for (auto& job : jobs) {
        for (const std::string& x : seen(job.result())) samples[n - 1].push_back(x);
      }
      samples[n - 1].push_back(std::to_string(score_sum));
      CHECK(s.stats().kv_slots_used <= n_slots);
      jobs.clear();
      n_slots_in_tree(s.tree());
    }
    CHECK(samples[0] == samples[1]);
  }
}

TEST_CASE("in flight: what just fits, fits") {
  for (const int n : {1, 2}) {
    auto model = model_of(n);
    model.n_kv_slots = 60;  // 40 given tokens and 20 drawn ones
    Session s;
    s.add_lane(make_scripted_runner(std::move(model)));
    const auto t = s.run(s.sample(s.insert(prompt_of(40)), options_of(3, 20)));
    for (const auto& x : t) CHECK(x.tokens.size() == 20);
  }
}

TEST_CASE("in flight: budgets of tokens and steps are exact") {
  for (const std::int64_t budget : {1, 7, 12, 13, 50}) {
    CAPTURE(budget);
    std::vector<std::string> samples[2];
    std::int64_t counted[2], steps[2];
    for (const int n : {1, 2}) {
      Session s;
      auto model = model_of(n);
      model.eos_ids = {4, 11};
      s.add_lane(make_scripted_runner(std::move(model)), {.max_batch = 6});
      const Node root = s.insert(prompt_of(20));
      SampleOptions o = options_of(4, 10);
      o.ignore_eos = true;
      auto job = s.start(s.sample(root, o), {.max_tokens = budget});
      auto few_steps = s.start(s.sample(root, o), {.max_steps = 3});
      s.run();
      counted[n - 1] = job.n_tokens();
      steps[n - 1] = few_steps.n_tokens();
      samples[n - 1] = seen(job.result());
      for (const auto& t : few_steps.result()) samples[n - 1].push_back(seen(t));
    }
    CHECK(counted[0] == counted[1]);
    CHECK(steps[0] == steps[1]);
    CHECK(samples[0] == samples[1]);
  }
}

TEST_CASE("in flight: surplus rows are not counted in a job's budget") {
  // Each search draws one sample after the other, each of which ends by itself, until its budget is spent.
  const auto search = [](Session& s, Node root, std::vector<std::string>& out) -> Task<void> {
    for (int i = 0; i < 12; ++i) {
      const auto t = co_await s.sample(root, options_of(1, 20));
      out.push_back(seen(t[0]));
    }
  };
  for (const JobOptions& budget : {JobOptions{.max_tokens = 23}, JobOptions{.max_steps = 23}}) {
    std::vector<std::string> out[2];
    for (const int n : {1, 2}) {
      auto model = model_of(n);
      model.eos_ids = {1, 4, 8, 11};
      Session s;
      s.add_lane(make_scripted_runner(std::move(model)));
      auto job = s.start(search(s, s.insert(prompt_of(20)), out[n - 1]), budget);
      s.run();
      CHECK(job.done());
      CHECK(job.n_tokens() == 23);
    }
    CHECK(out[0] == out[1]);
  }
}

TEST_CASE("in flight: cancelled in a callback, or by destroying the job; the others do not notice") {
  std::vector<std::string> kept[2];
  for (const int n : {1, 2}) {
    Session s;
    s.add_lane(make_scripted_runner(model_of(n)));
    const Node root = s.insert(prompt_of(20));
    std::optional<Job<std::vector<Thought>>> dropped;
    SampleOptions o = options_of(4, 30);
    int n_pieces = 0;
    o.on_text = [&](std::size_t, std::uint64_t, std::string_view) {
      if (++n_pieces == 10) dropped.reset();
    };
    auto kept_job = s.start(s.sample(root, o));
    dropped.emplace(s.start(s.sample(root, options_of(4, 1000))));
    SampleOptions self = options_of(2, 30);
    std::optional<Job<std::vector<Thought>>> itself;
    self.on_text = [&](std::size_t, std::uint64_t, std::string_view) { itself.reset(); };
    itself.emplace(s.start(s.sample(root, self)));
    s.run();
    CHECK(!dropped);
    CHECK(!itself);
    { kept[n - 1] = seen(kept_job.result()); }
    CHECK(s.tree().n_nodes() == 1);
    CHECK(n_slots_in_tree(s.tree()) == s.tree().n_kv(root.id()));
    CHECK(s.stats().n_active == 0);
  }
  CHECK(kept[0] == kept[1]);
}

TEST_CASE("in flight: a callback that throws ends its sample; the others and the session go on") {
  for (const int n : {1, 2}) {
    std::vector<std::string> samples[2];
    for (const bool throws : {false, true}) {
      Session s;
      s.add_lane(make_scripted_runner(model_of(n)));
      const Node root = s.insert(prompt_of(20));
      SampleOptions o = options_of(4, 30);
      int n_thrown = 0;
      o.on_text = [&](std::size_t, std::uint64_t sample, std::string_view) {
        if (throws && sample == 1 && s.stats().n_generated > 40) {
          throw Error(ErrorCode::bad_input, "test", "throws");
        }
      };
      auto job = s.start(s.sample(root, o));
      auto score = s.start(s.score(root, prompt_of(50, 2)));
      for (bool more = true; more;) {
        try {
          more = s.step();
        } catch (const Error&) {
          ++n_thrown;
        }
      }
      CHECK(n_thrown == (throws ? 1 : 0));
      samples[throws ? 1 : 0] = seen(job.result());
      CHECK(score.result().logprobs.size() == 50);
    }
    for (const std::size_t i : {0, 2, 3}) CHECK(samples[1][i] == samples[0][i]);
    CHECK(samples[1][1].starts_with("error"));
  }
}

TEST_CASE("in flight: a session that goes while steps are in flight") {
  for (int n_steps = 1; n_steps < 6; ++n_steps) {
    Session s;
    s.add_lane(make_scripted_runner(model_of(2)));
    auto job = s.start(s.sample(s.insert(prompt_of(20)), options_of(4, 30)));
    for (int i = 0; i < n_steps; ++i) s.step();
  }
}

TEST_CASE("in flight: what is stored is found again, tokens that are still to be drawn are not") {
  std::vector<std::string> samples[2];
  const auto prompt = prompt_of(20);
  for (const int n : {1, 2}) {
    Session s;
    s.add_lane(make_scripted_runner(model_of(n)));
    const Node root = s.insert(prompt);
    auto job = s.start(s.sample(root, options_of(2, 30)));
    for (int i = 0; i < 8; ++i) {
      s.step();
      const Node again = s.insert(prompt);
      CHECK(again.path() == prompt);
    }
    s.run();
    samples[n - 1] = seen(job.result());
  }
  CHECK(samples[0] == samples[1]);
}

TEST_CASE("in flight: bad logits are an error of their sample") {
  compare(
      [](ScriptedModel& m) {
        m.logits = [](std::span<const TokenId> path, std::span<float> logits) {
          hashed_logits(path, logits);
          if (path.back() == 5) std::fill(logits.begin(), logits.end(), std::numeric_limits<float>::quiet_NaN());
        };
      },
      options_of(8, 30));
}

namespace {

// Fails the submit or the harvest of one step.
class FailingRunner final : public StepRunner {
 public:
  FailingRunner(ScriptedModel model, std::int64_t fail_submit, std::int64_t fail_harvest)
      : runner_(make_scripted_runner(std::move(model))), fail_submit_(fail_submit), fail_harvest_(fail_harvest) {}
  std::int64_t vocab_size() const override { return runner_->vocab_size(); }
  std::int64_t max_positions() const override { return runner_->max_positions(); }
  std::int64_t n_kv_slots() const override { return runner_->n_kv_slots(); }
  std::int64_t kv_bytes_per_token() const override { return 0; }
  bool deterministic() const override { return true; }
  const Tokenizer* tokenizer() const override { return runner_->tokenizer(); }
  const std::vector<TokenId>& eos_ids() const override { return runner_->eos_ids(); }
  std::string name() const override { return "failing"; }
  int max_in_flight() const override { return runner_->max_in_flight(); }
  Ticket submit(const SequenceTree& tree, const Plan& plan, std::span<const StepQuery> queries) override {
    if (n_submitted_++ == fail_submit_) throw Error(ErrorCode::out_of_memory, "device", "no memory, says the test");
    return runner_->submit(tree, plan, queries);
  }
  StepTimes harvest(Ticket ticket, std::span<StepAnswer> answers) override {
    const StepTimes times = runner_->harvest(ticket, answers);
    if (n_harvested_++ == fail_harvest_) throw Error(ErrorCode::device, "device", "is lost, says the test");
    return times;
  }

 private:
  std::unique_ptr<StepRunner> runner_;
  std::int64_t fail_submit_, fail_harvest_, n_submitted_ = 0, n_harvested_ = 0;
};

}  // namespace

TEST_CASE("in flight: a step that fails is an error of those who took part; the session goes on") {
  for (const bool in_submit : {true, false}) {
    for (const std::int64_t at : {0, 1, 2, 5}) {
      CAPTURE(in_submit);
      CAPTURE(at);
      std::vector<std::string> samples[2];
      for (const int n : {1, 2}) {
        Session s;
        s.add_lane(std::make_unique<FailingRunner>(model_of(n), in_submit ? at : -1, in_submit ? -1 : at));
        const Node root = s.insert(prompt_of(20));
        auto job = s.start(s.sample(root, options_of(3, 30)));
        s.run();
        const auto failed = job.result();
        samples[n - 1] = seen(failed);
        for (const Thought& t : failed) {
          REQUIRE(t.error);
          CHECK(t.tokens.size() == static_cast<std::size_t>(at));
          CHECK(t.node.tokens().size() == static_cast<std::size_t>(at));
        }
        auto o = options_of(3, 10);
        o.first_sample = 0;
        auto again = seen(s.run(s.sample(root, o)));
        s.run();
        samples[n - 1].insert(samples[n - 1].end(), again.begin(), again.end());
        CHECK(again[0].starts_with("length"));
      }
      CHECK(samples[0] == samples[1]);
    }
  }
}
