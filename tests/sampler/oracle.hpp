// The sampler once more, plainly: double precision, a full stable sort, loops that follow the definitions word by word.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "banyan/sampler.hpp"

namespace banyan::test {

struct Oracle {
  std::vector<double> p;  // [vocab_size]
  // Tokens so near to a cut that float32 may rightly decide otherwise, and their share before the cut.
  std::vector<bool> near;
  double near_mass = 0;
};

inline std::vector<double> penalise(const std::vector<float>& logits, const SamplerOptions& o, const TokenHistory& h) {
  std::vector<double> x(logits.begin(), logits.end());
  std::set<TokenId> path(h.prompt.begin(), h.prompt.end());
  path.insert(h.generated.begin(), h.generated.end());
  for (const TokenId t : path) x[t] = x[t] > 0 ? x[t] / o.repetition_penalty : x[t] * o.repetition_penalty;
  for (const TokenId t : h.generated) x[t] -= o.frequency_penalty;
  for (const TokenId t : std::set<TokenId>(h.generated.begin(), h.generated.end())) x[t] -= o.presence_penalty;
  return x;
}

inline void normalise(std::vector<double>& p) {
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& v : p) v /= sum;
}

inline Oracle oracle(const std::vector<float>& logits, const SamplerOptions& o, const TokenHistory& h = {}) {
  const std::vector<double> x = penalise(logits, o, h);
  const std::size_t n = x.size();
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
  constexpr double kNear = 1e-5;
  Oracle r{std::vector<double>(n, 0.0), std::vector<bool>(n, false)};
  if (o.temperature < 1e-5) {
    r.p[order[0]] = 1;
    return r;
  }
  for (std::size_t i = 0; i < n; ++i) r.p[i] = std::exp((x[i] - x[order[0]]) / o.temperature);
  if (o.top_k > 0) {
    for (std::size_t i = static_cast<std::size_t>(o.top_k); i < n; ++i) r.p[order[i]] = 0;
  }
  normalise(r.p);
  if (o.top_p < 1) {
    double before = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double p = r.p[order[i]];
      if (i > 0 && std::fabs(before - o.top_p) < kNear) {
        r.near[order[i]] = true;
        r.near_mass += p;
      }
      if (i > 0 && before >= o.top_p) r.p[order[i]] = 0;
      before += p;
    }
    normalise(r.p);
  }
  const double p_max = *std::max_element(r.p.begin(), r.p.end());
  for (std::size_t i = 0; i < n; ++i) {
    if (o.min_p > 0 && r.p[i] < p_max && std::fabs(r.p[i] / (p_max * o.min_p) - 1) < kNear) {
      r.near[i] = true;
      r.near_mass += r.p[i];
    }
    if (r.p[i] < o.min_p * p_max) r.p[i] = 0;
  }
  normalise(r.p);
  return r;
}

// Normal logits; `step` > 0 rounds them to a grid, so that many are equal; `masked` of them are -inf.
inline std::vector<float> random_row(std::mt19937& rng, std::int64_t n, float sigma, float step = 0,
                                     double masked = 0) {
  std::normal_distribution<float> normal(0.0F, sigma);
  std::bernoulli_distribution mask(masked);
  std::vector<float> row(static_cast<std::size_t>(n));
  for (float& x : row) {
    x = normal(rng);
    if (step > 0) x = std::round(x / step) * step;
    if (mask(rng)) x = -std::numeric_limits<float>::infinity();
  }
  row[static_cast<std::size_t>(n / 2)] = 1;  // never all masked
  return row;
}

// Pearson's statistic of counts against probabilities, as standard deviations of a normal (Wilson and Hilferty 1931:
// the cube root of chi-square is nearly normal). Cells of fewer than 5 expected counts are put together.
inline double chi_square_sigmas(const std::vector<std::int64_t>& counts, const std::vector<double>& p) {
  const auto n = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  double chi2 = 0, rest_expected = 0, rest_count = 0;
  int cells = 0;
  const auto add = [&](double count, double expected) {
    chi2 += (count - expected) * (count - expected) / expected;
    ++cells;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = n * p[i];
    if (expected >= 5) {
      add(static_cast<double>(counts[i]), expected);
    } else {
      rest_expected += expected;
      rest_count += static_cast<double>(counts[i]);
    }
  }
  if (rest_expected > 0) add(rest_count, rest_expected);
  const double dof = cells - 1;
  return dof < 1 ? 0 : (std::cbrt(chi2 / dof) - (1 - 2 / (9 * dof))) / std::sqrt(2 / (9 * dof));
}

}  // namespace banyan::test
