// MCTS against a naive second writing, its edge cases; adaptive branching; revisions; random variates.
#include <cmath>
#include <doctest/doctest.h>
#include <map>
#include <set>

#include "banyan/search/mcts.hpp"
#include "banyan/search/revise.hpp"
#include "search/every_driver.hpp"
#include "search/random_variates.hpp"

using namespace banyan;
using namespace banyan::search;

namespace {

// States are digits: each has `n_children` steps "0" … and is finished at `depth`; nothing at all with n_children 0.
class Digits : public PromptProblem {
 public:
  Digits(int n_children, std::size_t depth) : PromptProblem("digits", {}), n_(n_children), depth_(depth) {}
  std::vector<std::string> next_steps(std::string_view) const override {
    std::vector<std::string> steps;
    for (int i = 0; i < n_; ++i) steps.push_back(std::to_string(i));
    return steps;
  }
  bool finished(std::string_view state, FinishReason) const override { return state.size() >= depth_; }

 private:
  int n_;
  std::size_t depth_;
};

struct MctsRun {
  Session session;
  std::vector<std::unique_ptr<Search>> searches;
  SearchResult result;
  std::map<std::string, MctsNode> nodes;
  std::vector<std::string> visited;  // states, in the order they were first evaluated

  MctsRun(const std::shared_ptr<const Problem>& problem, const std::function<double(const std::string&)>& value,
          const std::function<void(Mcts&)>& set) {
    searches.push_back(std::make_unique<Search>(session, problem));
    Mcts o;
    o.expand = rule_steps();
    o.evaluate = callback([this, value](const Search& s, ThoughtId id) {
      visited.push_back(s.state(id));
      return value(s.state(id));
    });
    o.on_end = [this](const std::vector<MctsNode>& all) {
      for (std::size_t i = 0; i < all.size(); ++i) {
        nodes[searches[0]->state(static_cast<ThoughtId>(i))] = all[i];
        CHECK(all[i].n_in_flight == 0);
      }
    };
    set(o);
    result = run_searches(session, searches, [&o](Search& s) { return mcts(s, o); })[0];
  }
};

double value_of(const std::string& state) { return test::toy_reward("v" + state); }

// UCT and PUCT again, by recursion over a map.
struct Naive {
  const Mcts& o;
  int n_children;
  std::size_t depth;
  std::map<std::string, double> n, w;

  void iterate(std::string state, std::vector<std::string> path) {
    path.push_back(state);
    const bool leaf = state.size() == depth || (!state.empty() && n[state] == 0);
    if (!leaf) {
      std::string best;
      double best_score = -INFINITY;
      for (int i = 0; i < n_children; ++i) {
        const std::string child = state + std::to_string(i);
        const double up = std::max(1.0, n[state]);
        const double mean = n[child] > 0 ? w[child] / n[child] : (n[state] > 0 ? w[state] / n[state] : 0);
        const double c = std::log((up + o.c_base + 1) / o.c_base) + o.c_init;
        double score = mean + c * (1.0 / n_children) * std::sqrt(up) / (1 + n[child]);
        if (o.rule == Mcts::Rule::uct) {
          score = n[child] == 0 ? INFINITY : mean + o.c_uct * std::sqrt(std::log(up) / n[child]);
        }
        if (best.empty() || score > best_score) {
          best = child;
          best_score = score;
        }
      }
      return iterate(best, path);
    }
    for (const std::string& s : path) {
      ++n[s];
      w[s] += value_of(state);
    }
  }
};

}  // namespace

TEST_CASE("mcts: visits and means are those of a naive second writing, UCT and PUCT") {
  for (const auto rule : {Mcts::Rule::uct, Mcts::Rule::puct}) {
    for (const double c : {0.1, 1.0, 3.0}) {
      Mcts options;
      const MctsRun r(std::make_shared<Digits>(3, 4), value_of, [&](Mcts& o) {
        o.rule = rule;
        o.c_uct = o.c_init = c;
        o.n_iterations = 200;
        options.rule = o.rule;
        options.c_uct = options.c_init = c;
      });
      Naive naive{options, 3, 4, {}, {}};
      for (int i = 0; i < 200; ++i) naive.iterate("", {});
      for (const auto& [state, node] : r.nodes) {
        CHECK(static_cast<double>(node.n_visits) == naive.n[state]);
        CHECK(node.value_sum == doctest::Approx(naive.w[state]));
      }
      CHECK(r.nodes.at("").n_visits == 200);
      CHECK(r.result.complete);
      CHECK(r.result.text.size() == 4);
    }
  }
}

TEST_CASE("BL-44: one and two iterations, none, no action, equal values, NaN; priors count from the first choice") {
  const auto tree = std::make_shared<Digits>(2, 3);
  const auto priors = [](Mcts& o) {
    o.prior = [](const Search& s, ThoughtId id) { return s[id].text == "0" ? 0.1 : 0.9; };
  };
  for (const auto rule : {Mcts::Rule::uct, Mcts::Rule::puct}) {
    for (const std::int64_t n : {1, 2}) {
      const MctsRun r(tree, value_of, [&](Mcts& o) {
        priors(o);
        o.rule = rule;
        o.n_iterations = n;
      });
      CHECK(!r.result.error);
      CHECK(r.visited.at(0) == "1");
      CHECK(r.nodes.at("").n_visits == n);
      CHECK(std::isfinite(r.nodes.at("").mean()));
      CHECK(r.nodes.at("1").prior == doctest::Approx(0.9));
      CHECK(r.result.best != kRootThought);
    }
  }
  const MctsRun zero(tree, value_of, [](Mcts& o) { o.n_iterations = 0; });
  CHECK(zero.result.error.value().code() == ErrorCode::usage);
  const MctsRun no_action(std::make_shared<Digits>(0, 3), value_of, [](Mcts&) {});
  CHECK(!no_action.result.error);
  CHECK(no_action.result.best == kRootThought);
  CHECK(!no_action.result.complete);
  const MctsRun equal(
      tree, [](const std::string&) { return 0.5; }, [](Mcts& o) { o.n_iterations = 50; });
  CHECK(!equal.result.error);
  for (const auto& [state, node] : equal.nodes) {
    if (node.n_visits > 0) CHECK(node.mean() == 0.5);
  }
  const MctsRun nan(
      tree, [](const std::string& s) { return s == "10" ? NAN : 0.5; }, [](Mcts&) {});
  CHECK(nan.result.error.value().code() == ErrorCode::bad_input);
  CHECK(nan.result.error.value().where() == "thought 5");
}

TEST_CASE("mcts: the six ways to choose the answer") {
  const auto tree = std::make_shared<Digits>(2, 3);
  const auto run = [&](Mcts::Answer answer, std::int64_t n) {
    return MctsRun(tree, value_of, [&](Mcts& o) {
      o.answer = answer;
      o.n_iterations = n;
      o.rule = Mcts::Rule::uct;
    });
  };
  constexpr std::int64_t kMany = 40;
  const MctsRun all = run(Mcts::Answer::max_reward, kMany);
  std::string best;
  for (const auto& [state, node] : all.nodes) {
    if (state.size() == 3 && node.n_visits > 0 && (best.empty() || value_of(state) > value_of(best))) best = state;
  }
  CHECK(all.result.text == best);
  const auto follow = [&all](bool by_visits) {
    std::string state;
    for (;;) {
      std::string next;
      double most = -INFINITY;
      for (const char digit : {'0', '1'}) {
        const auto found = all.nodes.find(state + digit);
        if (found == all.nodes.end() || found->second.n_visits == 0) continue;
        const double x = by_visits ? static_cast<double>(found->second.n_visits) : found->second.mean();
        if (x > most) next = state + digit;
        most = std::max(most, x);
      }
      if (next.empty()) return state;
      state = next;
    }
  };
  CHECK(run(Mcts::Answer::follow_max, kMany).result.text == follow(false));
  CHECK(run(Mcts::Answer::max_visit, kMany).result.text == follow(true));
  const MctsRun three = run(Mcts::Answer::last_iter, 3);
  CHECK(three.result.text == three.visited.at(2));
  const MctsRun most = run(Mcts::Answer::max_iter, 5);
  for (const std::string& state : most.visited) CHECK(value_of(state) <= value_of(most.result.text));
  CHECK(run(Mcts::Answer::last_terminal_iter, kMany).result.complete);
}

TEST_CASE("mcts: a batch is of different leaves; visits in flight spread it and return to nothing") {
  const MctsRun r(std::make_shared<Digits>(4, 3), value_of, [](Mcts& o) {
    o.batch = 4;
    o.n_iterations = 60;
    o.virtual_loss = 1;
  });
  CHECK(r.nodes.at("").n_visits == 60);
  CHECK(std::set<std::string>(r.visited.begin(), r.visited.begin() + 4).size() == 4);
  CHECK(std::set<std::string>(r.visited.begin(), r.visited.end()).size() == r.visited.size());
  CHECK(r.result.counters.n_wishes < 60);
}

namespace {

// Answers are numbers; the value of one is given by its place in the tree of revisions.
SearchResult run_answers(const std::function<double(const Search&, ThoughtId)>& value,
                         const std::function<Task<void>(Search&, Proposer, Scorer)>& driver,
                         const std::function<void(const Search&)>& look = {}) {
  Session session;
  session.add_lane(make_scripted_runner(test::toy_model()));
  std::vector<std::unique_ptr<Search>> searches;
  searches.push_back(std::make_unique<Search>(session, std::make_shared<test::ToyProblem>("a")));
  const auto r = run_searches(
      session, searches, [&](Search& s) { return driver(s, revise_answers(test::toy_answer()), callback(value)); })[0];
  if (r.error) throw Error(*r.error);
  if (look) look(*searches[0]);
  return r;
}

}  // namespace

TEST_CASE("revise: a right answer that was revised away is still the result; chains first, then across") {
  const auto value = [](const Search& s, ThoughtId id) {
    return s[id].depth == 2 && s.path(id)[0] == 2 ? 1.0 : 0.1 * static_cast<double>(s[id].depth);
  };
  const auto driver = [](Search& s, Proposer p, Scorer scorer) {
    Revise o;
    o.n_chains = 3;
    o.chain_length = 4;
    o.revise = std::move(p);
    o.scorer = std::move(scorer);
    return revise(s, o);
  };
  std::int64_t depth = 0;
  const auto r = run_answers(value, driver, [&depth](const Search& s) {
    CHECK(s.finished().size() == 12);
    depth = s[s.finished().back()].depth;
  });
  CHECK(depth == 4);
  CHECK(r.complete);
  CHECK(r.value == 1.0);
  CHECK(r.text.size() == 12);  // a revision takes the place of what it revises
}

TEST_CASE("ab-mcts: goes deeper where revisions gain, wider where they do not") {
  const auto mean_depth = [](const std::function<double(const Search&, ThoughtId)>& value,
                             AbMcts::Posterior posterior) {
    double sum = 0;
    run_answers(
        value,
        [posterior](Search& s, Proposer p, Scorer scorer) {
          AbMcts o;
          o.n_answers = 60;
          o.generate = std::move(p);
          o.scorer = std::move(scorer);
          o.posterior = posterior;
          return ab_mcts(s, o);
        },
        [&sum](const Search& s) {
          CHECK(s.size() == 61);
          for (ThoughtId id = 1; id < s.size(); ++id) sum += static_cast<double>(s[id].depth) / 60;
        });
    return sum;
  };
  for (const auto posterior : {AbMcts::Posterior::gaussian, AbMcts::Posterior::beta}) {
    const double deep =
        mean_depth([](const Search& s, ThoughtId id) { return std::min(1.0, 0.15 * static_cast<double>(s[id].depth)); },
                   posterior);
    const double wide =
        mean_depth([](const Search& s, ThoughtId id) { return s[id].depth == 1 ? 0.9 : 0.05; }, posterior);
    CHECK(deep > wide + 0.5);
    CHECK(wide < 1.6);
  }
  CHECK_THROWS_WITH_AS(mean_depth([](const Search&, ThoughtId) { return 1.5; }, AbMcts::Posterior::beta),
                       doctest::Contains("thought 1: has the value 1.5"), Error);
}

TEST_CASE("random variates: means and variances") {
  Session session;
  const Search s(session, std::make_shared<Digits>(2, 2));
  constexpr int kDraws = 4000;
  const auto moments = [&](const std::function<double(Variates&)>& draw) {
    double sum = 0, squares = 0;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      Variates random(s, "test", i);
      const double x = draw(random);
      sum += x;
      squares += x * x;
    }
    const double mean = sum / kDraws;
    return std::pair(mean, squares / kDraws - mean * mean);
  };
  // Five standard errors of a mean over 4,000 draws are 0.08 standard deviations; variances are allowed twice that.
  const auto near = [](std::pair<double, double> got, double mean, double variance) {
    CHECK(std::abs(got.first - mean) < 0.08 * std::sqrt(variance));
    CHECK(got.second == doctest::Approx(variance).epsilon(0.25));
  };
  near(moments([](Variates& v) { return v.normal(); }), 0, 1);
  for (const double shape : {0.5, 1.0, 4.5}) near(moments([=](Variates& v) { return v.gamma(shape); }), shape, shape);
  near(moments([](Variates& v) { return v.beta(2, 3); }), 0.4, 0.04);
  near(moments([](Variates& v) { return v.chi_squared(5); }), 5, 10);
}
