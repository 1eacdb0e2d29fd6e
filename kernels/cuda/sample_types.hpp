// What the sampler's kernels read and write: plain data, the same on host and device. No CUDA header, so that the host
// side and the tests may use it anywhere. Layer 4.
#pragma once

#include <cstdint>

namespace banyan::kernels::cuda {

// One thing wanted from one row of logits, as a kernel reads it. Several queries may read the same row.
struct RowQuery {
  enum Kind : std::int32_t { draw, logprob, top };

  std::uint64_t seed = 0, prompt = 0, sample = 0, position = 0;  // draw: the random stream
  double top_p = 1;
  double repetition = 1, frequency = 0, presence = 0;  // penalties
  std::int64_t history_begin = 0;                      // into the flat tokens: n_prompt of them, then n_generated
  std::int64_t n_prompt = 0, n_generated = 0;
  std::int64_t top_begin = 0;  // into the flat lists of likeliest tokens
  float scale = 0;             // log2(e) / temperature, by sampling::scale_of
  float min_p = 0;
  Kind kind = draw;
  std::int32_t row = 0;
  std::int32_t greedy = 0;     // draw: the likeliest token, temperature and filters aside
  std::int32_t penalties = 0;  // draw: whether any is on
  std::int32_t top_k = 0;      // 0: off
  std::int32_t n_top = 0;      // at most kMaxTop; draw, top: how many of the likeliest are written
  std::int32_t target = 0;     // logprob: of this token
};

// The longest list of likeliest tokens that a query may ask for.
constexpr std::int64_t kMaxTop = 8192;

enum class RowStatus : std::int32_t {
  good,
  not_finite,  // a NaN or +inf: RowChoice has the first such token, and its logit in place of the log-probability
  all_masked,  // nothing but -inf
};

struct RowChoice {
  std::int32_t token = -1;
  float logprob = 0;  // of the token, unfiltered
  std::int32_t n_top = 0;
  RowStatus status = RowStatus::good;
};

struct RowTop {
  std::int32_t id = -1;
  float logprob = 0;
};

}  // namespace banyan::kernels::cuda
