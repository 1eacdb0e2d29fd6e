#include <algorithm>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <limits>
#include <string>
#include <vector>

#include "oracle.hpp"
#include "sampler/row_kernels.hpp"

using namespace banyan;
using namespace banyan::sampling;

namespace {

struct Results {
  std::vector<float> block_max, e;
  std::vector<Weight> block_weight;
  std::vector<std::int32_t> ids;
  Weight total = 0;
  double exp_sum = 0;

  friend bool operator==(const Results& a, const Results& b) {
    const auto same = [](const auto& x, const auto& y) {
      return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0);
    };
    return same(a.block_max, b.block_max) && same(a.e, b.e) && same(a.block_weight, b.block_weight) &&
           same(a.ids, b.ids) && a.total == b.total && a.exp_sum == b.exp_sum;
  }
};

Results run(const RowKernels& kernels, const std::vector<float>& x, float scale, float floor) {
  const auto n = std::ssize(x);
  const auto blocks = static_cast<std::size_t>(n_blocks(n));
  Results r{std::vector<float>(blocks), std::vector<float>(x.size()), std::vector<Weight>(blocks),
            std::vector<std::int32_t>(x.size())};
  CHECK(kernels.block_max(x.data(), n, r.block_max.data()));
  const float max = *std::max_element(r.block_max.begin(), r.block_max.end());
  r.total = kernels.weigh(x.data(), n, max, scale, floor, r.e.data(), r.block_weight.data());
  r.exp_sum = kernels.exp_sum(x.data(), n, max);
  r.ids.resize(static_cast<std::size_t>(kernels.gather(x.data(), n, max - 2, r.ids.data())));
  return r;
}

}  // namespace

TEST_CASE("row kernels: the fastest gives the portable one's bits") {
  MESSAGE("best here: ", std::string(best_kernels().name));
  std::mt19937 rng(1);
  for (std::int64_t n = 1; n < 300; ++n) {
    for (const float scale : {kLog2E, kLog2E / 0.8F, 1e5F, 0.0F}) {
      const auto x = test::random_row(rng, n, 4, 0, 0.2);
      REQUIRE(run(best_kernels(), x, scale, 0.01F) == run(portable_kernels(), x, scale, 0.01F));
    }
  }
  const auto x = test::random_row(rng, 128'256, 3);
  CHECK(run(best_kernels(), x, kLog2E, 0) == run(portable_kernels(), x, kLog2E, 0));
}

TEST_CASE("row kernels: results against plain loops") {
  std::mt19937 rng(2);
  const auto x = test::random_row(rng, 1003, 4, 0, 0.2);
  const Results r = run(best_kernels(), x, kLog2E, 0);
  const float max = *std::max_element(x.begin(), x.end());
  Weight total = 0;
  double exp_sum = 0;
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double e = std::exp(static_cast<double>(x[i]) - max);
    REQUIRE(r.e[i] == doctest::Approx(e).epsilon(3e-6));
    REQUIRE(weight_of(r.e[i]) == static_cast<Weight>(std::nearbyint(std::ldexp(static_cast<double>(r.e[i]), 44))));
    total += weight_of(r.e[i]);
    exp_sum += e;
    if (x[i] >= max - 2) ids.push_back(static_cast<std::int32_t>(i));
  }
  CHECK(r.total == total);
  CHECK(r.exp_sum == doctest::Approx(exp_sum).epsilon(1e-6));
  CHECK(r.ids == ids);
  for (std::size_t b = 0; b < r.block_max.size(); ++b) {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(b) * kBlock;
    CHECK(r.block_max[b] == *std::max_element(begin, std::min(begin + kBlock, x.end())));
  }
}

TEST_CASE("row kernels: error of the exponential over its whole range") {
  std::vector<float> t, e;
  for (double v = 0; v > -126; v -= 126.0 / 2'000'000) t.push_back(static_cast<float>(v));
  e.resize(t.size());
  std::vector<Weight> block_weight(static_cast<std::size_t>(n_blocks(std::ssize(t))));
  best_kernels().weigh(t.data(), std::ssize(t), 0, 1, 0, e.data(), block_weight.data());
  CHECK(e[0] == 1);
  double worst = 0;
  for (std::size_t i = 0; i < t.size(); ++i) {
    worst = std::max(worst, std::fabs(e[i] / std::exp2(static_cast<double>(t[i])) - 1));
  }
  CAPTURE(worst);
  CHECK(worst < 1.3e-7);
}
