// A query as the host says it, and as a kernel reads it. Layer 4; no CUDA header.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "banyan/types.hpp"
#include "kernels/cuda/sample_types.hpp"
#include "kernels/sample_math.hpp"

namespace banyan::kernels::cuda {

// Fields as in sampler.hpp (SamplerOptions, StreamKey, TokenHistory), whose ranges the caller has checked.
struct SampleQuery {
  RowQuery::Kind kind = RowQuery::draw;
  std::int32_t row = 0;         // of the logits; several queries may read the same one
  std::int64_t row_number = 0;  // serves messages only
  std::int64_t n_top = 0;       // draw, top; at most kMaxTop
  TokenId target = kNoToken;    // logprob
  // draw
  double temperature = 1, top_p = 1, min_p = 0;
  std::int64_t top_k = 0;
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  std::uint64_t seed = 0, prompt = 0, sample = 0, position = 0;
  std::span<const TokenId> prompt_tokens, generated_tokens;  // with penalties
};

inline bool has_penalties(const SampleQuery& q) {
  return q.kind == RowQuery::draw && (q.repetition_penalty != 1 || q.presence_penalty != 0 || q.frequency_penalty != 0);
}

// Where its history and its list of likeliest tokens begin is the caller's to set.
inline RowQuery to_row_query(const SampleQuery& q, std::int64_t vocab_size) {
  constexpr double kGreedyBelow = 1e-5;
  RowQuery r;
  r.kind = q.kind;
  r.row = q.row;
  r.n_top = q.kind == RowQuery::logprob ? 0 : static_cast<std::int32_t>(std::min(q.n_top, vocab_size));
  r.target = q.target;
  if (q.kind != RowQuery::draw) return r;
  r.seed = q.seed;
  r.prompt = q.prompt;
  r.sample = q.sample;
  r.position = q.position;
  r.greedy = q.temperature < kGreedyBelow;
  r.scale = r.greedy != 0 ? 0 : sampling::scale_of(q.temperature);
  r.min_p = static_cast<float>(q.min_p);
  r.top_p = q.top_p;
  r.top_k = static_cast<std::int32_t>(std::clamp<std::int64_t>(q.top_k, 0, vocab_size));
  r.penalties = has_penalties(q);
  r.repetition = q.repetition_penalty;
  r.frequency = q.frequency_penalty;
  r.presence = q.presence_penalty;
  if (r.penalties != 0) {
    r.n_prompt = std::ssize(q.prompt_tokens);
    r.n_generated = std::ssize(q.generated_tokens);
  }
  return r;
}

}  // namespace banyan::kernels::cuda
