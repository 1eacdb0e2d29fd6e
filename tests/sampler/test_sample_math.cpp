#include <cmath>
#include <doctest/doctest.h>
#include <limits>
#include <vector>

#include "kernels/sample_math.hpp"
#include "oracle.hpp"
#include "sampler/row_kernels.hpp"

using namespace banyan;
using namespace banyan::sampling;

TEST_CASE("shared arithmetic: exp_of is the row kernels' exponential, bit for bit") {
  std::mt19937 rng(1);
  for (const float scale : {kLog2E, kLog2E / 0.8F, 1e5F, 1e-30F, 0.0F}) {
    const auto x = test::random_row(rng, 10'000, 8, 0, 0.1);
    const float max = *std::max_element(x.begin(), x.end());
    std::vector<float> e(x.size());
    std::vector<Weight> block_weight(static_cast<std::size_t>(n_blocks(std::ssize(x))));
    best_kernels().weigh(x.data(), std::ssize(x), max, scale, 0, e.data(), block_weight.data());
    for (std::size_t i = 0; i < x.size(); ++i) {
      REQUIRE(__builtin_bit_cast(std::uint32_t, exp_of(x[i], max, scale)) == __builtin_bit_cast(std::uint32_t, e[i]));
    }
  }
}

TEST_CASE("shared arithmetic: weights are rounded to nearest even") {
  CHECK(weight_of(0) == 0);
  CHECK(weight_of(1) == Weight{1} << 44);
  CHECK(weight_of(0x1p-44F) == 1);
  CHECK(weight_of(0x1p-45F) == 0);
  CHECK(weight_of(0x1.8p-44F) == 2);
  CHECK(weight_of(0x1.4p-43F) == 2);
  std::mt19937 rng(2);
  for (int i = 0; i < 100'000; ++i) {
    const float e = std::ldexp(static_cast<float>(rng() >> 8), -24 - static_cast<int>(rng() % 40));
    REQUIRE(weight_of(e) == static_cast<Weight>(std::nearbyint(std::ldexp(static_cast<double>(e), 44))));
  }
}

TEST_CASE("shared arithmetic: floats as integers of the same order, and back") {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> ascending{-kInf, -3e38F, -1.0F, -1e-40F, 0.0F, 1e-40F, 1.0F, 1.0000001F, 3e38F, kInf};
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    CHECK(from_ordered_bits(ordered_bits(ascending[i])) == ascending[i]);
    if (i > 0) CHECK(ordered_bits(ascending[i]) > ordered_bits(ascending[i - 1]));
  }
  CHECK(ordered_bits(-0.0F) == ordered_bits(0.0F));
}

TEST_CASE("shared arithmetic: what top-p must reach, and where a draw lands") {
  CHECK(top_p_weight(0, 100) == 0);
  CHECK(top_p_weight(0.5, 101) == 51);
  CHECK(top_p_weight(0.999999999999, Weight{1} << 62) < Weight{1} << 62);
  CHECK(mul_high(~std::uint64_t{0}, ~std::uint64_t{0}) == ~std::uint64_t{0} - 1);
  CHECK(drawn_weight(~std::uint64_t{0}, 1000) == 999);
  CHECK(drawn_weight(2047, 1000) == 0);  // the lower 11 bits do not count
  CHECK(drawn_weight(std::uint64_t{1} << 63, 1000) == 500);
}
