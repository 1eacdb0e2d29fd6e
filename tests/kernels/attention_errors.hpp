// How far an attention result is from the oracle's, and whether two are the same, bit for bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <doctest/doctest.h>
#include <vector>

#include "tests/kernels/forest.hpp"

namespace banyan::kernels {

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}
inline bool same_bits(const AttentionResult& a, const AttentionResult& b) {
  return same_bits(a.o, b.o) && same_bits(a.lse, b.lse);
}

struct AttentionErrors {
  double o = 0, o_rms = 0, lse = 0;  // the largest of O, its root mean square, the largest of the log-sum-exps
};

// Fails the test where a difference is NaN, so for an infinity on one side alone, too.
inline AttentionErrors errors(const AttentionResult& got, const Forest::Oracle& right) {
  REQUIRE(got.o.size() == right.o.size());
  REQUIRE(got.lse.size() == right.lse.size());
  AttentionErrors e;
  std::int64_t n_wrong = 0;
  for (std::size_t i = 0; i < got.o.size(); ++i) {
    const double difference = std::fabs(got.o[i] - right.o[i]);
    n_wrong += std::isfinite(difference) ? 0 : 1;
    e.o = std::max(e.o, difference);
    e.o_rms += difference * difference / static_cast<double>(got.o.size());
  }
  e.o_rms = std::sqrt(e.o_rms);
  for (std::size_t i = 0; i < got.lse.size(); ++i) {
    if (double{got.lse[i]} == right.lse[i]) continue;  // no difference, and of a row without keys none: both are -inf
    const double difference = std::fabs(got.lse[i] - right.lse[i]);
    n_wrong += std::isfinite(difference) ? 0 : 1;
    e.lse = std::max(e.lse, difference);
  }
  CHECK(n_wrong == 0);
  return e;
}

}  // namespace banyan::kernels
