// The drivers, set up for the toy world (toy.hpp), so that what all of them promise is tested on each.
#pragma once

#include "banyan/search/beam.hpp"
#include "banyan/search/best_of_n.hpp"
#include "banyan/search/mcts.hpp"
#include "banyan/search/proposers.hpp"
#include "banyan/search/revise.hpp"
#include "banyan/search/scorers.hpp"
#include "banyan/search/tot.hpp"
#include "search/toy.hpp"

namespace banyan::test {

struct NamedDriver {
  std::string name;
  search::Driver driver;
  bool finishes = true;  // reaches whole answers in the toy world
};

inline std::vector<NamedDriver> every_driver() {
  using namespace search;
  std::vector<NamedDriver> drivers;
  BestOfN best;
  best.n = 12;
  best.batch = 4;
  best.sample = toy_answer();
  best.scorer = reward();
  drivers.push_back({"best-of-n", [best](Search& s) { return best_of_n(s, best); }});
  SelfConsistency votes;
  votes.n = 12;
  votes.batch = 4;
  votes.sample = toy_answer();
  votes.rule = VoteRule::weighted;
  votes.scorer = value_judge(toy_judgement(2));
  drivers.push_back({"self-consistency", [votes](Search& s) { return self_consistency(s, votes); }});
  const auto tot = [](Proposer generate, Scorer evaluate) {
    TotBfs o;
    o.n_levels = kToySteps;
    o.width = 3;
    o.generate = std::move(generate);
    o.evaluate = std::move(evaluate);
    return o;
  };
  SampleOptions three = toy_step();
  three.n = 3;
  SampleOptions list;
  list.max_tokens = 12;
  list.stop = {"."};
  const TotBfs sampled = tot(sample_steps(three), value_judge(toy_judgement(2)));
  drivers.push_back({"tot-bfs sample value", [sampled](Search& s) { return tot_bfs(s, sampled); }});
  TotBfs proposed = princeton(tot(propose_steps(list), vote_judge(toy_judgement(5))));
  drivers.push_back({"tot-bfs propose vote", [proposed](Search& s) { return tot_bfs(s, proposed); }});
  TotBfs drawn = tot(propose_steps(list), value_likelihood());
  drawn.select = Selection::sample;
  drivers.push_back({"tot-bfs propose likelihood, drawn", [drawn](Search& s) { return tot_bfs(s, drawn); }});
  Search::LikeliestOptions likely;
  likely.k = 3;
  likely.max_tokens = 4;
  likely.stop = ";";
  likely.include_stop = true;
  const TotBfs ranked = tot(likeliest_steps(likely), value_likelihood());
  drivers.push_back({"tot-bfs likeliest", [ranked](Search& s) { return tot_bfs(s, ranked); }});
  TotDfs deep;
  deep.n_levels = kToySteps;
  deep.generate = sample_steps(three);
  deep.evaluate = value_judge(toy_judgement(1));
  deep.max_per_state = 2;
  deep.max_answers = 6;
  drivers.push_back({"tot-dfs sample value", [deep](Search& s) { return tot_dfs(s, deep); }});
  TokenBeam tokens;
  tokens.width = 3;
  tokens.max_tokens = 16;
  drivers.push_back({"token-beam", [tokens](Search& s) { return token_beam(s, tokens); }});
  StepBeam beam;
  beam.width = 2;
  beam.branch = 3;
  beam.n_levels = kToySteps;
  beam.step = toy_step();
  beam.scorer = reward();
  beam.aggregate = Aggregate::mean;
  beam.lookahead = 1;
  drivers.push_back({"step-beam", [beam](Search& s) { return step_beam(s, beam); }});
  Dvts diverse;
  diverse.n_subtrees = 3;
  diverse.branch = 2;
  diverse.n_levels = kToySteps;
  diverse.step = toy_step();
  diverse.scorer = reward();
  diverse.aggregate = Aggregate::prod;
  drivers.push_back({"dvts", [diverse](Search& s) { return dvts(s, diverse); }});
  Mcts uct;
  uct.n_iterations = 30;
  uct.n_levels = kToySteps;
  uct.rule = Mcts::Rule::uct;
  uct.expand = sample_steps(three);
  uct.evaluate = value_likelihood();
  drivers.push_back({"mcts uct", [uct](Search& s) { return mcts(s, uct); }});
  Mcts puct = uct;
  puct.rule = Mcts::Rule::puct;
  puct.batch = 4;
  puct.noise_weight = 0.25;
  puct.terminal = verifier();
  puct.answer = Mcts::Answer::max_visit;
  puct.n_iterations = 80;
  drivers.push_back({"mcts puct, batches", [puct](Search& s) { return mcts(s, puct); }});
  Mcts by_token = puct;
  by_token.n_levels = 12;
  by_token.expand = likeliest_tokens(2);
  by_token.evaluate = reward();
  by_token.terminal = {};
  by_token.c_init = 0.2;
  by_token.answer = Mcts::Answer::max_reward;
  drivers.push_back({"mcts tokens", [by_token](Search& s) { return mcts(s, by_token); }});
  Revise chains;
  chains.n_chains = 3;
  chains.revise = revise_answers(toy_answer(), 2);
  chains.scorer = value_judge(toy_judgement(2));
  drivers.push_back({"revise", [chains](Search& s) { return revise(s, chains); }});
  AbMcts adaptive;
  adaptive.n_answers = 16;
  adaptive.batch = 2;
  adaptive.generate = revise_answers(toy_answer());
  adaptive.scorer = value_likelihood();
  drivers.push_back({"ab-mcts gaussian", [adaptive](Search& s) { return ab_mcts(s, adaptive); }});
  AbMcts steps = adaptive;
  steps.posterior = AbMcts::Posterior::beta;
  steps.revises = false;
  steps.generate = sample_steps(toy_step());
  steps.n_answers = 60;
  drivers.push_back({"ab-mcts beta, steps", [steps](Search& s) { return ab_mcts(s, steps); }, false});
  return drivers;
}

}  // namespace banyan::test
