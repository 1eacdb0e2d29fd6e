// Search drivers on scripted models.
#include <cmath>
#include <doctest/doctest.h>
#include <map>
#include <set>
#include <string>

#include "banyan/search/best_of_n.hpp"
#include "banyan/search/two_level.hpp"
#include "search/every_driver.hpp"

using namespace banyan;

namespace {

// Draws from "a" to "h", likelier the nearer to "a"; a path with "!" in it gives NaN.
ScriptedModel letters() {
  ScriptedModel m;
  m.vocab_size = 128;
  m.tokenizer = std::make_shared<test::LetterTokenizer>();
  m.logits = [](std::span<const TokenId> path, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), -INFINITY);
    for (int i = 0; i < 8; ++i) logits[static_cast<std::size_t>('a' + i)] = -0.3F * static_cast<float>(i);
    if (std::find(path.begin(), path.end(), '!') != path.end()) std::fill(logits.begin(), logits.end(), NAN);
  };
  return m;
}

}  // namespace

namespace {

// A search over letters() behind "x", run by a driver.
struct LetterRun {
  Session session;
  std::vector<std::unique_ptr<search::Search>> searches;
  search::SearchResult result;

  LetterRun(const std::string& prompt, std::uint64_t seed, const search::Driver& driver) {
    session.add_lane(make_scripted_runner(letters()));
    auto problem = std::make_shared<search::PromptProblem>("letters", search::Prompt{"", prompt});
    search::SearchOptions options;
    options.seed = seed;
    searches.push_back(std::make_unique<search::Search>(session, std::move(problem), options));
    result = search::run_searches(session, searches, driver)[0];
  }
  const search::Search& search() const { return *searches[0]; }
};

search::BestOfN best_of(std::int64_t n, std::int64_t max_tokens, search::Scorer scorer) {
  search::BestOfN o;
  o.n = n;
  o.sample.max_tokens = max_tokens;
  o.scorer = std::move(scorer);
  return o;
}

}  // namespace

TEST_CASE("best-of-n keeps the highest value, the first of equals, for every n of one run") {
  const auto o = best_of(32, 4, search::callback([](const search::Search& s, search::ThoughtId id) {
                           return static_cast<double>(std::count(s[id].text.begin(), s[id].text.end(), 'h'));
                         }));
  const LetterRun r("x", 1, [&o](search::Search& s) { return search::best_of_n(s, o); });
  const auto& s = r.search();
  REQUIRE(s.children(0).size() == 32);
  for (const auto id : s.children(0)) {
    CHECK(s[id].value <= s[r.result.best].value);
    if (id < r.result.best) CHECK(s[id].value < s[r.result.best].value);
  }
  CHECK(!r.result.complete);  // this model never ends a text: the answers were cut off
  const auto ks = search::powers_up_to(32);
  CHECK(ks == std::vector<std::int64_t>{1, 2, 4, 8, 16, 32});
  CHECK(search::powers_up_to(6) == std::vector<std::int64_t>{1, 2, 4, 6});
  const auto best = search::best_of_first(s, ks);
  CHECK(best.back() == r.result.best);
  for (std::size_t i = 0; i < ks.size(); ++i) {  // the same as a run of that n
    const auto fewer = best_of(ks[i], 4, o.scorer);
    const LetterRun small("x", 1, [&fewer](search::Search& inner) { return search::best_of_n(inner, fewer); });
    CHECK(small.result.best == best[i]);
  }
}

TEST_CASE("best-of-n: an answer that was cut off does not win over a finished one") {
  Session session;
  session.add_lane(make_scripted_runner(test::toy_model()));
  std::vector<std::unique_ptr<search::Search>> searches;
  searches.push_back(
      std::make_unique<search::Search>(session, std::make_shared<test::ToyProblem>("a"), search::SearchOptions{}));
  const auto driver = [](search::Search& s) -> Task<void> {
    std::vector<search::ThoughtId> root{search::kRootThought};
    SampleOptions cut = test::toy_answer();
    cut.max_tokens = 5;
    const auto parts = co_await s.sample(root, cut);
    const auto wholes = co_await s.sample(root, test::toy_answer());
    s.set_value(parts[0], 10);
    s.set_value(wholes[0], 1);
  };
  const auto result = search::run_searches(session, searches, driver)[0];
  CHECK(result.complete);
  CHECK(result.value == 1);
}

TEST_CASE("best-of-n: failed samples have no value; if all failed it says why") {
  const auto o = best_of(4, 2, search::likelihood_mean());
  const LetterRun r("!", 1, [&o](search::Search& s) { return search::best_of_n(s, o); });
  REQUIRE(r.result.error);
  CHECK(r.result.error->what() == doctest::Contains("none of the 4 thoughts could be drawn"));
  CHECK(r.result.counters.n_failed == 4);
  CHECK(!r.result.complete);
  CHECK(search::best_of_first(r.search(), {1, 4}) == std::vector<search::ThoughtId>(2, search::kNoThought));
}

TEST_CASE("BL-19: samples of a prompt differ, and sample i is the same for any n; a seed replays them") {
  const auto texts = [](std::int64_t n, std::uint64_t seed) {
    const auto o = best_of(n, 8, search::likelihood_sum());
    const LetterRun r("x", seed, [&o](search::Search& s) { return search::best_of_n(s, o); });
    std::vector<std::string> list;
    for (const auto id : r.search().children(0)) list.push_back(r.search()[id].text);
    return list;
  };
  const auto sixteen = texts(16, 42), four = texts(4, 42);
  CHECK(std::set<std::string>(sixteen.begin(), sixteen.end()).size() >= 15);
  CHECK(std::equal(four.begin(), four.end(), sixteen.begin()));
  CHECK(texts(16, 42) == sixteen);
  CHECK(texts(16, 43) != sixteen);
}

TEST_CASE("votes: majority, weighted and max; ties go to the answer drawn first") {
  using search::VoteRule;
  Session session;
  session.add_lane(make_scripted_runner(test::toy_model()));
  // Answers are the last letter; the values are given.
  struct LastLetter : search::PromptProblem {
    using PromptProblem::PromptProblem;
    bool finished(std::string_view, FinishReason) const override { return true; }
    std::optional<std::string> answer(std::string_view state) const override {
      return state.ends_with('-') ? std::nullopt : std::optional(std::string(1, state.back()));
    }
  };
  const auto problem = std::make_shared<LastLetter>("p", search::Prompt{"", "P:"});
  const auto elect = [&](std::vector<std::pair<std::string, double>> answers, VoteRule rule) {
    std::vector<std::unique_ptr<search::Search>> searches;
    searches.push_back(std::make_unique<search::Search>(session, problem, search::SearchOptions{}));
    const auto texts = [&answers](search::Search&, std::vector<search::ThoughtId>) -> Task<search::Search::Proposals> {
      search::Search::Proposals list(1);
      for (const auto& answer : answers) list[0].push_back({answer.first});
      co_return list;
    };
    const auto driver = [&](search::Search& s) -> Task<void> {
      std::vector<search::ThoughtId> root{search::kRootThought};
      const auto ids = co_await s.propose(root, texts);
      for (std::size_t i = 0; i < ids.size(); ++i) s.set_value(ids[i], answers[i].second);
    };
    search::run_searches(session, searches, driver);
    return search::vote(*searches[0], searches[0]->children(0), rule);
  };
  const double none = NAN;
  CHECK(elect({{"b", .1}, {"a", .2}, {"a", .3}, {"b", .9}}, VoteRule::majority).answer == "b");  // tie: first drawn
  CHECK(elect({{"a", .1}, {"b", .2}, {"b", .3}, {"a", .9}}, VoteRule::majority).answer == "a");
  CHECK(elect({{"a", .1}, {"b", .2}, {"b", .3}, {"-", .9}}, VoteRule::majority).votes == 2);
  CHECK(elect({{"a", .6}, {"b", .2}, {"b", .3}}, VoteRule::weighted).answer == "a");
  CHECK(elect({{"a", .6}, {"b", .2}, {"b", .5}}, VoteRule::weighted).answer == "b");
  CHECK(elect({{"a", .6}, {"b", .2}, {"b", .5}}, VoteRule::weighted).thought == 3);
  CHECK(elect({{"a", -6}, {"b", none}, {"b", .5}}, VoteRule::weighted).answer == "b");
  CHECK(elect({{"a", .6}, {"b", .2}, {"b", .7}}, VoteRule::max).answer == "b");
  CHECK(elect({{"a", none}, {"b", -2}}, VoteRule::max).answer == "b");
  CHECK(elect({{"b", .7}, {"a", .7}}, VoteRule::max).answer == "b");
  CHECK(elect({{"-", 1}}, VoteRule::majority).answer == std::nullopt);
}

TEST_CASE("self-consistency: n = 1, 2, 4 … of one run are runs of that n; it stops when the vote is decided") {
  search::SelfConsistency o;
  o.n = 32;
  o.sample = test::toy_answer();
  std::int64_t n_saved = 0;
  for (const char* id : {"a", "b", "c", "d", "e"}) {
    const auto run = [id](const search::SelfConsistency& options, std::vector<search::Elected>& elected) {
      Session session;
      session.add_lane(make_scripted_runner(test::toy_model()));
      std::vector<std::unique_ptr<search::Search>> searches;
      searches.push_back(
          std::make_unique<search::Search>(session, std::make_shared<test::ToyProblem>(id), search::SearchOptions{}));
      const auto result = search::run_searches(
          session, searches, [&options](search::Search& s) { return search::self_consistency(s, options); })[0];
      elected = search::vote_of_first(*searches[0], search::powers_up_to(options.n), options.rule);
      return result;
    };
    std::vector<search::Elected> all, part;
    const auto result = run(o, all);
    CHECK(result.answer == all.back().answer);
    for (const auto& e : all) {
      auto fewer = o;
      fewer.n = e.n;
      CHECK(run(fewer, part).answer == e.answer);
    }
    auto stepwise = o;
    stepwise.batch = 1;
    stepwise.stop_when_decided = true;
    const auto early = run(stepwise, part);
    CHECK(early.answer == result.answer);
    n_saved += 32 - early.counters.n_thoughts;
  }
  CHECK(n_saved > 0);
}

TEST_CASE("two-level: each problem's samples by number, independent of order, company and resume") {
  const auto run = [](std::vector<search::TwoLevelProblem> problems, bool keep) {
    Session s;
    s.add_lane(make_scripted_runner(letters()), {.max_batch = 5});
    search::TwoLevelOptions o;
    o.root = "shared root ";
    o.sample.max_tokens = 6;
    o.sample.seed = 3;
    o.keep_nodes = keep;
    std::map<std::pair<std::string, std::uint64_t>, std::string> texts;
    o.on_sample = [&](std::size_t p, const Thought& t) {
      CHECK(texts.emplace(std::pair(problems[p].id, t.sample), t.text).second);
    };
    const auto result = s.run(search::two_level(s, problems, o));
    CHECK(result.n_samples == static_cast<std::int64_t>(texts.size()));
    CHECK(result.n_failed == 0);
    if (keep) {
      CHECK(s.tree().n_nodes() == 1 + static_cast<std::int64_t>(problems.size() + texts.size()));
    } else {
      CHECK(s.tree().n_nodes() == 1);  // the root alone is still held by the result
    }
    return texts;
  };
  const search::TwoLevelProblem a{"a", "problem a", {0, 1, 2, 3}}, b{"b", "problem b", {0, 1, 2, 3}};
  const auto all = run({a, b}, false);
  CHECK(all.size() == 8);
  CHECK(run({b, a}, true) == all);
  // What a resumed run draws is what is missing, the same as before.
  auto part = run({{"a", "problem a", {1, 3}}, {"b", "problem b", {}}}, false);
  CHECK(part.size() == 2);
  for (const auto& [key, text] : part) CHECK(all.at(key) == text);
  std::set<std::string> distinct;
  for (const auto& [key, text] : all) distinct.insert(text);
  CHECK(distinct.size() > 4);
}

TEST_CASE("two-level: a problem that fails does not disturb the others") {
  Session s;
  s.add_lane(make_scripted_runner(letters()));
  search::TwoLevelOptions o;
  o.sample.max_tokens = 3;
  std::int64_t n_good = 0, n_bad = 0;
  o.on_sample = [&](std::size_t p, const Thought& t) {
    (t.error ? n_bad : n_good) += 1;
    CHECK(t.error.has_value() == (p == 1));
  };
  const auto r = s.run(search::two_level(s, {{"a", "fine", {0, 1}}, {"b", "bad!", {0, 1}}, {"c", "fine", {0}}}, o));
  CHECK(n_good == 3);
  CHECK(n_bad == 2);
  CHECK(r.n_failed == 2);
}
