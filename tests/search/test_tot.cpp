// Tree of Thoughts: its rules against oracles, and a published log run again.
#include <doctest/doctest.h>
#include <filesystem>
#include <map>

#include "banyan/search/tot.hpp"
#include "banyan/search/tot_replay.hpp"
#include "search/every_driver.hpp"

using namespace banyan;
using namespace banyan::search;

namespace {

// Numbers as thoughts: below a state stand the steps that `tree` names, "1", "12" …; the value of a state is given.
class NumberTree : public PromptProblem {
 public:
  NumberTree(std::map<std::string, std::vector<std::string>> tree, std::map<std::string, double> values)
      : PromptProblem("numbers", {}), tree_(std::move(tree)), values_(std::move(values)) {}
  std::vector<std::string> next_steps(std::string_view state) const override {
    const auto found = tree_.find(std::string(state));
    return found == tree_.end() ? std::vector<std::string>() : found->second;
  }
  bool finished(std::string_view state, FinishReason) const override { return state.ends_with('!'); }
  double value(const std::string& state) const {
    const auto found = values_.find(state);
    return found == values_.end() ? 0.5 : found->second;
  }

 private:
  std::map<std::string, std::vector<std::string>> tree_;
  std::map<std::string, double> values_;
};

struct TreeRun {
  Session session;
  std::vector<std::unique_ptr<Search>> searches;
  SearchResult result;
  std::vector<std::string> judged;  // states, in the order the scorer saw them

  TreeRun(const std::shared_ptr<NumberTree>& problem,
          const std::function<Task<void>(Search&, Proposer, Scorer)>& driver, std::uint64_t seed = 0) {
    SearchOptions options;
    options.seed = seed;
    searches.push_back(std::make_unique<Search>(session, problem, options));
    const Scorer scorer = callback([this, problem](const Search& s, ThoughtId id) {
      judged.push_back(s.state(id));
      return problem->value(s.state(id));
    });
    result = run_searches(session, searches, [&](Search& s) { return driver(s, rule_steps(), scorer); })[0];
    if (result.error) throw Error(*result.error);
  }
};

TotBfs bfs(Proposer generate, Scorer evaluate, std::int64_t n_levels, std::size_t width) {
  TotBfs o;
  o.n_levels = n_levels;
  o.width = width;
  o.generate = std::move(generate);
  o.evaluate = std::move(evaluate);
  return o;
}

}  // namespace

TEST_CASE("tot-bfs: greedy keeps the highest values, of equals the first") {
  const auto problem = std::make_shared<NumberTree>(
      std::map<std::string, std::vector<std::string>>{{"", {"1", "2", "3", "4"}}, {"2", {"a!"}}, {"3", {"b!"}}},
      std::map<std::string, double>{{"1", .2}, {"2", .7}, {"3", .9}, {"4", .7}, {"2a!", .1}, {"3b!", .1}});
  std::vector<std::vector<std::string>> kept;
  const TreeRun r(problem, [&](Search& s, Proposer generate, Scorer evaluate) {
    TotBfs o = bfs(std::move(generate), std::move(evaluate), 2, 2);
    o.on_level = [&kept, &s](std::int64_t, const auto&, const auto&, const std::vector<ThoughtId>& selected) {
      kept.emplace_back();
      for (const ThoughtId id : selected) kept.back().push_back(s.state(id));
    };
    return tot_bfs(s, o);
  });
  CHECK(kept == std::vector<std::vector<std::string>>{{"3", "2"}, {"3b!", "2a!"}});
  CHECK(r.result.complete);
  CHECK(r.result.text == "3b!");
  CHECK(r.searches[0]->operator[](1).state == ThoughtState::dropped);
  CHECK(r.searches[0]->operator[](2).state == ThoughtState::inner);
}

TEST_CASE("tot-bfs: the three rules for duplicates") {
  const auto problem =
      std::make_shared<NumberTree>(std::map<std::string, std::vector<std::string>>{{"", {"1", "1", "2", "2"}}},
                                   std::map<std::string, double>{{"1", .9}, {"2", .4}});
  const auto run = [&](Duplicates rule, std::vector<double>& values, std::vector<std::string>& judged) {
    const TreeRun r(problem, [&](Search& s, Proposer generate, Scorer evaluate) {
      TotBfs o = bfs(std::move(generate), std::move(evaluate), 1, 3);
      o.duplicates = rule;
      o.on_level = [&values](std::int64_t, const auto&, const std::vector<double>& v, const auto&) { values = v; };
      return tot_bfs(s, o);
    });
    judged = r.judged;
  };
  std::vector<double> values;
  std::vector<std::string> judged;
  run(Duplicates::zero, values, judged);
  CHECK(values == std::vector<double>{.9, 0, .4, 0});
  CHECK(judged == std::vector<std::string>{"1", "2"});
  run(Duplicates::merge, values, judged);
  CHECK(values == std::vector<double>{.9, .4});
  CHECK(judged == std::vector<std::string>{"1", "2"});
  run(Duplicates::keep, values, judged);
  CHECK(values == std::vector<double>{.9, .9, .4, .4});
}

TEST_CASE("tot-bfs: drawn selection follows the values; all zero is no error") {
  std::map<std::string, int> counts, without, zero;
  const auto problem =
      std::make_shared<NumberTree>(std::map<std::string, std::vector<std::string>>{{"", {"1", "2", "3"}}},
                                   std::map<std::string, double>{{"1", 1}, {"2", 3}, {"3", 0}});
  const auto all_zero =
      std::make_shared<NumberTree>(std::map<std::string, std::vector<std::string>>{{"", {"1", "2", "3"}}},
                                   std::map<std::string, double>{{"1", 0}, {"2", 0}, {"3", 0}});
  constexpr int kRuns = 400;
  const auto run = [](const std::shared_ptr<NumberTree>& p, Selection select, std::size_t width, int seed,
                      std::map<std::string, int>& n) {
    const TreeRun r(
        p,
        [&](Search& s, Proposer generate, Scorer evaluate) {
          TotBfs o = bfs(std::move(generate), std::move(evaluate), 1, width);
          o.select = select;
          o.on_level = [&](std::int64_t, const auto&, const auto&, const std::vector<ThoughtId>& selected) {
            CHECK(selected.size() == width);
            for (const ThoughtId id : selected) ++n[s.state(id)];
          };
          return tot_bfs(s, o);
        },
        static_cast<std::uint64_t>(seed));
  };
  for (int seed = 0; seed < kRuns; ++seed) {
    run(problem, Selection::sample_with_replacement, 2, seed, counts);
    run(problem, Selection::sample, 2, seed, without);
    run(all_zero, Selection::sample, 2, seed, zero);
  }
  CHECK(counts["3"] == 0);
  CHECK(counts["2"] == doctest::Approx(2 * kRuns * 0.75).epsilon(0.08));
  CHECK(without["1"] == kRuns);  // both that have a weight, in some order
  CHECK(without["2"] == kRuns);
  for (const char* state : {"1", "2", "3"}) CHECK(zero[state] == doctest::Approx(kRuns * 2 / 3.0).epsilon(0.15));
}

TEST_CASE("BL-43: a finished answer of high value is not lost while others go on; without one the result says so") {
  std::map<std::string, std::vector<std::string>> tree{{"", {"a", "b"}}, {"a", {"a!", "c"}}, {"b", {"d", "e"}},
                                                       {"ac", {"f"}},    {"bd", {"g"}},      {"be", {"h"}},
                                                       {"acf", {"i!"}},  {"bdg", {"j!"}},    {"beh", {"k!"}}};
  const auto with = std::make_shared<NumberTree>(tree, std::map<std::string, double>{{"aa!", .9}});
  tree["a"] = {"c"};
  const auto without = std::make_shared<NumberTree>(tree, std::map<std::string, double>{{"bdg", .6}});
  const auto run = [](const std::shared_ptr<NumberTree>& p, std::int64_t n_levels, bool stop_early) {
    return TreeRun(p,
                   [&](Search& s, Proposer generate, Scorer evaluate) {
                     TotBfs o = bfs(std::move(generate), std::move(evaluate), n_levels, 2);
                     if (stop_early) {
                       o.on_level = [&s](std::int64_t, const auto&, const auto&, const auto&) {
                         if (!s.finished().empty()) s.stop(StopReason::stopper);
                       };
                     }
                     return tot_bfs(s, o);
                   })
        .result;
  };
  for (const bool stop_early : {false, true}) {
    const auto r = run(with, 4, stop_early);
    CHECK(r.complete);
    CHECK(r.text == "aa!");
    CHECK(r.value == .9);
  }
  const auto partial = run(without, 3, false);
  CHECK(!partial.complete);
  CHECK(partial.text == "bdg");
}

TEST_CASE("tot-dfs: order by value, children per state, threshold, prune, visit cap") {
  const auto problem = std::make_shared<NumberTree>(
      std::map<std::string, std::vector<std::string>>{
          {"", {"1", "2", "3"}}, {"1", {"a", "b!"}}, {"2", {"c", "d"}}, {"3", {"e!"}}, {"2d", {"f!"}}, {"2c", {"g!"}}},
      std::map<std::string, double>{
          {"1", .5}, {"2", .8}, {"3", .2}, {"2c", .3}, {"2d", .6}, {"1a", .9}, {"1b!", .4}, {"2df!", .1}});
  const auto run = [&](const std::function<void(TotDfs&)>& set) {
    const TreeRun r(problem, [&](Search& s, Proposer generate, Scorer evaluate) {
      TotDfs o;
      o.n_levels = 3;
      o.max_answers = 100;
      o.generate = std::move(generate);
      o.evaluate = std::move(evaluate);
      set(o);
      return tot_dfs(s, o);
    });
    return r.judged;
  };
  using Texts = std::vector<std::string>;
  CHECK(run([](TotDfs&) {}) == Texts{"1", "2", "3", "2c", "2d", "2df!", "2cg!", "1a", "1b!", "3e!"});
  CHECK(run([](TotDfs& o) { o.max_per_state = 1; }) == Texts{"1", "2", "3", "2c", "2d", "2df!"});
  CHECK(run([](TotDfs& o) { o.max_visits = 2; }) == Texts{"1", "2", "3", "2c", "2d"});
  CHECK(run([](TotDfs& o) { o.threshold = .55; }) == Texts{"1", "2", "3", "2c", "2d", "2df!"});
  CHECK(run([](TotDfs& o) { o.max_answers = 1; }) == Texts{"1", "2", "3", "2c", "2d", "2df!"});
  CHECK(run([](TotDfs& o) { o.prune = [](const Search& s, ThoughtId id) { return s.state(id).starts_with('2'); }; }) ==
        Texts{"1", "2", "3", "1a", "1b!", "3e!"});
}

TEST_CASE("the value of equal states is asked once in a search, and for each number of evaluations anew") {
  Session session;
  session.add_lane(make_scripted_runner(test::toy_model()));
  std::vector<std::unique_ptr<Search>> searches;
  searches.push_back(std::make_unique<Search>(session, std::make_shared<test::ToyProblem>("a")));
  std::int64_t n_calls[4] = {};
  const auto driver = [&n_calls](Search& s) -> Task<void> {
    std::vector<ThoughtId> root{kRootThought};
    const auto first = co_await s.propose(root, [](Search&, std::vector<ThoughtId>) -> Task<Search::Proposals> {
      Search::Proposals texts(1);
      for (const char* text : {"ab;", "cd;", "ab;"}) texts[0].push_back({text});
      co_return texts;
    });
    const Scorer once = value_judge(test::toy_judgement(1)), thrice = value_judge(test::toy_judgement(3));
    const Scorer forgetful = value_judge(test::toy_judgement(1), false);
    const auto a = co_await s.score(first, once);
    n_calls[0] = s.counters().n_scorer_calls;
    const auto b = co_await s.score(first, once);
    n_calls[1] = s.counters().n_scorer_calls;
    co_await s.score(first, thrice);
    n_calls[2] = s.counters().n_scorer_calls;
    co_await s.score(first, forgetful);
    n_calls[3] = s.counters().n_scorer_calls;
    CHECK(a == b);
    CHECK(a[0] == a[2]);
  };
  const auto results = run_searches(session, searches, driver);
  CHECK(!results[0].error);
  CHECK(n_calls[0] == 2);
  CHECK(n_calls[1] == 2);
  CHECK(n_calls[2] == 4);
  CHECK(n_calls[3] == 7);
}

TEST_CASE("the published game-of-24 log: the same 400 selections from the same 8,412 candidates") {
  const std::string path = std::string(BANYAN_SHARED_DIR) + "/data/game24/game24_bfs_propose1_value3_greedy5.json";
  if (!std::filesystem::exists(path)) {
    MESSAGE("skipped: " << path << " is not there");
    return;
  }
  const TotReplay r = replay_tot_log(path);
  CHECK(r.n_puzzles == 100);
  CHECK(r.n_candidates == 8412);
  CHECK(r.n_selections == 400);
  CHECK(r.n_selections_equal == 400);
  CHECK(r.first_difference.empty());
}
