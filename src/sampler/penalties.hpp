// Repetition, presence and frequency penalties on a row of logits. Layer 6, internal.
//
// Scratch memory of one thread; allocates nothing once it has seen the vocabulary size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "banyan/sampler.hpp"

namespace banyan::sampling {

bool has_penalties(const SamplerOptions& options);

class Penalties {
 public:
  // In place on logits [vocab_size], by penalised() of kernels/sample_math.hpp. Throws Error{bad_input} for a token of
  // the history outside the vocabulary, before anything is changed.
  void apply(const SamplerOptions& options, const TokenHistory& history, std::span<float> logits);

 private:
  void note(TokenId token, std::int32_t generated);

  std::vector<std::int32_t> seen_;  // [vocab_size] 0: not in the history, else 1 + occurrences among the generated
  std::vector<TokenId> distinct_;   // tokens with seen_ > 0; seen_ is all 0 between calls
};

}  // namespace banyan::sampling
