// Best-of-N: draw n continuations, score each, keep the best. Layer 8: sees the public session only.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "banyan/session.hpp"

namespace banyan::search {

// Gives a finished thought a value; higher is better. May await verbs of the session (a judge, a reward model).
using Scorer = std::function<Task<double>(Session& session, const Thought& thought)>;

// Log-probability of the drawn tokens: summed, or per token (0 for an empty thought).
Scorer likelihood_sum();
Scorer likelihood_mean();
// Any plain function of the thought.
Scorer callback(std::function<double(const Thought&)> value);

struct BestOfNResult {
  std::vector<Thought> thoughts;  // in order of sample number
  std::vector<double> values;     // of each; NaN for a thought that ended in an error
  std::size_t best = 0;           // the first of the highest value. Throws Error{bad_input} if every thought failed.
};

// All n are sampled, and then scored, side by side.
Task<BestOfNResult> best_of_n(Session& session, Node node, SampleOptions sample, Scorer scorer);

// The best of the first k thoughts, for k = 1 … n, from one run: index into thoughts.
std::vector<std::size_t> best_of_first(const std::vector<double>& values);

}  // namespace banyan::search
