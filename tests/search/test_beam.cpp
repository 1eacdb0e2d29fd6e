// Beam searches: the token beam against a second writing of Hugging Face's rules, the step beams by hand.
#include <algorithm>
#include <doctest/doctest.h>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "banyan/search/beam.hpp"
#include "search/every_driver.hpp"

using namespace banyan;
using namespace banyan::search;

namespace {

constexpr TokenId kEos = 0;
constexpr int kVocab = 6;

// Log-probabilities behind a path, from a hash: token kEos ends a text.
std::vector<double> random_logprobs(std::uint64_t model, const std::vector<TokenId>& path) {
  std::string key = std::to_string(model);
  for (const TokenId t : path) key += "," + std::to_string(t);
  std::mt19937_64 random(hash_stream(key));
  std::vector<double> logits;
  double sum = 0;
  for (int i = 0; i < kVocab; ++i) {
    logits.push_back(static_cast<double>(random() % 1000) / 300);
    sum += std::exp(logits.back());
  }
  for (double& x : logits) x -= std::log(sum);
  return logits;
}

ScriptedModel random_model(std::uint64_t model, bool ends) {
  ScriptedModel m;
  m.vocab_size = kVocab;
  if (ends) m.eos_ids = {kEos};
  m.logits = [model](std::span<const TokenId> path, std::span<float> logits) {
    const auto logprobs = random_logprobs(model, {path.begin(), path.end()});
    std::copy(logprobs.begin(), logprobs.end(), logits.begin());
  };
  return m;
}

struct Hypothesis {
  std::vector<TokenId> tokens;
  double score = 0;
};

// The rules once more, written from their description, over whole lists of token sequences.
Hypothesis reference_beam(std::uint64_t model, const std::vector<TokenId>& prompt, const TokenBeam& o) {
  struct Beam {
    std::vector<TokenId> tokens;
    double sum = 0;
  };
  const auto score = [&o](double sum, std::size_t n) {
    return sum / std::pow(static_cast<double>(n), o.length_penalty);
  };
  std::vector<Beam> beams(1);
  std::vector<Hypothesis> ended;
  const auto add = [&](std::vector<TokenId> tokens, double s) {
    ended.push_back({std::move(tokens), s});
    std::stable_sort(ended.begin(), ended.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
    if (ended.size() > o.width) ended.pop_back();
  };
  for (std::int64_t step = 1; step <= o.max_tokens; ++step) {
    std::vector<Beam> all;
    for (const Beam& b : beams) {
      std::vector<TokenId> path = prompt;
      path.insert(path.end(), b.tokens.begin(), b.tokens.end());
      const auto logprobs = random_logprobs(model, path);
      for (TokenId t = 0; t < kVocab; ++t) {
        Beam next = b;
        next.tokens.push_back(t);
        next.sum += static_cast<float>(logprobs[static_cast<std::size_t>(t)]);
        all.push_back(std::move(next));
      }
    }
    std::stable_sort(all.begin(), all.end(), [](const Beam& a, const Beam& b) { return a.sum > b.sum; });
    beams.clear();
    for (std::size_t rank = 0; rank < std::min(all.size(), 2 * o.width) && beams.size() < o.width; ++rank) {
      if (all[rank].tokens.back() != kEos) {
        beams.push_back(all[rank]);
      } else if (rank < o.width) {
        add(all[rank].tokens, score(all[rank].sum, all[rank].tokens.size()));
      }
    }
    if (ended.size() < o.width) continue;
    if (o.early_stopping == TokenBeam::EarlyStopping::when_full) return ended[0];
    const bool far = o.early_stopping == TokenBeam::EarlyStopping::never && o.length_penalty > 0;
    const auto n = static_cast<std::size_t>(far ? o.max_tokens : step);
    if (ended.back().score >= score(beams[0].sum, n)) return ended[0];
  }
  for (const Beam& b : beams) add(b.tokens, score(b.sum, b.tokens.size()));
  return ended[0];
}

struct BeamRun {
  Session session;
  std::vector<std::unique_ptr<Search>> searches;
  SearchResult result;

  BeamRun(ScriptedModel model, const std::vector<TokenId>& prompt, const TokenBeam& o) {
    session.add_lane(make_scripted_runner(std::move(model)));
    SearchOptions options;
    options.root = session.insert(prompt);
    searches.push_back(std::make_unique<Search>(session, std::make_shared<PromptProblem>("p", Prompt{}), options));
    options.root = Node();
    result = run_searches(session, searches, [&o](Search& s) { return token_beam(s, o); })[0];
    if (result.error) throw Error(*result.error);
  }
  std::vector<TokenId> tokens() const {
    std::vector<TokenId> list;
    for (const ThoughtId id : searches[0]->path(result.best)) list.push_back((*searches[0])[id].tokens.at(0));
    return list;
  }
};

}  // namespace

TEST_CASE("token beam: Hugging Face's rules, against a second writing of them") {
  int n_ended = 0;
  for (std::uint64_t model = 0; model < 12; ++model) {
    for (const std::size_t width : {1, 2, 3, 5}) {
      for (const double penalty : {0.0, 1.0, 2.0, -0.5}) {
        for (const auto early : {TokenBeam::EarlyStopping::when_full, TokenBeam::EarlyStopping::heuristic,
                                 TokenBeam::EarlyStopping::never}) {
          TokenBeam o;
          o.width = width;
          o.max_tokens = 7;
          o.length_penalty = penalty;
          o.early_stopping = early;
          const BeamRun r(random_model(model, true), {2, 3}, o);
          const Hypothesis expected = reference_beam(model, {2, 3}, o);
          REQUIRE(r.tokens() == expected.tokens);
          CHECK(r.result.value == doctest::Approx(expected.score).epsilon(1e-5));
          CHECK(r.result.complete == (expected.tokens.back() == kEos));
          n_ended += r.result.complete ? 1 : 0;
        }
      }
    }
  }
  CHECK(n_ended > 100);
}

TEST_CASE("token beam: wide enough, it finds the likeliest of all texts") {
  TokenBeam o;
  o.width = kVocab * kVocab * kVocab;
  o.max_tokens = 4;
  o.length_penalty = 0;
  const BeamRun r(random_model(3, false), {1}, o);
  double best = -INFINITY;
  const std::function<void(std::vector<TokenId>, double)> visit = [&](std::vector<TokenId> path, double sum) {
    if (path.size() == 5) {
      best = std::max(best, sum);
      return;
    }
    const auto logprobs = random_logprobs(3, path);
    for (TokenId t = 0; t < kVocab; ++t) {
      path.push_back(t);
      visit(path, sum + logprobs[static_cast<std::size_t>(t)]);
      path.pop_back();
    }
  };
  visit({1}, 0);
  CHECK(r.result.value == doctest::Approx(best).epsilon(1e-5));
}

TEST_CASE("BL-21: the prompt's length is not in the score; a penalty of 0 is the plain sum") {
  // Every token has log-probability -1; the text may end behind 2, 4 and 6 tokens.
  const auto model = [](std::size_t n_prompt) {
    ScriptedModel m;
    m.vocab_size = 4;
    m.eos_ids = {0};
    m.logits = [n_prompt](std::span<const TokenId> path, std::span<float> logits) {
      const std::size_t n = path.size() - n_prompt;
      const bool may_end = n == 1 || n == 3 || n == 5;
      std::fill(logits.begin(), logits.end(), -INFINITY);
      logits[1] = -1;  // e^-1 for the text's own token, the rest for a token that leads nowhere, or the end
      if (may_end) logits[0] = -1;
      logits[2] = static_cast<float>(std::log(1 - (may_end ? 2 : 1) * std::exp(-1)));
    };
    return m;
  };
  for (const double penalty : {1.0, 0.0}) {
    std::vector<std::map<std::size_t, double>> scores;
    for (const std::size_t n_prompt : {1, 500}) {
      TokenBeam o;
      o.width = 200;  // all paths of six steps
      o.max_tokens = 6;
      o.length_penalty = penalty;
      o.early_stopping = TokenBeam::EarlyStopping::never;
      const BeamRun r(model(n_prompt), std::vector<TokenId>(n_prompt, 3), o);
      const Search& s = *r.searches[0];
      scores.emplace_back();
      for (const ThoughtId id : s.finished()) {
        const auto path = s.path(id);
        const bool plain = std::none_of(path.begin(), path.end(), [&s](ThoughtId t) { return s[t].tokens[0] == 2; });
        if (plain) scores.back()[path.size()] = s[id].value;
      }
    }
    REQUIRE(scores[0].size() == 3);
    CHECK(scores[0] == scores[1]);
    for (const auto& [n, score] : scores[0]) {
      CHECK(score == doctest::Approx(penalty == 0 ? -static_cast<double>(n) : -1).epsilon(1e-6));
    }
  }
}

TEST_CASE("step beam: aggregates of step scores, duplicates, what lookahead scores") {
  struct Seen {
    std::vector<std::string> judged;
    std::map<std::string, double> values;  // of states with text, after the run
    SearchResult result;
  };
  const auto run = [](const std::function<void(StepBeam&)>& set) {
    Seen seen;
    Session session;
    session.add_lane(make_scripted_runner(test::toy_model()));
    std::vector<std::unique_ptr<Search>> searches;
    searches.push_back(std::make_unique<Search>(session, std::make_shared<test::ToyProblem>("a")));
    StepBeam o;
    o.width = 3;
    o.branch = 4;
    o.n_levels = test::kToySteps;
    o.step = test::toy_step();
    o.scorer = callback([&seen](const Search& s, ThoughtId id) {
      seen.judged.push_back(s.state(id));
      return test::toy_reward(s.state(id));
    });
    set(o);
    seen.result = run_searches(session, searches, [&o](Search& s) { return step_beam(s, o); })[0];
    for (ThoughtId id = 1; id < searches[0]->size(); ++id) {
      seen.values[searches[0]->state(id)] = (*searches[0])[id].value;
    }
    return seen;
  };
  const auto steps = [](const std::string& state) {  // rewards of "ab;", "ab;cd;" …
    std::vector<double> list;
    for (std::size_t n = 3; n <= state.size(); n += 3) list.push_back(test::toy_reward(state.substr(0, n)));
    return list;
  };
  for (const Aggregate rule : {Aggregate::last, Aggregate::min, Aggregate::prod, Aggregate::mean, Aggregate::sum}) {
    const Seen seen = run([rule](StepBeam& o) { o.aggregate = rule; });
    CHECK(seen.result.complete);
    for (const auto& [state, value] : seen.values) {
      const auto list = steps(state);
      double expected = list.back();
      if (rule == Aggregate::min) expected = *std::min_element(list.begin(), list.end());
      if (rule == Aggregate::prod) expected = std::accumulate(list.begin(), list.end(), 1.0, std::multiplies<>());
      if (rule == Aggregate::sum || rule == Aggregate::mean) expected = std::accumulate(list.begin(), list.end(), 0.0);
      if (rule == Aggregate::mean) expected /= static_cast<double>(list.size());
      CHECK(value == doctest::Approx(expected));
      CHECK(value <= seen.values.at(seen.result.text) + (state.size() < 12 ? 10.0 : 0.0));
    }
  }
  const Seen ahead = run([](StepBeam& o) {
    o.n_levels = 1;
    o.lookahead = 2;
  });
  CHECK(ahead.judged.size() == 12);  // width * branch candidates, each by what two further steps lead to
  for (const std::string& state : ahead.judged) CHECK(state.size() == 9);
  const Seen merged = run([](StepBeam& o) { o.duplicates = Duplicates::merge; });
  const Seen kept = run([](StepBeam&) {});
  CHECK(merged.judged.size() < kept.judged.size());
  CHECK(std::set<std::string>(merged.judged.begin(), merged.judged.end()).size() == merged.judged.size());
}

TEST_CASE("BL-43: a step beam returns a finished path of high value though others go on") {
  // Some paths end behind two steps, with 0.9; every other path has 0.5 and goes on to depth 4.
  struct Early : test::ToyProblem {
    using ToyProblem::ToyProblem;
    bool finished(std::string_view state, FinishReason) const override {
      const auto n_steps = std::count(state.begin(), state.end(), ';');
      return n_steps == 4 || (n_steps == 2 && test::toy_hash(state) % 3 == 0);
    }
  };
  for (const std::int64_t max_answers : {0, 1}) {
    Session session;
    session.add_lane(make_scripted_runner(test::toy_model()));
    std::vector<std::unique_ptr<Search>> searches;
    searches.push_back(std::make_unique<Search>(session, std::make_shared<Early>("b")));
    StepBeam o;
    o.width = 6;
    o.branch = 4;
    o.step = test::toy_step();
    o.max_answers = max_answers;
    o.scorer = callback([](const Search& s, ThoughtId id) {
      return s[id].state == ThoughtState::finished && s[id].depth == 2 ? 0.9 : 0.5;
    });
    const auto r = run_searches(session, searches, [&o](Search& s) { return step_beam(s, o); })[0];
    CHECK(r.complete);
    CHECK(r.value == 0.9);
    CHECK(r.text.size() == 6);
  }
}

TEST_CASE("dvts: subtrees are independent; each goes on with its best candidate") {
  const auto run = [](std::int64_t n_subtrees, Dvts::Returned returned, std::int64_t n_levels,
                      const std::function<void(const Search&, const SearchResult&)>& look) {
    Session session;
    session.add_lane(make_scripted_runner(test::toy_model()));
    std::vector<std::unique_ptr<Search>> searches;
    searches.push_back(std::make_unique<Search>(session, std::make_shared<test::ToyProblem>("c")));
    Dvts o;
    o.n_subtrees = n_subtrees;
    o.branch = 3;
    o.n_levels = n_levels;
    o.step = test::toy_step();
    o.scorer = callback([](const Search& s, ThoughtId id) { return test::toy_reward(s.state(id)); });
    o.returned = returned;
    const auto r = run_searches(session, searches, [&o](Search& s) { return dvts(s, o); })[0];
    look(*searches[0], r);
  };
  run(4, Dvts::Returned::completed, test::kToySteps, [](const Search& s, const SearchResult& r) {
    CHECK(s.children(kRootThought).size() == 12);
    std::size_t n_tips = 0;
    for (std::size_t tree = 0; tree < 4; ++tree) {
      ThoughtId best = s.children(kRootThought)[3 * tree];
      for (std::size_t k = 0; k < 3; ++k) {
        const ThoughtId id = s.children(kRootThought)[3 * tree + k];
        if (s[id].value > s[best].value) best = id;
        n_tips += s.children(id).empty() ? 0 : 1;
      }
      CHECK(s.children(best).size() == 3);
    }
    CHECK(n_tips == 4);
    CHECK(s.finished().size() == 12);
    CHECK(r.complete);
    for (const ThoughtId id : s.finished()) CHECK(s[id].value <= r.value);
  });
  for (const auto returned : {Dvts::Returned::completed, Dvts::Returned::last}) {
    run(2, returned, 2, [](const Search& s, const SearchResult& r) {
      CHECK(!r.complete);
      CHECK(s[r.best].depth == 2);
    });
  }
}
