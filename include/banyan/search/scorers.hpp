// Ways to give thoughts a value. Layer 8. A Scorer is any coroutine over a batch of thoughts; these are the usual ones.
// All judge the whole path of a thought.
#pragma once

#include <functional>
#include <optional>

#include "banyan/search/search.hpp"

namespace banyan::search {

// Log-probability of the drawn tokens of the path: summed, or per token (0 where none was drawn).
Scorer likelihood_sum();
Scorer likelihood_mean();

// Self-evaluation of each state by itself (Tree of Thoughts' `value`, Yao et al., arXiv 2305.10601): options.n
// completions of Problem::value_prompt, the sum of what Problem::parse_value reads from them. Where
// Problem::known_value knows, no model is asked. `remember`: equal prompts are asked once in a search.
Scorer value_judge(SampleOptions options, bool remember = true, std::optional<LaneId> lane = {});

// The same without sampling: the probabilities of Problem::value_choices() behind the value prompt, normalised among
// themselves, weigh what the choices are worth.
Scorer value_likelihood(bool remember = true, std::optional<LaneId> lane = {});

// Tree of Thoughts' `vote`: all thoughts of the batch stand in one Problem::vote_prompt; options.n ballots; a thought's
// value is the number of ballots that name it.
Scorer vote_judge(SampleOptions options, std::optional<LaneId> lane = {});

// Problem::verify: right answers 1. No value where it cannot say.
Scorer verifier();

// The model's scalar head at the end of the path.
Scorer reward();

// Any plain function. Runs are resumed exactly if it is pure.
Scorer callback(std::function<double(const Search&, ThoughtId)> value);

}  // namespace banyan::search
