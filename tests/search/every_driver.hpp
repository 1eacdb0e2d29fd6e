// The drivers, set up for the toy world (toy.hpp), so that what all of them promise is tested on each.
#pragma once

#include "banyan/search/best_of_n.hpp"
#include "banyan/search/proposers.hpp"
#include "banyan/search/scorers.hpp"
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
  return drivers;
}

}  // namespace banyan::test
