#include <array>
#include <cstring>
#include <doctest/doctest.h>
#include <random>
#include <vector>

#include "banyan/lse.hpp"

using namespace banyan;

namespace {

struct Partial {
  std::vector<float> o;
  float lse = kEmptyLse;
  friend bool operator==(const Partial& a, const Partial& b) {
    return std::memcmp(a.o.data(), b.o.data(), a.o.size() * sizeof(float)) == 0 &&
           std::memcmp(&a.lse, &b.lse, sizeof(float)) == 0;
  }
};

Partial fold(const std::vector<Partial>& parts, std::int64_t dim) {
  Partial r{std::vector<float>(static_cast<std::size_t>(dim), 0.0F), kEmptyLse};
  for (const auto& p : parts) merge_partial(r.o.data(), r.lse, p.o.data(), p.lse, dim);
  return r;
}

}  // namespace

TEST_CASE("BL-01: empty partials change nothing, bit for bit, and empty with empty is empty") {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (const std::int64_t dim : {16, 64, 80, 256}) {
    const auto random = [&] {
      Partial p{std::vector<float>(static_cast<std::size_t>(dim)), normal(rng) * 10};
      for (auto& x : p.o) x = normal(rng);
      return p;
    };
    const Partial empty{std::vector<float>(static_cast<std::size_t>(dim), 0.0F), kEmptyLse};
    const Partial x = random(), y = random();
    CHECK(fold({empty, empty}, dim) == empty);
    CHECK(fold({x, empty}, dim) == x);
    CHECK(fold({empty, x}, dim) == x);
    CHECK(fold({empty, x, empty, y, empty}, dim) == fold({x, y}, dim));
  }
}
