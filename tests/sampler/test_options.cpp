#include <doctest/doctest.h>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "banyan/sampler.hpp"

using namespace banyan;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

// Refused as a usage error that names the option and the value.
void check_refused(const SamplerOptions& options, const std::string& name, const std::string& value) {
  CAPTURE(name);
  CAPTURE(value);
  const auto check = [&](auto&& call) {
    try {
      call();
      FAIL("accepted");
    } catch (const Error& e) {
      CHECK(e.code() == ErrorCode::usage);
      CHECK(e.where() == name);
      CHECK(std::string(e.what()).find(value) != std::string::npos);
    }
  };
  check([&] { validate(options); });
  Sampler sampler;
  Choice choice;
  const std::vector<float> logits{1, 3, 2};
  check([&] { sampler.draw(logits, options, {}, {}, 0, 0, choice); });
}

std::set<TokenId> drawn(const SamplerOptions& options, int n = 1000) {
  Sampler sampler;
  Choice choice;
  std::set<TokenId> ids;
  const std::vector<float> logits{1, 3, 2};
  for (int i = 0; i < n; ++i) {
    sampler.draw(logits, options, {.seed = static_cast<std::uint64_t>(i)}, {}, 0, 0, choice);
    ids.insert(choice.token);
  }
  return ids;
}

}  // namespace

TEST_CASE("sampler options out of range are usage errors that name option and value") {
  validate({});
  validate({.temperature = 0, .top_k = -1, .top_p = 0, .min_p = 1, .repetition_penalty = 0.5, .presence_penalty = -2});
  check_refused({.temperature = -1}, "temperature", "-1");
  check_refused({.temperature = -0.001}, "temperature", "-0.001");
  check_refused({.temperature = kNan}, "temperature", "nan");
  check_refused({.temperature = kInf}, "temperature", "inf");
  check_refused({.top_k = -2}, "top_k", "-2");
  for (const auto& [value, text] : {std::pair{-0.5, "-0.5"}, {1.5, "1.5"}, {kNan, "nan"}, {-kInf, "-inf"}}) {
    check_refused({.top_p = value}, "top_p", text);
    check_refused({.min_p = value}, "min_p", text);
  }
  for (const auto& [value, text] : {std::pair{0.0, "0"}, {-1.5, "-1.5"}, {kNan, "nan"}, {kInf, "inf"}}) {
    check_refused({.repetition_penalty = value}, "repetition_penalty", text);
  }
  for (const auto& [value, text] : {std::pair{kNan, "nan"}, {kInf, "inf"}, {-1e5, "-100000"}}) {
    check_refused({.presence_penalty = value}, "presence_penalty", text);
    check_refused({.frequency_penalty = value}, "frequency_penalty", text);
  }
}

TEST_CASE("BL-15: edge values of the sampler options") {
  const std::set<TokenId> best{1}, all{0, 1, 2};
  CHECK(drawn({.temperature = 0}) == best);
  CHECK(drawn({.temperature = 1e-6}) == best);
  CHECK(drawn({.top_k = 1}) == best);
  CHECK(drawn({.top_p = 0}) == best);
  CHECK(drawn({.min_p = 1}) == best);
  CHECK(drawn({.top_k = 0}) == all);
  CHECK(drawn({.top_k = -1}) == all);
  CHECK(drawn({.top_k = 3}) == all);
  CHECK(drawn({.top_k = 1'000'000}) == all);
  CHECK(drawn({.temperature = 1e300}) == all);
  CHECK(drawn({.top_k = 2}) == std::set<TokenId>{1, 2});
  check_refused({.temperature = -1}, "temperature", "-1");
  check_refused({.temperature = kNan}, "temperature", "nan");
}
