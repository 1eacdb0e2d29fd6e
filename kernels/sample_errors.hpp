// What is wrong with a row of logits or a history, in the same words from every sampler. Layer 4.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "banyan/error.hpp"
#include "banyan/types.hpp"

namespace banyan::sampling {

// `row` serves the message only.
Error bad_logit_error(std::int64_t row, TokenId token, float logit);  // NaN or +inf
Error all_masked_error(std::int64_t row, std::int64_t vocab_size);    // nothing but -inf
Error target_error(TokenId token, std::int64_t vocab_size);           // outside the vocabulary
// Of the first token outside the vocabulary; `what`: "prompt", "generated".
std::optional<Error> check_history(std::span<const TokenId> tokens, std::int64_t vocab_size, const char* what);

}  // namespace banyan::sampling
