// Monte Carlo tree search over thoughts: UCT and PUCT. Layer 8.
//
// An iteration walks from the problem to a leaf, gives it a value, makes its children, and adds the value to every
// thought on the way. Children are cheap until they are visited: they have a prior, and no value. A batch of leaves is
// gathered before any of them is evaluated, so that they share the model's steps; a thought that a walk of the batch
// has passed counts as visited once more until the values are in.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "banyan/search/search.hpp"

namespace banyan::search {

struct MctsNode {
  std::int64_t n_visits = 0;
  double value_sum = 0;          // of the visits
  std::int64_t n_in_flight = 0;  // walks that passed and have no value yet; 0 at the end
  double prior = 1;              // share among its siblings
  bool expanded = false;
  double mean() const { return n_visits > 0 ? value_sum / static_cast<double>(n_visits) : 0; }
};

struct Mcts {
  std::int64_t n_iterations = 64;  // leaves visited; at least 1
  std::int64_t batch = 1;          // of them, evaluated together
  std::int64_t n_levels = 10;      // thoughts on a path
  enum class Rule : std::uint8_t {
    uct,   // mean + c * sqrt(ln N / n) (Kocsis and Szepesvári, 2006); an unvisited child goes first, likeliest prior
           // first
    puct,  // mean + c(N) * prior * sqrt(N) / (1 + n), c(N) = ln((N + c_base + 1) / c_base) + c_init (AlphaZero)
  } rule = Rule::puct;
  double c_uct = 1.0;
  double c_base = 19652, c_init = 1.25;
  // Of the root's priors this share is replaced by a draw from a Dirichlet distribution.
  double noise_weight = 0, noise_alpha = 0.3;
  // What an unfinished visit adds to the value sum it will have (0: it counts as a visit alone), as a loss: value -
  // this.
  double virtual_loss = 0;
  Proposer expand = {};
  Scorer evaluate = {};
  Scorer terminal = {};  // of finished thoughts; empty: evaluate
  // Share among siblings, before normalising. Empty: exp of the mean log-probability of a thought's tokens; where
  // nothing was drawn, all alike.
  std::function<double(const Search&, ThoughtId)> prior = {};
  enum class Answer : std::uint8_t {
    max_reward,          // the finished thought of the highest value
    follow_max,          // from the problem down, always the visited child of the highest mean
    max_visit,           // from the problem down, always the most visited child
    max_iter,            // the leaf of the iteration that had the highest value
    last_iter,           // the leaf of the last iteration
    last_terminal_iter,  // the finished leaf that an iteration reached last
  } answer = Answer::max_reward;
  // Called at the end, with a node for each thought.
  std::function<void(const std::vector<MctsNode>&)> on_end = {};
};

// A problem whose expansion gives no thought has no answer: the result is the problem itself. A value that is NaN,
// where the budget is not the reason, throws Error{bad_input} naming the thought.
Task<void> mcts(Search& search, Mcts options);

}  // namespace banyan::search
