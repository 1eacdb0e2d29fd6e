#include <doctest/doctest.h>
#include <vector>

#include "banyan/sampler.hpp"
#include "bench/count_allocations.hpp"
#include "oracle.hpp"

using namespace banyan;

TEST_CASE("after the first draw nothing is allocated, whatever the options and rows") {
  constexpr std::int64_t kVocab = 20'000;
  std::mt19937 rng(1);
  std::vector<std::vector<float>> rows;
  for (const float sigma : {0.0F, 1.0F, 4.0F}) rows.push_back(test::random_row(rng, kVocab, sigma));
  std::vector<TokenId> history;
  for (TokenId t = 0; t < kVocab; ++t) history.push_back(t);
  Sampler sampler;
  Choice choice;
  std::vector<TokenLogprob> top;
  std::vector<double> p;
  const auto draw_all = [&](const std::vector<float>& row, std::size_t n_history) {
    const TokenHistory h{history, {history.data(), n_history}};
    for (const double temperature : {0.0, 1.0}) {
      for (const std::int64_t top_k : {0, 50, 15'000}) {
        for (const double top_p : {1.0, 0.9}) {
          for (const double penalty : {1.0, 1.2}) {
            const SamplerOptions options{.temperature = temperature,
                                         .top_k = top_k,
                                         .top_p = top_p,
                                         .min_p = 1e-4,
                                         .repetition_penalty = penalty};
            sampler.draw(row, options, {}, h, 20, 0, choice);
            sampler.distribution(row, options, h, 0, p);
          }
        }
      }
    }
    sampler.top(row, 100, 0, top);
    sampler.logprob(row, 5, 0);
  };
  draw_all(rows[2], 0);
  const std::int64_t before = n_allocations;
  CHECK(before > 0);
  for (std::size_t i = 0; i < rows.size(); ++i) draw_all(rows[i], 1000 * (i + 1));
  CHECK(n_allocations == before);
}
