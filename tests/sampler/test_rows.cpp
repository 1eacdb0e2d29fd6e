#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <limits>
#include <string>
#include <vector>

#include "banyan/sampler.hpp"
#include "oracle.hpp"

using namespace banyan;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

const std::vector<SamplerOptions> kModes{
    {.temperature = 0}, {}, {.top_k = 3}, {.top_p = 0.9}, {.temperature = 0.8, .top_k = 9, .top_p = 0.9, .min_p = 0.1}};

void check_bad(Sampler& sampler, const std::vector<float>& logits, std::int64_t row, const std::string& says) {
  CAPTURE(says);
  const auto check = [&](auto&& call) {
    try {
      call();
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::bad_logits);
      CHECK(e.where() == "row " + std::to_string(row));
      CHECK(std::string(e.what()).find(says) != std::string::npos);
    }
  };
  Choice choice;
  std::vector<TokenLogprob> top;
  std::vector<double> p;
  for (const auto& options : kModes) {
    check([&] { sampler.draw(logits, options, {}, {}, 2, row, choice); });
    check([&] { sampler.distribution(logits, options, {}, row, p); });
  }
  check([&] { sampler.top(logits, 2, row, top); });
  check([&] { sampler.logprob(logits, 0, row); });
}

}  // namespace

TEST_CASE("BL-16: a row of NaN or of -inf alone is an error with its number, and the others are as without it") {
  std::mt19937 rng(1);
  const auto row0 = test::random_row(rng, 500, 2), row1 = test::random_row(rng, 500, 2, 0, 0.5);
  for (const auto& options : kModes) {
    const auto draw = [&](Sampler& sampler, const std::vector<float>& logits, std::uint64_t sample) {
      Choice choice;
      sampler.draw(logits, options, {.seed = 9, .sample = sample}, {}, 4, 0, choice);
      return choice;
    };
    Sampler alone, batch;
    const Choice a0 = draw(alone, row0, 0), a1 = draw(alone, row1, 1);
    const Choice b0 = draw(batch, row0, 0);
    check_bad(batch, std::vector<float>(500, kNan), 2, "nan");
    check_bad(batch, std::vector<float>(500, -kInf), 3, "-inf");
    const Choice b1 = draw(batch, row1, 1);
    CHECK((a0.token == b0.token && a0.logprob == b0.logprob && a0.top == b0.top));
    CHECK((a1.token == b1.token && a1.logprob == b1.logprob && a1.top == b1.top));
    CHECK(row1[static_cast<std::size_t>(b1.token)] > -kInf);
  }
}

TEST_CASE("one bad logit anywhere is found, whatever the length of the row") {
  std::mt19937 rng(2);
  Sampler sampler;
  for (const std::int64_t n : {1, 7, 8, 63, 64, 65, 130, 1000}) {
    for (const std::int64_t place : {std::int64_t{0}, n / 2, n - 1}) {
      for (const auto& [value, says] : {std::pair{kNan, "nan"}, {-kNan, "nan"}, {kInf, "inf"}}) {
        auto logits = test::random_row(rng, n, 2, 0, 0.3);
        logits[static_cast<std::size_t>(place)] = value;
        check_bad(sampler, logits, 17, "token " + std::to_string(place) + " is");
        check_bad(sampler, logits, 17, says);
      }
    }
    check_bad(sampler, std::vector<float>(static_cast<std::size_t>(n), -kInf), 17, std::to_string(n) + " logits");
  }
}

TEST_CASE("masked tokens are never drawn; one unmasked token is drawn always") {
  std::vector<float> logits(1000, -kInf);
  logits[617] = -3e38F;
  Sampler sampler;
  Choice choice;
  for (const auto& options : kModes) {
    for (std::uint64_t i = 0; i < 50; ++i) {
      sampler.draw(logits, options, {.position = i}, {}, 2, 0, choice);
      REQUIRE(choice.token == 617);
      REQUIRE(choice.logprob == 0);
    }
  }
  REQUIRE(choice.top.size() == 2);
  CHECK(choice.top[0] == TokenLogprob{617, 0});
  CHECK(choice.top[1] == TokenLogprob{0, -kInf});
}

TEST_CASE("log-probabilities and top: against double precision, ties by id") {
  std::mt19937 rng(3);
  Sampler sampler;
  std::vector<TokenLogprob> top;
  for (const std::int64_t n : {1, 5, 64, 1000, 49'152}) {
    for (const float step : {0.0F, 0.5F}) {
      const auto logits = test::random_row(rng, n, 3, step, 0.1);
      double sum = 0;
      for (const float x : logits) sum += std::exp(static_cast<double>(x));
      std::vector<TokenId> order(logits.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
      for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, std::int64_t{20}, n, n + 5}) {
        sampler.top(logits, k, 0, top);
        REQUIRE(std::ssize(top) == std::min(k, n));
        for (std::size_t i = 0; i < top.size(); ++i) {
          REQUIRE(top[i].id == order[i]);
          const double expected = logits[order[i]] - std::log(sum);
          // float32 sums of 8 terms, and the result's own rounding
          REQUIRE((std::fabs(top[i].logprob - expected) <= 2e-6 || top[i].logprob == expected));
          if (i < 50) REQUIRE(sampler.logprob(logits, order[i], 0) == top[i].logprob);
        }
      }
      Choice choice;
      sampler.draw(logits, {.temperature = 0.7, .top_p = 0.9}, {}, {}, 20, 0, choice);
      CHECK(choice.logprob == sampler.logprob(logits, choice.token, 0));
      sampler.top(logits, 20, 0, top);
      CHECK(choice.top == top);
    }
  }
}

TEST_CASE("a draw depends on its row and key alone, not on what the sampler did before") {
  std::mt19937 rng(4);
  std::vector<std::vector<float>> rows;
  for (int i = 0; i < 40; ++i) rows.push_back(test::random_row(rng, 1 + static_cast<std::int64_t>(rng() % 3000), 2));
  Sampler forward, backward;
  std::vector<Choice> a(rows.size()), b(rows.size());
  const auto draw = [&](Sampler& sampler, std::size_t i, Choice& out) {
    sampler.draw(rows[i], kModes[i % kModes.size()], {.seed = 3, .sample = i}, {}, 5, 0, out);
  };
  for (std::size_t i = 0; i < rows.size(); ++i) draw(forward, i, a[i]);
  for (std::size_t i = rows.size(); i-- > 0;) draw(backward, i, b[i]);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK((a[i].token == b[i].token && a[i].logprob == b[i].logprob && a[i].top == b[i].top));
  }
}

TEST_CASE("arguments out of range are usage errors") {
  Sampler sampler;
  Choice choice;
  std::vector<TokenLogprob> top;
  const std::vector<float> logits{1, 2, 3}, none, huge((1 << 19) + 1);
  const auto code = [](auto&& call) {
    try {
      call();
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::cancelled;
  };
  CHECK(code([&] { sampler.draw(logits, {}, {}, {}, -1, 0, choice); }) == ErrorCode::usage);
  CHECK(code([&] { sampler.top(logits, -1, 0, top); }) == ErrorCode::usage);
  CHECK(code([&] { sampler.logprob(logits, 3, 0); }) == ErrorCode::usage);
  CHECK(code([&] { sampler.logprob(logits, -1, 0); }) == ErrorCode::usage);
  CHECK(code([&] { sampler.top(none, 1, 0, top); }) == ErrorCode::usage);
  CHECK(code([&] { sampler.top(huge, 1, 0, top); }) == ErrorCode::usage);
  sampler = Sampler();
  sampler.top(logits, 1, 0, top);
  CHECK(top[0].id == 2);
}
