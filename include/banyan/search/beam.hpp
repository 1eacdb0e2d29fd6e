// Beam searches over tokens and over steps, and diverse verifier tree search. Layer 8.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "banyan/search/search.hpp"
#include "banyan/search/tot.hpp"

namespace banyan::search {

// --- over tokens ---------------------------------------------------------------------------------------------------

// The rules of Hugging Face's generate(num_beams). A hypothesis ends with an end-of-text token of the model; its score
// is (sum of log-probabilities) / (generated length)^length_penalty, the prompt's length is not in it. Candidates of a
// step are ordered by score, then beam, then token.
struct TokenBeam {
  std::size_t width = 4;
  std::int64_t max_tokens = 64;
  double length_penalty = 1.0;  // 0: plain sum; above 0 favours long hypotheses
  bool count_eos = true;        // the end-of-text token counts in the length (its log-probability always counts)
  enum class EarlyStopping : std::uint8_t {
    when_full,  // as soon as `width` hypotheses have ended
    heuristic,  // when the best beam, scored at its present length, is not better than the worst of `width` that ended
    never,      // when no beam can become better, whatever its length up to max_tokens
  } early_stopping = EarlyStopping::heuristic;
};

// The best hypothesis is chosen; beams that max_tokens cuts compete with those that ended. A thought is one token, and
// forking a beam copies nothing.
Task<void> token_beam(Search& search, TokenBeam options);

// --- over steps ----------------------------------------------------------------------------------------------------

// How the scores of the steps of a path become the value of the path.
enum class Aggregate : std::uint8_t { last, min, prod, mean, sum };

struct StepBeam {
  std::size_t width = 4;       // paths that are continued
  std::int64_t branch = 4;     // continuations of each; of the problem itself: width * branch
  std::int64_t n_levels = 40;  // steps on a path
  SampleOptions step = {};     // its n is not used
  Scorer scorer = {};          // of a step, given its path
  Aggregate aggregate = Aggregate::last;
  Duplicates duplicates = Duplicates::keep;  // of states, in a level
  // > 0: a candidate's score is that of the path which so many further steps, drawn greedily, lead to (Snell et al.,
  // arXiv 2408.03314). They are then dropped; an answer found on the way stays one.
  std::int64_t lookahead = 0;
  std::int64_t max_answers = 0;  // stop when so many paths have finished; 0: go on while any can be continued
};

// Beam search against a verifier (Snell et al.). Paths that finish leave the beam and stay answers, with their value.
Task<void> step_beam(Search& search, StepBeam options);

struct Dvts {
  std::int64_t n_subtrees = 4;  // n / M
  std::int64_t branch = 4;      // M
  std::int64_t n_levels = 40;
  SampleOptions step = {};
  Scorer scorer = {};
  Aggregate aggregate = Aggregate::last;
  std::int64_t lookahead = 0;
  // What the answer is chosen from: finished paths alone (where there are any), or the last candidates of all subtrees.
  enum class Returned : std::uint8_t { completed, last } returned = Returned::completed;
};

// Diverse verifier tree search (Beeching, Tunstall and Rush, 2024): independent subtrees, in each of which the best of
// `branch` candidates is continued. All subtrees take a step at a time.
Task<void> dvts(Search& search, Dvts options);

}  // namespace banyan::search
