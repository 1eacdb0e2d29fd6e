// The drivers, set up for the toy world (toy.hpp), so that what all of them promise is tested on each.
#pragma once

#include "banyan/search/best_of_n.hpp"
#include "banyan/search/proposers.hpp"
#include "banyan/search/scorers.hpp"
#include "banyan/search/tot.hpp"
#include "search/toy.hpp"

namespace banyan::test {

struct NamedDriver {
  std::string name;
  search::Driver driver;
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
  TotDfs deep;
  deep.n_levels = kToySteps;
  deep.generate = sample_steps(three);
  deep.evaluate = value_judge(toy_judgement(1));
  deep.max_per_state = 2;
  deep.max_answers = 6;
  drivers.push_back({"tot-dfs sample value", [deep](Search& s) { return tot_dfs(s, deep); }});
  return drivers;
}

}  // namespace banyan::test
