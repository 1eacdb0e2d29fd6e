// The model of models/arith24 plays the game of 24: it loads through the ordinary path, and searches with it find
// solutions. Figures are in bench/results; these are floors that a broken model or search falls through.
#include <doctest/doctest.h>
#include <memory>
#include <string>

#include "banyan/model.hpp"
#include "banyan/search/best_of_n.hpp"
#include "banyan/search/proposers.hpp"
#include "banyan/search/scorers.hpp"
#include "banyan/search/tasks/game24_problem.hpp"
#include "banyan/search/tot.hpp"

using namespace banyan;
using namespace banyan::search;

namespace {

const std::string kModel = std::string(BANYAN_SOURCE_DIR) + "/models/arith24/hf";

// Hands of numbers from 1 to 13 that can make 24: none of them was trained on.
std::vector<Numbers> some_hands() {
  std::vector<Numbers> hands;
  for (const char* text : {"1 2 7 7", "3 3 8 8", "2 5 8 11", "4 6 9 13", "5 5 7 11", "1 5 10 13"}) {
    hands.push_back(parse_numbers(text));
    REQUIRE(solvable(hands.back(), 24));
  }
  return hands;
}

std::vector<std::unique_ptr<Search>> searches_of(Session& session) {
  std::vector<std::unique_ptr<Search>> searches;
  for (const Numbers& hand : some_hands()) {
    searches.push_back(std::make_unique<Search>(session, std::make_shared<Game24Problem>(to_string(hand), hand)));
  }
  return searches;
}

}  // namespace

TEST_CASE("arith24: numbers are symbols of their own") {
  const auto model = Model::load(kModel);
  const Tokenizer& tokenizer = *model->tokenizer();
  CHECK(tokenizer.encode("1 2 345 to 24 value").size() == 7);  // and the beginning of the text
  CHECK(tokenizer.encode(" 8 - 8/3 = 16/3 left 16/3 999\n", {.add_bos = false, .first = false}).size() == 12);
}

TEST_CASE("arith24: tot-bfs with the model's own moves and values") {
  Session session;
  session.add_lane(make_runner(Model::load(kModel), {.n_kv_slots = 8192}));
  const auto searches = searches_of(session);
  SampleOptions list{.max_tokens = 260};
  list.sampler.temperature = 0;
  const auto results = run_searches(session, searches, [&](Search& s) {
    return tot_bfs(s, {.n_levels = 3, .width = 2, .generate = propose_steps(list), .evaluate = value_likelihood()});
  });
  int n_solved = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    CHECK(results[i].counters.tokens_generated < 700);
    n_solved += results[i].complete && searches[i]->problem().verify(results[i].text) == 1.0;
  }
  CHECK(n_solved >= 5);
}

TEST_CASE("arith24: values of states that can be decided by rule") {
  Session session;
  session.add_lane(make_runner(Model::load(kModel), {.n_kv_slots = 8192}));
  const auto searches = searches_of(session);
  run_searches(session, searches, [](Search& s) {
    return tot_bfs(s, {.n_levels = 1, .width = 100, .generate = rule_steps(), .evaluate = value_likelihood()});
  });
  int n = 0, n_right = 0;
  for (const auto& search : searches) {
    const auto& problem = dynamic_cast<const Game24Problem&>(search->problem());
    for (ThoughtId id = 1; id < search->size(); ++id, ++n) {
      n_right += ((*search)[id].value > 0.5) == solvable(*problem.left_after(search->state(id)), 24);
    }
  }
  CHECK(n > 100);
  CHECK(n_right > 0.9 * n);
}
