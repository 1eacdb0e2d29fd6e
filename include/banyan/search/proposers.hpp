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

// Problem::next_steps, without a model.
Proposer rule_steps();

}  // namespace banyan::search
