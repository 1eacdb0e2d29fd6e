#include <cmath>
#include <doctest/doctest.h>
#include <string>
#include <vector>

#include "banyan/sampler.hpp"
#include "oracle.hpp"

using namespace banyan;

namespace {

std::string text(const SamplerOptions& o) {
  return "T " + std::to_string(o.temperature) + " k " + std::to_string(o.top_k) + " p " + std::to_string(o.top_p) +
         " min_p " + std::to_string(o.min_p);
}

// Each filter alone, and all of them together.
std::vector<SamplerOptions> combinations() {
  std::vector<SamplerOptions> all;
  for (const double temperature : {0.0, 0.3, 0.8, 1.0, 2.0}) {
    for (const std::int64_t top_k : {0, 1, 7, 40}) {
      for (const double top_p : {1.0, 0.95, 0.5, 0.0}) {
        for (const double min_p : {0.0, 0.05, 0.5, 1.0}) {
          all.push_back({.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p});
        }
      }
    }
  }
  return all;
}

// distribution() against the oracle: the same tokens, and probabilities to float32 accuracy. A logit d nats below the
// maximum is scaled by 1/T in float32, which moves its probability by about d/T * 1.2e-7, d/T < 32. Tokens at a cut
// are left out of the comparison; returns false where they weigh so much that there is nothing to compare.
bool check_distribution(const std::vector<float>& logits, const SamplerOptions& options) {
  const test::Oracle expected = test::oracle(logits, options);
  if (expected.near_mass > 1e-3) return false;
  const double tolerance = 1e-5 + 3 * expected.near_mass;
  Sampler sampler;
  std::vector<double> p;
  sampler.distribution(logits, options, {}, 0, p);
  REQUIRE(p.size() == expected.p.size());
  double sum = 0;
  std::size_t n_wrong = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    sum += p[i];
    if (expected.near[i]) continue;
    n_wrong += std::fabs(p[i] - expected.p[i]) > tolerance * expected.p[i] + 0x1p-44;
    n_wrong += expected.p[i] > 0x1p-40 ? p[i] == 0 : expected.p[i] == 0 && p[i] > 0;
  }
  CHECK(n_wrong == 0);
  CHECK(sum == doctest::Approx(1).epsilon(1e-12));
  return true;
}

}  // namespace

TEST_CASE("distribution: every combination of filters against the double-precision oracle") {
  std::mt19937 rng(1);
  int n_checked = 0, n_close = 0;
  for (const auto& options : combinations()) {
    CAPTURE(text(options));
    for (const std::int64_t vocab_size : {1, 3, 64, 100, 1000}) {
      for (const float sigma : {0.5F, 3.0F}) {
        for (const double masked : {0.0, 0.5}) {
          CAPTURE(vocab_size);
          ++(check_distribution(test::random_row(rng, vocab_size, sigma, 0, masked), options) ? n_checked : n_close);
          // Coarse logits, as of bf16: cuts go through equals.
          ++(check_distribution(test::random_row(rng, vocab_size, sigma, 0.25F, masked), options) ? n_checked
                                                                                                  : n_close);
        }
      }
    }
  }
  CHECK(n_close * 20 < n_checked);
}

TEST_CASE("distribution: large vocabularies, peaked, broad, coarse and flat rows") {
  std::mt19937 rng(2);
  const std::vector<SamplerOptions> all{{.temperature = 0.8, .top_p = 0.95},
                                        {.top_p = 0.5},
                                        {.top_p = 0.999},
                                        {.top_k = 50},
                                        {.top_k = 5000, .top_p = 0.9, .min_p = 0.01},
                                        {.min_p = 0.02},
                                        {.temperature = 1.5, .top_p = 0.7, .min_p = 0.001}};
  int n_checked = 0;
  for (const std::int64_t vocab_size : {10'007, 49'152}) {
    for (const auto& options : all) {
      CAPTURE(text(options));
      CAPTURE(vocab_size);
      for (const float sigma : {0.5F, 2.0F, 6.0F}) {
        n_checked += check_distribution(test::random_row(rng, vocab_size, sigma), options);
        n_checked += check_distribution(test::random_row(rng, vocab_size, sigma, 0.125F), options);
      }
      n_checked += check_distribution(std::vector<float>(static_cast<std::size_t>(vocab_size), -3.5F), options);
    }
  }
  CHECK(n_checked >= 96);  // of 98
}

TEST_CASE("ties: the lower id comes first in greedy, top-k and at the border of top-p") {
  const std::vector<float> logits{0, 2, 1, 2, 1, 2, 1};
  Sampler sampler;
  std::vector<double> p;
  const auto support = [&](const SamplerOptions& options) {
    sampler.distribution(logits, options, {}, 0, p);
    std::string s;
    for (std::size_t i = 0; i < p.size(); ++i) s += p[i] > 0 ? std::to_string(i) : "";
    return s;
  };
  CHECK(support({.temperature = 0}) == "1");
  CHECK(support({.top_k = 1}) == "1");
  CHECK(support({.top_k = 2}) == "13");
  CHECK(support({.top_k = 3}) == "135");
  CHECK(support({.top_k = 5}) == "12345");
  CHECK(support({.top_p = 0}) == "1");
  // p = 0.236 for each 2, 0.087 for each 1, 0.032 for the 0
  CHECK(support({.top_p = 0.45}) == "13");
  CHECK(support({.top_p = 0.7}) == "135");
  CHECK(support({.top_p = 0.75}) == "1235");
  CHECK(support({.top_p = 0.8}) == "12345");
  CHECK(support({.top_p = 0.97}) == "0123456");
  // Two logits that differ, but not in float32 probability at this temperature: still the larger one.
  const std::vector<float> close{1.0F, 1.0000001F};
  sampler.distribution(close, {.temperature = 100, .top_p = 0}, {}, 0, p);
  CHECK(p == std::vector<double>{0, 1});
}

TEST_CASE("top-p works on what top-k left, min-p on what both left") {
  // p = 0.4, 0.3, 0.2, 0.1
  const std::vector<float> logits{std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F)};
  Sampler sampler;
  std::vector<double> p;
  const auto check = [&](const SamplerOptions& options, const std::vector<double>& expected) {
    CAPTURE(text(options));
    sampler.distribution(logits, options, {}, 0, p);
    for (std::size_t i = 0; i < p.size(); ++i) CHECK(p[i] == doctest::Approx(expected[i]).epsilon(1e-6));
  };
  check({.top_p = 0.75}, {4 / 9.0, 3 / 9.0, 2 / 9.0, 0});
  check({.top_k = 3, .top_p = 0.75}, {4 / 7.0, 3 / 7.0, 0, 0});  // 7/9 of what is left
  check({.min_p = 0.45}, {4 / 9.0, 3 / 9.0, 2 / 9.0, 0});
  check({.min_p = 0.6}, {4 / 7.0, 3 / 7.0, 0, 0});
  check({.temperature = 0.5, .min_p = 0.45}, {16 / 25.0, 9 / 25.0, 0, 0});  // 0.25 of the largest, once squared
}

TEST_CASE("draws follow the exact probabilities of every combination (chi-square)") {
  std::mt19937 rng(3);
  const auto logits = test::random_row(rng, 64, 1.5F, 0.0F, 0.1);
  constexpr int kDraws = 2000;
  Sampler sampler;
  Choice choice;
  std::uint64_t sample = 0;
  double sum = 0;
  const auto all = combinations();
  for (const auto& options : all) {
    CAPTURE(text(options));
    const test::Oracle expected = test::oracle(logits, options);
    std::vector<std::int64_t> counts(logits.size());
    ++sample;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      sampler.draw(logits, options, {.seed = 5, .sample = sample, .position = i}, {}, 0, 0, choice);
      ++counts[static_cast<std::size_t>(choice.token)];
    }
    for (std::size_t i = 0; i < counts.size(); ++i) REQUIRE((expected.p[i] > 0 || counts[i] == 0));
    const double sigmas = test::chi_square_sigmas(counts, expected.p);
    CHECK(sigmas < 4);  // of 320 tries, 0.01 lie above by chance
    sum += sigmas;
  }
  CHECK(std::fabs(sum) < 4 * std::sqrt(static_cast<double>(all.size())));
}

TEST_CASE("a draw is the inverse of the cumulative distribution in id order") {
  std::mt19937 rng(4);
  Sampler sampler;
  Choice choice;
  std::vector<double> p;
  for (const auto& options : combinations()) {
    CAPTURE(text(options));
    const auto logits = test::random_row(rng, 777, 2.0F);
    sampler.distribution(logits, options, {}, 0, p);
    for (std::uint64_t i = 0; i < 20; ++i) {
      const StreamKey key{.seed = 6, .position = i};
      sampler.draw(logits, options, key, {}, 0, 0, choice);
      double before = 0;
      for (TokenId t = 0; t < choice.token; ++t) before += p[static_cast<std::size_t>(t)];
      const double u = uniform01(key), after = before + p[static_cast<std::size_t>(choice.token)];
      REQUIRE(u > before - 1e-12);
      REQUIRE(u < after + 1e-12);
    }
  }
}
