#include <cmath>
#include <fmt/format.h>

#include "banyan/sampler.hpp"

namespace banyan {
namespace {

// Beyond this a penalty drowns every logit; the bound keeps penalised logits far from overflow.
constexpr double kMaxPenalty = 1e4;

template <typename T>
void check(bool ok, const char* name, T value, const char* range) {
  if (!ok) throw Error(ErrorCode::usage, name, fmt::format("{} is out of range; allowed: {}", value, range));
}

}  // namespace

// Comparisons are written so that NaN fails them.
void validate(const SamplerOptions& o) {
  check(o.temperature >= 0 && std::isfinite(o.temperature), "temperature", o.temperature,
        "finite and >= 0 (0: greedy)");
  check(o.top_k >= -1, "top_k", o.top_k, ">= 1, or 0 or -1 for off");
  check(o.top_p >= 0 && o.top_p <= 1, "top_p", o.top_p, "[0, 1] (1: off; 0: the likeliest token alone)");
  check(o.min_p >= 0 && o.min_p <= 1, "min_p", o.min_p, "[0, 1] (0: off)");
  check(o.repetition_penalty >= 1 / kMaxPenalty && o.repetition_penalty <= kMaxPenalty, "repetition_penalty",
        o.repetition_penalty, "[0.0001, 10000] (1: off)");
  check(std::fabs(o.presence_penalty) <= kMaxPenalty, "presence_penalty", o.presence_penalty,
        "[-10000, 10000] (0: off)");
  check(std::fabs(o.frequency_penalty) <= kMaxPenalty, "frequency_penalty", o.frequency_penalty,
        "[-10000, 10000] (0: off)");
}

}  // namespace banyan
