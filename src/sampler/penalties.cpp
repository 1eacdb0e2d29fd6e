#include "sampler/penalties.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

namespace banyan::sampling {
namespace {

void check_tokens(std::span<const TokenId> tokens, std::int64_t vocab_size, const char* what) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab_size) continue;
    throw Error(ErrorCode::bad_input, fmt::format("{} token {}", what, i),
                fmt::format("id {} is outside the vocabulary of {} tokens", tokens[i], vocab_size));
  }
}

}  // namespace

bool has_penalties(const SamplerOptions& o) {
  return o.repetition_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0;
}

void Penalties::note(TokenId token, std::int32_t generated) {
  if (seen_[token] == 0) {
    seen_[token] = 1;
    distinct_.push_back(token);
  }
  seen_[token] += generated;
}

void Penalties::apply(const SamplerOptions& o, const TokenHistory& history, std::span<float> logits) {
  check_tokens(history.prompt, std::ssize(logits), "prompt");
  check_tokens(history.generated, std::ssize(logits), "generated");
  if (seen_.size() < logits.size()) {
    seen_.resize(logits.size());
    distinct_.reserve(logits.size());
  }
  if (o.repetition_penalty != 1) {
    for (const TokenId token : history.prompt) note(token, 0);
  }
  for (const TokenId token : history.generated) note(token, 1);

  constexpr double kMax = std::numeric_limits<float>::max();
  for (const TokenId token : distinct_) {
    const int n_generated = seen_[token] - 1;
    seen_[token] = 0;
    double x = logits[token];
    if (x == -std::numeric_limits<double>::infinity()) continue;
    x = x > 0 ? x / o.repetition_penalty : x * o.repetition_penalty;
    x -= o.frequency_penalty * n_generated;
    if (n_generated > 0) x -= o.presence_penalty;
    logits[token] = static_cast<float>(std::clamp(x, -kMax, kMax));
  }
  distinct_.clear();
}

}  // namespace banyan::sampling
