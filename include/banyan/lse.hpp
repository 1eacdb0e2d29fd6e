// Merging partial attention by log-sum-exp. Layer 0; the one place that states the convention.
//
// A partial over a set of keys S is (O, lse): O = softmax-weighted mean of V over S, lse = ln sum_{s in S} exp(score).
// Natural logarithm, float32. The empty set is O = 0, lse = -inf. Merging with it changes nothing, bit for bit; empty
// with empty stays empty, never NaN. Partials are merged root -> leaf. (Hydragen, arXiv 2402.05099, section 3.1.)
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace banyan {

constexpr float kEmptyLse = -std::numeric_limits<float>::infinity();

// Merges (o_b, lse_b) into (o_a, lse_a). o_* have head_dim elements; o_a and lse_a are updated in place.
inline void merge_partial(float* o_a, float& lse_a, const float* o_b, float lse_b, std::int64_t head_dim) {
  if (lse_b == kEmptyLse) return;
  if (lse_a == kEmptyLse) {
    for (std::int64_t i = 0; i < head_dim; ++i) o_a[i] = o_b[i];
    lse_a = lse_b;
    return;
  }
  const float m = lse_a > lse_b ? lse_a : lse_b;
  const float w_a = std::exp(lse_a - m);
  const float w_b = std::exp(lse_b - m);
  const float sum = w_a + w_b;
  for (std::int64_t i = 0; i < head_dim; ++i) o_a[i] = (w_a * o_a[i] + w_b * o_b[i]) / sum;
  lse_a = m + std::log(sum);
}

}  // namespace banyan
