// What every driver promises by being written on a Search: determinism, budgets, accounts, resume.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <random>

#include "banyan/search/search.hpp"
#include "search/every_driver.hpp"

using namespace banyan;
using namespace banyan::search;
using namespace banyan::test;

namespace {

struct Run {
  std::vector<std::vector<std::string>> logs;  // of each problem
  std::vector<SearchResult> results;
  LaneStats stats;
  std::int64_t n_nodes_left = 0;
};

struct RunOptions {
  std::vector<std::string> problems = {"a"};
  Budget budget = {};
  std::int64_t n_kv_slots = 1 << 20;
  std::vector<std::string> journal = {};
  std::function<double()> clock_ms = {};
};

Run run(const Driver& driver, const RunOptions& o) {
  Run r;
  r.logs.resize(o.problems.size());
  Session session;
  session.add_lane(make_scripted_runner(toy_model(o.n_kv_slots)));
  {
    std::vector<std::unique_ptr<Search>> searches;
    for (std::size_t i = 0; i < o.problems.size(); ++i) {
      SearchOptions options;
      options.seed = 7;
      options.budget = o.budget;
      options.journal = o.journal;
      options.clock_ms = o.clock_ms;
      options.on_event = [&r, i](std::string_view event) { r.logs[i].emplace_back(event); };
      searches.push_back(std::make_unique<Search>(session, std::make_shared<ToyProblem>(o.problems[i]), options));
    }
    r.results = run_searches(session, searches, driver);
  }
  r.stats = session.stats();
  r.n_nodes_left = session.tree().n_nodes();
  return r;
}

void check_equal(const SearchResult& a, const SearchResult& b) {
  CHECK(a.best == b.best);
  CHECK(a.complete == b.complete);
  CHECK(a.text == b.text);
  CHECK(a.stop == b.stop);
  CHECK(a.counters.tokens_generated == b.counters.tokens_generated);
  CHECK(a.counters.tokens_kept == b.counters.tokens_kept);
  CHECK(a.counters.prefill_computed == b.counters.prefill_computed);
  CHECK(a.counters.prefill_saved == b.counters.prefill_saved);
  CHECK(a.counters.n_scorer_calls == b.counters.n_scorer_calls);
}

}  // namespace

TEST_CASE("every driver: the same search alone, in company, in reverse order and in a small pool") {
  std::int64_t n_evicted = 0;
  for (const auto& [name, driver, finishes] : every_driver()) {
    CAPTURE(name);
    const std::vector<std::string> ids{"a", "b", "c"};
    const Run together = run(driver, {.problems = ids});
    const Run reversed = run(driver, {.problems = {"c", "b", "a"}});
    const Run tight = run(driver, {.problems = ids, .n_kv_slots = 160});
    n_evicted += tight.stats.n_evicted_slots;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const Run alone = run(driver, {.problems = {ids[i]}});
      CHECK(alone.logs[0] == together.logs[i]);
      CHECK(reversed.logs[2 - i] == together.logs[i]);
      CHECK(tight.logs[i] == together.logs[i]);
      check_equal(alone.results[0], together.results[i]);
      check_equal(tight.results[i], together.results[i]);
      CHECK((together.results[i].complete || !finishes));
      CHECK(together.results[i].counters.n_failed == 0);
      CHECK(!together.results[i].error);
    }
    CHECK(together.logs[0] != together.logs[1]);
    CHECK(together.n_nodes_left == 0);
  }
  CHECK(n_evicted > 0);
}

TEST_CASE("every driver: its counters are the engine's") {
  for (const auto& [name, driver, finishes] : every_driver()) {
    CAPTURE(name);
    const Run r = run(driver, {});
    const Counters& c = r.results[0].counters;
    CHECK(c.tokens_generated - c.tokens_chosen == r.stats.n_generated);
    CHECK(c.prefill_computed == r.stats.n_prefill_computed);
    CHECK(c.prefill_saved == r.stats.n_prefill_saved);
    CHECK(c.tokens_generated >= c.tokens_kept + c.tokens_spent);
    CHECK(c.tokens_discarded() >= 0);
    CHECK(c.tokens_lost == 0);
    CHECK(c.n_thoughts > 0);
  }
}

TEST_CASE("every driver: killed at any moment and resumed, it writes the same bytes") {
  std::mt19937_64 random(5);
  for (const auto& [name, driver, finishes] : every_driver()) {
    CAPTURE(name);
    const Run whole = run(driver, {});
    std::string bytes;
    for (const std::string& line : whole.logs[0]) bytes += line + "\n";
    for (int kill = 0; kill < 50; ++kill) {
      // What is on disk: whole lines; a torn one does not count.
      const std::size_t cut = random() % (bytes.size() + 1);
      std::vector<std::string> journal;
      for (std::size_t at = 0, end = 0; (end = bytes.find('\n', at)) < cut; at = end + 1) {
        journal.push_back(bytes.substr(at, end - at));
      }
      const Run resumed = run(driver, {.journal = journal});
      std::vector<std::string> both = journal;
      both.insert(both.end(), resumed.logs[0].begin(), resumed.logs[0].end());
      REQUIRE(both == whole.logs[0]);
      check_equal(resumed.results[0], whole.results[0]);
      if (journal.size() == whole.logs[0].size()) CHECK(resumed.stats.n_generated == 0);
    }
  }
}

TEST_CASE("every driver: a log of another search is refused") {
  for (const auto& [name, driver, finishes] : every_driver()) {
    CAPTURE(name);
    std::vector<std::string> journal = run(driver, {.problems = {"b"}}).logs[0];
    CHECK_THROWS_WITH_AS(run(driver, {.journal = journal}), doctest::Contains("event 0: the log is of another search"),
                         Error);
    journal = run(driver, {}).logs[0];
    journal[1] = "{\"event\":\"thoughts\"}";
    CHECK(run(driver, {.journal = journal}).results[0].error.value().code() == ErrorCode::bad_file);
    journal[1] = "torn";
    CHECK(run(driver, {.journal = journal}).results[0].error.value().code() == ErrorCode::bad_file);
  }
}

TEST_CASE("every driver × every budget: no overshoot, and the best so far") {
  for (const auto& [name, driver, finishes] : every_driver()) {
    CAPTURE(name);
    const Counters all = run(driver, {}).results[0].counters;
    struct Case {
      StopReason stop;
      std::int64_t Budget::*limit;
      std::int64_t Counters::*spent;
    };
    for (const Case& c : {Case{StopReason::tokens, &Budget::tokens, &Counters::tokens_generated},
                          Case{StopReason::prefill_tokens, &Budget::prefill_tokens, &Counters::prefill_computed},
                          Case{StopReason::kv_bytes, &Budget::kv_bytes, &Counters::kv_tokens_max},
                          Case{StopReason::thoughts, &Budget::thoughts, &Counters::n_thoughts},
                          Case{StopReason::scorer_calls, &Budget::scorer_calls, &Counters::n_scorer_calls}}) {
      CAPTURE(to_string(c.stop));
      for (const std::int64_t percent : {0, 3, 20, 50, 80, 97}) {
        CAPTURE(percent);
        Budget budget;
        budget.*c.limit = all.*c.spent * percent / 100;
        const Run r = run(driver, {.budget = budget});
        CHECK(r.results[0].counters.*c.spent <= budget.*c.limit);
        CHECK(r.results[0].stop == c.stop);
        CHECK(!r.results[0].error);
        CHECK((r.results[0].best != kRootThought) == (r.results[0].counters.n_thoughts > 0));
        CHECK(r.n_nodes_left == 0);
        // A search under a budget is resumed as exactly as any other.
        std::vector<std::string> journal = r.logs[0];
        journal.resize(journal.size() / 2 + 1);
        const Run resumed = run(driver, {.budget = budget, .journal = journal});
        journal.insert(journal.end(), resumed.logs[0].begin(), resumed.logs[0].end());
        CHECK(journal == r.logs[0]);
        check_equal(resumed.results[0], r.results[0]);
      }
      Budget enough;
      enough.*c.limit = all.*c.spent + 1;
      check_equal(run(driver, {.budget = enough}).results[0], run(driver, {}).results[0]);
    }
  }
}

TEST_CASE("every driver: wall time stops it between two steps, with what it has") {
  for (const auto& [name, driver, finishes] : every_driver()) {
    CAPTURE(name);
    const Run whole = run(driver, {});
    for (const double limit : {0.0, 5.0, 12.0, 25.0}) {
      CAPTURE(limit);
      double now = 0;
      Budget budget;
      budget.wall_ms = limit;
      const Run r = run(driver, {.budget = budget, .clock_ms = [&now] { return now += 1; }});
      CHECK(!r.results[0].error);
      if (limit > 5 && r.results[0].stop != StopReason::wall_time) continue;  // it was done before
      CHECK(r.results[0].stop == StopReason::wall_time);
      const Counters& c = r.results[0].counters;
      CHECK(c.tokens_generated - c.tokens_chosen == r.stats.n_generated);
      CHECK(c.tokens_generated < whole.results[0].counters.tokens_generated);
      CHECK(r.n_nodes_left == 0);
      // Its log read back says the same.
      const Run again = run(driver, {.budget = budget, .journal = r.logs[0], .clock_ms = [] { return 0.0; }});
      CHECK(again.logs[0].empty());
      CHECK(again.results[0].best == r.results[0].best);
    }
  }
}

TEST_CASE("every driver: first success, patience and a stopper of the caller's") {
  for (const auto& [name, driver, finishes] : every_driver()) {
    CAPTURE(name);
    Budget budget;
    budget.first_success = true;
    std::int64_t n_found = 0;
    for (char c = 'a'; c <= 'x'; ++c) {
      const std::string id(1, c);
      const Run whole = run(driver, {.problems = {id}});
      const Run first = run(driver, {.problems = {id}, .budget = budget});
      CHECK(first.stats.n_generated <= whole.stats.n_generated);
      if (first.results[0].stop != StopReason::first_success) continue;
      ++n_found;
      CHECK(first.results[0].complete);
      CHECK(ToyProblem(id).verify(first.results[0].text).value() == 1.0);
    }
    CHECK((n_found > 0 || !finishes));
    budget = {};
    if (run(driver, {}).results[0].counters.n_scorer_calls == 0) continue;
    budget.patience = 1;
    std::int64_t n_converged = 0;
    for (const char* id : {"a", "b", "c", "d"}) {
      n_converged += run(driver, {.problems = {id}, .budget = budget}).results[0].stop == StopReason::converged;
    }
    CHECK(n_converged > 0);
  }
}

TEST_CASE("BL-40: an empty prompt fails by itself; the searches beside it go on") {
  struct Empty : ToyProblem {
    using ToyProblem::ToyProblem;
    Prompt prompt() const override { return {}; }
  };
  Session session;
  session.add_lane(make_scripted_runner(toy_model()));
  std::vector<std::unique_ptr<Search>> searches;
  searches.push_back(std::make_unique<Search>(session, std::make_shared<ToyProblem>("a")));
  searches.push_back(std::make_unique<Search>(session, std::make_shared<Empty>("b")));
  searches.push_back(std::make_unique<Search>(session, std::make_shared<ToyProblem>("c")));
  const auto results = run_searches(session, searches, every_driver()[0].driver);
  CHECK(results[0].complete);
  CHECK(results[2].complete);
  REQUIRE(results[1].error);
  CHECK(results[1].error->code() == ErrorCode::bad_input);
  CHECK(results[1].best == kRootThought);
}

TEST_CASE("BL-55: the event log is valid JSON whatever a model and a scorer say") {
  // A model that knows one next token alone, and writes what JSON must escape.
  const std::string said = "\"q\"\n\t\\ \x01";
  ScriptedModel model = toy_model();
  model.logits = [&said](std::span<const TokenId> path, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), -INFINITY);
    const std::size_t n = path.size() - 2;
    logits[n < said.size() ? static_cast<std::size_t>(said[n]) : static_cast<std::size_t>(kToyEos)] = 0;
  };
  std::vector<std::string> log;
  const auto run = [&](const Driver& driver, std::vector<std::string> journal) {
    Session session;
    session.add_lane(make_scripted_runner(model));
    SearchOptions options;
    options.on_event = [&log](std::string_view event) { log.emplace_back(event); };
    options.journal = std::move(journal);
    std::vector<std::unique_ptr<Search>> searches;
    searches.push_back(
        std::make_unique<Search>(session, std::make_shared<PromptProblem>("p", Prompt{"", "P:"}), options));
    return run_searches(session, searches, driver)[0];
  };
  const Driver driver = [](Search& s) -> Task<void> {
    std::vector<ThoughtId> root{kRootThought};
    SampleOptions sample;
    sample.max_tokens = 32;
    const auto ids = co_await s.sample(root, sample);
    co_await s.next(root, 5);
    for (const double value : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
      const auto values = co_await s.score(ids, callback([value](const Search&, ThoughtId) { return value; }));
      CHECK(std::isnan(values[0]));
    }
  };
  const auto result = run(driver, {});
  CHECK(result.text == said);
  CHECK(result.complete);
  const auto whole = log;
  for (const std::string& line : whole) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    CHECK(event.is_object());
    CHECK(line.find('\n') == std::string::npos);
    if (event["event"] == "thoughts") CHECK(event["thoughts"][0]["text"] == said);
    if (event["event"] == "values") CHECK(event["values"][0].is_null());
  }
  log.clear();
  run(driver, whole);
  CHECK(log.empty());
}
