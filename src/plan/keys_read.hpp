// How many stored keys a step's attention reads, and how many it would read if nothing were shared. Internal.
#pragma once

#include <cstdint>

#include "banyan/plan.hpp"

namespace banyan {

// Keys of one layer and head.
//   shared:    what the plan's calls read, each its keys once.
//   unshared:  each sequence of the step reads its path by itself, from the root to the sequence's last row, once for
//              all its rows. Rows that continue each other along one path are one sequence: the piece of a prompt, over
//              however many nodes, as any attention kernel for prompts takes it. So a lone sample saves nothing.
struct KeysRead {
  std::int64_t shared = 0, unshared = 0;
};
KeysRead keys_read(const SequenceTree& tree, const Plan& plan);

}  // namespace banyan
