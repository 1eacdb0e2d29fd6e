// Searches over whole answers: chains of revisions, and adaptive branching between new answers and revisions. Layer 8.
//
// A thought is a whole answer here; one below another is a revision of it (revise_answers() in proposers.hpp). Every
// answer is finished when it is made, and may be revised nevertheless.
#pragma once

#include <cstdint>
#include <vector>

#include "banyan/search/best_of_n.hpp"
#include "banyan/search/search.hpp"

namespace banyan::search {

struct Revise {
  std::int64_t n_chains = 4;      // side by side
  std::int64_t chain_length = 4;  // answers in each
  Proposer revise = {};           // revise_answers()
  Scorer scorer = {};
  // How the chains' best answers elect the result. `weighted` is best-of-N weighted: equal answers add their values.
  VoteRule rule = VoteRule::max;
};

// Sequential revisions in parallel chains (Snell et al., arXiv 2408.03314, section 6). The best answer of each chain is
// chosen within it first, and then among the chains; never blindly a chain's last, which may have revised a right
// answer away.
Task<void> revise(Search& search, Revise options);

struct AbMcts {
  std::int64_t n_answers = 32;  // drawn, in all
  std::int64_t batch = 1;       // of them, between two looks at the values
  Proposer generate = {};       // revise_answers(); or sample_steps() with n = 1, where thoughts are steps
  bool revises = true;          // finished thoughts may be continued
  Scorer scorer = {};           // in [0, 1]
  enum class Posterior : std::uint8_t {
    gaussian,  // normal-inverse-chi-squared: mean 0, kappa 1, nu 1, tau^2 0.1
    beta,      // Beta(1/2, 1/2); fractions count as parts of a success
  } posterior = Posterior::gaussian;
};

// AB-MCTS-A (Inoue et al., arXiv 2503.04412): at each answer Thompson sampling decides between drawing one more below
// it (GEN) and going on to one that is there (CONT). GEN has seen the values of the answer's own children, CONT those
// of all answers below it that were not its children when they were drawn; a child has seen its own value and all
// below. Throws Error{bad_input} naming a thought whose value is NaN, or outside [0, 1] with `beta`.
Task<void> ab_mcts(Search& search, AbMcts options);

}  // namespace banyan::search
