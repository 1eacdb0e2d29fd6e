#include <cmath>
#include <cstring>
#include <doctest/doctest.h>

#include "tests/kernels/backends.hpp"

using namespace banyan;
using namespace banyan::kernels;

namespace {

struct Product {
  std::int64_t n_out, n_in, n_rows;
  DType type;
  std::vector<float> w, x, bias, y;

  Product(std::int64_t out, std::int64_t in, std::int64_t rows, DType t, std::mt19937& rng)
      : n_out(out),
        n_in(in),
        n_rows(rows),
        type(t),
        w(random_floats(out * in, rng)),
        x(random_floats(rows * in, rng)),
        bias(random_floats(out, rng)),
        y(random_floats(rows * out, rng)) {}

  std::unique_ptr<Matrix> pack(Backend& b) const { return b.pack(n_out, n_in, type, MemoryRows(w, n_in)); }

  std::vector<float> run(Backend& b, const Matrix& m, std::int64_t first, std::int64_t n, bool with_bias,
                         bool accumulate) const {
    std::vector<float> out(y.begin() + first * n_out, y.begin() + (first + n) * n_out);
    b.matmul_f32(m, x.data() + first * n_in, out.data(), n, with_bias ? bias.data() : nullptr, accumulate);
    return out;
  }

  float rounded(float v) const { return type == DType::bf16 ? to_float(to_bf16(v)) : v; }

  // Element (r, n) in double precision, and the sum of the terms' magnitudes.
  std::pair<double, double> exact(std::int64_t r, std::int64_t n, bool with_bias, bool accumulate) const {
    double sum = with_bias ? bias[static_cast<std::size_t>(n)] : 0.0, size = 0;
    if (accumulate) sum += y[static_cast<std::size_t>(r * n_out + n)];
    for (std::int64_t k = 0; k < n_in; ++k) {
      const double term = double{rounded(x[static_cast<std::size_t>(r * n_in + k)])} *
                          double{rounded(w[static_cast<std::size_t>(n * n_in + k)])};
      sum += term;
      size += std::fabs(term);
    }
    return {sum, size + std::fabs(sum)};
  }
};

constexpr std::int64_t kShapes[][3] = {{1, 1, 1},    {3, 7, 2},      {64, 16, 6},     {65, 33, 13}, {100, 31, 64},
                                       {960, 64, 5}, {130, 576, 50}, {576, 100, 300}, {64, 2048, 3}};

}  // namespace

TEST_CASE("matmul equals the double-precision product, with bias and accumulation, for ragged shapes") {
  std::mt19937 rng(1);
  for (const auto& [n_out, n_in, n_rows] : kShapes) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const Product p(n_out, n_in, n_rows, type, rng);
      for (const auto& backend : all_backends(2)) {
        CAPTURE(backend->describe());
        const auto m = p.pack(*backend);
        for (const bool accumulate : {false, true}) {
          const auto y = p.run(*backend, *m, 0, n_rows, accumulate, accumulate);
          // A chain of n_in additions in f32 is off by at most n_in * 2^-24 of the terms' magnitudes; far less in the
          // mean. Operands are rounded to the matrix's type before, in the oracle too.
          double worst = 0;
          for (std::int64_t r = 0; r < n_rows; r += 7) {
            for (std::int64_t n = 0; n<n_out; n += n_out> 200 ? 13 : 1) {
              const auto [right, size] = p.exact(r, n, accumulate, accumulate);
              const double difference = std::fabs(y[static_cast<std::size_t>(r * n_out + n)] - right);
              worst = std::max(worst, difference / (size * (static_cast<double>(n_in) + 2) * 0x1p-24));
            }
          }
          CHECK(worst < 1.0);
        }
      }
    }
  }
}

TEST_CASE("matmul: a row's bits are its own, alone or among 1 to 63 others, with 1, 2 and 3 threads") {
  std::mt19937 rng(2);
  for (const DType type : {DType::f32, DType::bf16}) {
    const Product p(200, 576, 64, type, rng);
    const auto one = fast_backends(1), two = fast_backends(2), three = fast_backends(3);
    for (std::size_t i = 0; i < one.size(); ++i) {
      CAPTURE(one[i]->describe());
      const auto m = p.pack(*one[i]);
      const auto all = p.run(*one[i], *m, 0, 64, true, true);
      CHECK(p.run(*two[i], *m, 0, 64, true, true) == all);
      CHECK(p.run(*three[i], *m, 0, 64, true, true) == all);
      for (std::int64_t n = 1; n < 64; n += n < 8 ? 1 : 5) {
        for (const std::int64_t first : {std::int64_t{0}, 64 - n}) {
          const auto some = p.run(*two[i], *m, first, n, true, true);
          CHECK(std::memcmp(some.data(), all.data() + first * p.n_out, some.size() * sizeof(float)) == 0);
        }
      }
    }
  }
}

TEST_CASE("matmul: long inputs are cut into chunks of rows without a change of bits") {
  std::mt19937 rng(3);
  const Product p(70, 600, 700, DType::f32, rng);
  for (const auto& backend : fast_backends(2)) {
    const auto m = p.pack(*backend);
    const auto all = p.run(*backend, *m, 0, 700, false, false);
    const auto last = p.run(*backend, *m, 699, 1, false, false);
    CHECK(std::memcmp(last.data(), all.data() + 699 * p.n_out, last.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("matmul: a row of NaN stays in its row") {
  std::mt19937 rng(4);
  Product p(80, 64, 9, DType::bf16, rng);
  for (const auto& backend : all_backends(2)) {
    const auto m = p.pack(*backend);
    const auto clean = p.run(*backend, *m, 0, 9, false, false);
    Product bad = p;
    bad.x[4 * 64 + 3] = NAN;
    const auto y = bad.run(*backend, *m, 0, 9, false, false);
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (i / 80 == 4) CHECK(std::isnan(y[i]));
      if (i / 80 != 4) CHECK(y[i] == clean[i]);
    }
  }
}

TEST_CASE("embed reads the rows of a packed matrix back exactly") {
  std::mt19937 rng(5);
  for (const auto& [n_out, n_in] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {65, 33}, {300, 80}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const Product p(n_out, n_in, 1, type, rng);
      for (const auto& backend : all_backends(2)) {
        const auto m = p.pack(*backend);
        CHECK(m->n_out == n_out);
        CHECK(m->bytes >= dtype_bytes(type, n_out * n_in));
        const std::vector<TokenId> tokens{static_cast<TokenId>(n_out - 1), 0, static_cast<TokenId>(n_out / 2)};
        std::vector<float> x(static_cast<std::size_t>(3 * n_in));
        backend->begin_step({.n_rows = 3, .tokens = tokens});
        backend->embed(*m, x.data());
        for (std::int64_t i = 0; i < 3 * n_in; ++i) {
          const std::int64_t row = tokens[static_cast<std::size_t>(i / n_in)];
          CHECK(x[static_cast<std::size_t>(i)] == p.rounded(p.w[static_cast<std::size_t>(row * n_in + i % n_in)]));
        }
      }
    }
  }
}

TEST_CASE("what cannot be packed or allocated is refused with its numbers, and the backend goes on") {
  const auto backend = make_cpu_backend({.n_threads = 1});
  const std::vector<float> w(64, 1.0F);
  CHECK_THROWS_WITH_AS(backend->pack(8, 8, DType::q4_1, MemoryRows(w, 8)), doctest::Contains("q4_1"), Error);
  CHECK_THROWS_WITH_AS(backend->pack(0, 8, DType::f32, MemoryRows(w, 8)), doctest::Contains("0 x 8"), Error);
  CHECK_THROWS_WITH_AS(backend->allocate(std::int64_t{1} << 50), doctest::Contains("1125899906842624"), Error);
  CHECK_THROWS_WITH_AS(make_cpu_backend({.n_threads = -1}), doctest::Contains("-1"), Error);
  void* p = backend->allocate(100);
  CHECK(reinterpret_cast<std::uintptr_t>(p) % 64 == 0);
  backend->release(p);
  CHECK(backend->pack(8, 8, DType::f32, MemoryRows(w, 8))->n_in == 8);
}
