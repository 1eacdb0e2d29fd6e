#include "kernels/sample_errors.hpp"

#include <fmt/format.h>

namespace banyan::sampling {

Error bad_logit_error(std::int64_t row, TokenId token, float logit) {
  return Error(ErrorCode::bad_logits, fmt::format("row {}", row),
               fmt::format("the logit of token {} is {}; logits must be finite, or -inf as a mask", token, logit));
}

Error all_masked_error(std::int64_t row, std::int64_t vocab_size) {
  return Error(ErrorCode::bad_logits, fmt::format("row {}", row),
               fmt::format("all {} logits are -inf, so there is no token to draw; at least one must be left unmasked",
                           vocab_size));
}

Error target_error(TokenId token, std::int64_t vocab_size) {
  return Error(ErrorCode::usage, "token", fmt::format("{} is outside the vocabulary of {} tokens", token, vocab_size));
}

std::optional<Error> check_history(std::span<const TokenId> tokens, std::int64_t vocab_size, const char* what) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    return Error(ErrorCode::bad_input, fmt::format("{} token {}", what, i),
                 fmt::format("id {} is outside the vocabulary of {} tokens", tokens[i], vocab_size));
  }
  return std::nullopt;
}

}  // namespace banyan::sampling
