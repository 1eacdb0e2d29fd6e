#include <array>
#include <cmath>
#include <doctest/doctest.h>
#include <limits>
#include <string>
#include <vector>

#include "banyan/sampler.hpp"
#include "oracle.hpp"
#include "sampler/penalties.hpp"

using namespace banyan;

namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

std::vector<float> penalised(std::vector<float> logits, const SamplerOptions& options,
                             const std::vector<TokenId>& prompt, const std::vector<TokenId>& generated) {
  sampling::Penalties penalties;
  penalties.apply(options, {prompt, generated}, logits);
  return logits;
}

}  // namespace

TEST_CASE("penalties: values by hand") {
  const std::vector<float> logits{4, -4, 2, -2, 1, kMasked};
  // Repetition: once per token of prompt and generated; positive divided, negative multiplied.
  CHECK(penalised(logits, {.repetition_penalty = 2}, {0, 1, 0, 0, 5}, {3, 3}) ==
        std::vector<float>{2, -8, 2, -4, 1, kMasked});
  CHECK(penalised(logits, {.repetition_penalty = 0.5}, {0, 1}, {}) == std::vector<float>{8, -2, 2, -2, 1, kMasked});
  // Presence: once per distinct generated token; the prompt does not count.
  CHECK(penalised(logits, {.presence_penalty = 0.5}, {0, 1}, {2, 2, 3}) ==
        std::vector<float>{4, -4, 1.5, -2.5, 1, kMasked});
  // Frequency: per occurrence.
  CHECK(penalised(logits, {.frequency_penalty = 0.25}, {0, 1}, {2, 2, 3, 2}) ==
        std::vector<float>{4, -4, 1.25, -2.25, 1, kMasked});
  CHECK(penalised(logits, {.frequency_penalty = -1}, {}, {4, 4, 5}) == std::vector<float>{4, -4, 2, -2, 3, kMasked});
  // All: repetition first. 4 / 2 - 2 * 0.25 - 0.5 = 1; -2 * 2 - 0.25 - 0.5 = -4.75; 2 / 2 = 1.
  CHECK(penalised(logits, {.repetition_penalty = 2, .presence_penalty = 0.5, .frequency_penalty = 0.25}, {0, 2},
                  {0, 3, 0}) == std::vector<float>{1, -4, 1, -4.75, 1, kMasked});
  CHECK(penalised(logits, {.repetition_penalty = 2}, {}, {}) == logits);
  CHECK(penalised({0, 0}, {.repetition_penalty = 2}, {0}, {}) == std::vector<float>{0, 0});
  // Finite stays finite.
  CHECK(penalised({-3e38F}, {.repetition_penalty = 10}, {0}, {}) ==
        std::vector<float>{std::numeric_limits<float>::lowest()});
}

TEST_CASE("penalties: a draw applies them before temperature and filters, log-probabilities ignore them") {
  const std::vector<float> logits{3, 2.5, 0};
  const std::vector<TokenId> generated{0};
  Sampler sampler;
  Choice choice;
  sampler.draw(logits, {.temperature = 0, .presence_penalty = 1}, {}, {{}, generated}, 3, 0, choice);
  CHECK(choice.token == 1);
  const double log_sum = std::log(std::exp(3.0) + std::exp(2.5) + 1);
  CHECK(choice.logprob == doctest::Approx(2.5 - log_sum).epsilon(1e-6));
  REQUIRE(choice.top.size() == 3);
  CHECK(choice.top[0].id == 0);
  CHECK(choice.top[0].logprob == doctest::Approx(3 - log_sum).epsilon(1e-6));
}

TEST_CASE("penalties: distribution against the oracle on random histories, one sampler for all") {
  std::mt19937 rng(1);
  Sampler sampler;
  std::vector<double> p;
  int n_checked = 0;
  for (int i = 0; i < 200; ++i) {
    const std::int64_t vocab_size = 50 + 20 * (i % 10);
    const auto logits = test::random_row(rng, vocab_size, 2.0F, 0, 0.1);
    std::uniform_int_distribution<TokenId> token(0, static_cast<TokenId>(vocab_size - 1));
    std::vector<TokenId> prompt(static_cast<std::size_t>(rng() % 40)), generated(static_cast<std::size_t>(rng() % 40));
    for (auto& t : prompt) t = token(rng);
    for (auto& t : generated) t = token(rng) / 4;  // many repeats
    const SamplerOptions options{.temperature = 0.7,
                                 .top_k = i % 2 * 30,
                                 .top_p = i % 3 == 0 ? 1.0 : 0.9,
                                 .repetition_penalty = i % 5 == 0 ? 1.0 : 1.3,
                                 .presence_penalty = 0.2 * (i % 4),
                                 .frequency_penalty = 0.1 * (i % 7 - 3)};
    const TokenHistory history{prompt, generated};
    const test::Oracle expected = test::oracle(logits, options, history);
    if (expected.near_mass > 0) continue;
    ++n_checked;
    sampler.distribution(logits, options, history, 0, p);
    for (std::size_t t = 0; t < p.size(); ++t) REQUIRE(p[t] == doctest::Approx(expected.p[t]).epsilon(1e-5));
  }
  CHECK(n_checked > 180);
}

TEST_CASE("penalties: a token outside the vocabulary is refused and leaves the sampler clean") {
  const std::vector<float> logits{1, 2, 3};
  Sampler sampler;
  Choice choice;
  const SamplerOptions options{.temperature = 0, .presence_penalty = 5};
  for (const TokenId bad : {-1, 3}) {
    const std::array<TokenId, 2> generated{2, bad};
    try {
      sampler.draw(logits, options, {}, {{}, generated}, 0, 0, choice);
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::bad_input);
      CHECK(std::string(e.what()).find(std::to_string(bad)) != std::string::npos);
    }
    sampler.draw(logits, options, {}, {}, 0, 0, choice);
    CHECK(choice.token == 2);
    sampler.draw(logits, {}, {}, {{}, generated}, 0, 0, choice);  // no penalty: the history is not read
  }
}
