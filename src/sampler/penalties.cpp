#include "sampler/penalties.hpp"

#include "kernels/sample_errors.hpp"
#include "kernels/sample_math.hpp"

namespace banyan::sampling {

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
  if (const auto error = check_history(history.prompt, std::ssize(logits), "prompt")) throw *error;
  if (const auto error = check_history(history.generated, std::ssize(logits), "generated")) throw *error;
  if (seen_.size() < logits.size()) {
    seen_.resize(logits.size());
    distinct_.reserve(logits.size());
  }
  if (o.repetition_penalty != 1) {
    for (const TokenId token : history.prompt) note(token, 0);
  }
  for (const TokenId token : history.generated) note(token, 1);

  for (const TokenId token : distinct_) {
    const int n_generated = seen_[token] - 1;
    seen_[token] = 0;
    logits[token] =
        penalised(logits[token], o.repetition_penalty, o.frequency_penalty, o.presence_penalty, n_generated);
  }
  distinct_.clear();
}

}  // namespace banyan::sampling
