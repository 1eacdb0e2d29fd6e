// Tree of Thoughts (Yao et al., arXiv 2305.10601), breadth first and depth first. Layer 8.
//
// `generate` is sample_steps() or propose_steps(), `evaluate` value_judge() or vote_judge(): the paper's four pairs;
// any other proposer or scorer will do. Thoughts that are finished (Problem::finished) are answers; they are not
// continued.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "banyan/search/search.hpp"

namespace banyan::search {

// What becomes of a thought whose state (the text of its path) stands in the same level already.
enum class Duplicates : std::uint8_t {
  merge,  // it is dropped, unjudged
  zero,   // it stays, with value 0, unjudged
  keep,   // it is a thought like any other
};

enum class Selection : std::uint8_t {
  greedy,                   // the highest values, of equals the first
  sample,                   // drawn in proportion to the values, each thought once
  sample_with_replacement,  // the same, but one thought may be drawn several times and is then continued several times
};

struct TotBfs {
  std::int64_t n_levels = 4;  // T: thoughts on a path
  std::size_t width = 5;      // b: thoughts kept of each level, finished ones among them
  Proposer generate = {};
  Scorer evaluate = {};
  Selection select = Selection::greedy;
  Duplicates duplicates = Duplicates::merge;
  // Called with each level's candidates, their values, and what was selected.
  std::function<void(std::int64_t level, const std::vector<ThoughtId>& candidates, const std::vector<double>& values,
                     const std::vector<ThoughtId>& selected)>
      on_level = {};
};

// The rules of the paper's published program: duplicates have value 0, and `sample` draws with replacement.
TotBfs princeton(TotBfs options);

// Algorithm 1: ToT-BFS. With Selection::sample, values that are not positive have no weight; if none is positive all
// weigh the same.
Task<void> tot_bfs(Search& search, TotBfs options);

struct TotDfs {
  std::int64_t n_levels = 4;      // T
  std::size_t max_per_state = 3;  // children visited of each thought, the highest values first
  std::int64_t max_visits = 100;  // thoughts continued, in all
  std::int64_t max_answers = 1;   // stop when so many answers are found
  double threshold = -std::numeric_limits<double>::infinity();  // v_th: a thought is visited if its value is above
  std::function<bool(const Search&, ThoughtId)> prune = {};     // or not at all, if this says so
  Proposer generate = {};
  Scorer evaluate = {};
  Duplicates duplicates = Duplicates::merge;  // among the children of one thought
};

// Algorithm 2: ToT-DFS. What it backs out of is dropped, and its KV is free.
Task<void> tot_dfs(Search& search, TotDfs options);

}  // namespace banyan::search
