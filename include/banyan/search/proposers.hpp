// Ways to make the next thoughts. Layer 8. A Proposer is any coroutine over a Search; these are the usual ones.
#pragma once

#include <optional>

#include "banyan/search/search.hpp"

namespace banyan::search {

// `sample`: independent continuations of each parent, options.n of each, with shared KV. The texts of steps are joined
// as they are, so a step that a stop string ends wants include_stop.
Proposer sample_steps(SampleOptions options);

// `propose`: the model continues Problem::propose_prompt (options.n times), and Problem::parse_proposals reads the next
// thoughts from what it wrote. `lane`: of the proposing model; the search's own by default.
Proposer propose_steps(SampleOptions options, std::optional<LaneId> lane = {});

// The same without repetition and without sampling: Problem::parse_proposals reads each of the k likeliest texts behind
// Problem::propose_prompt. A step that was proposed by two texts is two thoughts.
Proposer likeliest_steps(Search::LikeliestOptions options, std::optional<LaneId> lane = {});

// Problem::next_steps, without a model.
Proposer rule_steps();

// The k likeliest next tokens, a thought each: for searches whose actions are tokens.
Proposer likeliest_tokens(std::int64_t k);

// Whole answers that take the place of the state: below the problem itself drawn as a continuation of its prompt, below
// an answer one that Problem::revise_prompt asks for, given the last `n_shown` answers of the path. One for each
// parent.
Proposer revise_answers(SampleOptions options, std::size_t n_shown = 4, std::optional<LaneId> lane = {});

}  // namespace banyan::search
