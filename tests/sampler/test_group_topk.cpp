#include <algorithm>
#include <doctest/doctest.h>
#include <limits>
#include <vector>

#include "banyan/sampler.hpp"
#include "oracle.hpp"

using namespace banyan;

namespace {

// All continuations, sorted.
std::vector<Continuation> brute_force(const std::vector<float>& logits, const std::vector<double>& cumulative,
                                      std::size_t k) {
  const std::size_t vocab_size = logits.size() / cumulative.size();
  Sampler sampler;
  std::vector<Continuation> all;
  for (std::size_t r = 0; r < cumulative.size(); ++r) {
    const std::span<const float> row(logits.data() + r * vocab_size, vocab_size);
    for (std::size_t t = 0; t < vocab_size; ++t) {
      if (row[t] == -std::numeric_limits<float>::infinity()) continue;
      const float logprob = sampler.logprob(row, static_cast<TokenId>(t), 0);
      all.push_back({cumulative[r] + static_cast<double>(logprob), static_cast<std::int64_t>(r),
                     static_cast<TokenId>(t), logprob});
    }
  }
  // They stand by (row, token) already.
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  all.resize(std::min(k, all.size()));
  return all;
}

}  // namespace

TEST_CASE("group_topk: against all continuations sorted, with ties within and between rows") {
  std::mt19937 rng(1);
  Sampler sampler;
  std::vector<Continuation> out;
  for (const std::size_t n_rows : {1, 2, 5, 16}) {
    for (const std::int64_t vocab_size : {1, 7, 300}) {
      for (const float step : {0.0F, 1.0F}) {
        std::vector<float> logits;
        std::vector<double> cumulative;
        for (std::size_t r = 0; r < n_rows; ++r) {
          const auto row = test::random_row(rng, vocab_size, 2, step, 0.2);
          logits.insert(logits.end(), row.begin(), row.end());
          cumulative.push_back(-static_cast<double>(rng() % 4));
        }
        if (n_rows > 1) {  // two equal rows
          std::copy_n(logits.begin(), vocab_size, logits.begin() + vocab_size);
          cumulative[1] = cumulative[0];
        }
        for (const std::int64_t k : {0, 1, 4, 64, 10'000}) {
          sampler.group_topk(logits, cumulative, k, 0, out);
          REQUIRE(out == brute_force(logits, cumulative, static_cast<std::size_t>(k)));
        }
      }
    }
  }
}

TEST_CASE("group_topk: a bad row is an error with its number; arguments are checked") {
  Sampler sampler;
  std::vector<Continuation> out;
  std::vector<float> logits(30, 0.0F);
  const std::vector<double> cumulative(3, 0.0), nan(3, std::numeric_limits<double>::quiet_NaN());
  const auto failure = [&](std::span<const double> scores, std::int64_t k) {
    try {
      sampler.group_topk(logits, scores, k, 100, out);
    } catch (const Error& e) {
      return std::string(to_string(e.code())) + " " + e.where();
    }
    return std::string();
  };
  CHECK(failure(cumulative, -1) == "usage k");
  CHECK(failure(nan, 1) == "usage cumulative");
  CHECK(failure(std::span(cumulative).first(1), 3).empty());
  logits.resize(31);
  CHECK(failure(cumulative, 1) == "usage logits");
  logits.resize(30);
  logits[25] = std::numeric_limits<float>::infinity();
  CHECK(failure(cumulative, 1) == "bad_logits row 102");
  logits[25] = 0;
  CHECK(failure(cumulative, 1).empty());
  REQUIRE(out.size() == 1);
  CHECK(out[0].row == 0);
  CHECK(out[0].token == 0);
  sampler.group_topk({}, {}, 3, 0, out);
  CHECK(out.empty());
}
