// Products, packing and memory of the CUDA backend against double precision.
#include <cmath>
#include <doctest/doctest.h>
#include <filesystem>

#include "backends.hpp"
#include "code/temp_folder.hpp"
#include "cuda_memory.hpp"

using namespace banyan;
using namespace banyan::kernels;

namespace {

struct Product {
  std::int64_t n_out, n_in, n_rows;
  std::vector<float> w, x, bias, y;  // w and x rounded to bf16
  Product(std::int64_t out, std::int64_t in, std::int64_t rows, std::mt19937& rng)
      : n_out(out),
        n_in(in),
        n_rows(rows),
        w(rounded(random_floats(out * in, rng), DType::bf16)),
        x(rounded(random_floats(rows * in, rng), DType::bf16)),
        bias(random_floats(out, rng)),
        y(random_floats(rows * out, rng)) {}

  // Worst error of y = (accumulate ? y : 0) + W x + bias, relative to the sum of the terms' magnitudes.
  double worst(const std::vector<float>& got, bool accumulate) const {
    double most = 0;
    for (std::int64_t r = 0; r < n_rows; ++r) {
      for (std::int64_t n = 0; n < n_out; ++n) {
        double sum = bias[at(n)] + (accumulate ? y[at(r * n_out + n)] : 0.0), size = std::fabs(sum);
        for (std::int64_t k = 0; k < n_in; ++k) {
          const double term = double{w[at(n * n_in + k)]} * double{x[at(r * n_in + k)]};
          sum += term;
          size += std::fabs(term);
        }
        const double error = std::fabs(got[at(r * n_out + n)] - sum) / size;
        if (!(error <= most)) most = error;
      }
    }
    return most;
  }
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
};

}  // namespace

TEST_CASE("cuda: products equal double precision, in bf16 and in f32, with bias and accumulation") {
  std::mt19937 rng(1);
  const auto backend = make_cuda_backend();
  for (const auto& [n_out, n_in] :
       {std::pair<std::int64_t, std::int64_t>{16, 8}, {64, 32}, {576, 1536}, {1001, 1080}}) {
    for (const std::int64_t n_rows : {1, 2, 3, 4, 7, 9, 64, 133}) {
      CAPTURE(n_out);
      CAPTURE(n_in);
      CAPTURE(n_rows);
      const Product p(n_out, n_in, n_rows, rng);
      const auto w = backend->pack(n_out, n_in, DType::bf16, MemoryRows(p.w, n_in));
      const OnDevice x(*backend, DType::bf16, p.x), bias(*backend, DType::f32, p.bias);
      const OnDevice activations(*backend, DType::bf16, n_rows * n_out);
      backend->matmul(*w, x.data(), activations.data(), n_rows, bias.f32());
      // The sum rounds to 8 bits, and once more with the bias.
      CHECK(p.worst(activations.read(), false) < 0x1p-7);
      for (const bool accumulate : {false, true}) {
        const OnDevice sums(*backend, DType::f32, p.y);
        backend->matmul_f32(*w, x.data(), sums.f32(), n_rows, bias.f32(), accumulate);
        // f32 sums of n_in terms in some order; tensor cores may drop bits below 2^-22 of the largest term.
        CHECK(p.worst(sums.read(), accumulate) < 2e-6);
      }
    }
  }
}

TEST_CASE("cuda: deterministic products give a row the same bits alone and among others, from run to run") {
  std::mt19937 rng(2);
  const auto backend = make_cuda_backend({.deterministic = true});
  for (const auto& [n_out, n_in] : {std::pair<std::int64_t, std::int64_t>{960, 576}, {4096, 4096}, {1024, 11008}}) {
    const std::vector<float> w_values = random_floats(n_out * n_in, rng), x_values = random_floats(1100 * n_in, rng);
    const auto w = backend->pack(n_out, n_in, DType::bf16, MemoryRows(w_values, n_in));
    const OnDevice x(*backend, DType::bf16, x_values);
    const auto run = [&](std::int64_t first, std::int64_t n_rows) {
      const OnDevice y(*backend, DType::f32, n_rows * n_out);
      backend->matmul_f32(*w, static_cast<const bf16*>(x.data()) + first * n_in, y.f32(), n_rows, nullptr, false);
      return y.read();
    };
    const std::vector<float> all = run(0, 1100);
    CHECK(run(0, 1100) == all);
    for (const auto& [first, n_rows] :
         {std::pair<std::int64_t, std::int64_t>{0, 1}, {5, 1}, {1099, 1}, {3, 7}, {64, 64}, {100, 129}, {0, 1023}}) {
      CAPTURE(first);
      CAPTURE(n_rows);
      const auto part = run(first, n_rows);
      CHECK(std::equal(part.begin(), part.end(), all.begin() + first * n_out));
    }
  }
}

TEST_CASE("cuda: algorithms are kept between backends, not when deterministic; a damaged file is said and replaced") {
  std::mt19937 rng(3);
  const Product p(576, 1536, 64, rng);
  const TempFolder folder;
  const auto run = [&](bool deterministic, std::vector<std::string>& notices) {
    const auto backend = make_cuda_backend({.deterministic = deterministic,
                                            .cache_folder = folder.path(),
                                            .notice = [&](std::string_view text) { notices.emplace_back(text); }});
    const auto w = backend->pack(p.n_out, p.n_in, DType::bf16, MemoryRows(p.w, p.n_in));
    const OnDevice x(*backend, DType::bf16, p.x), y(*backend, DType::f32, p.n_rows * p.n_out);
    backend->matmul_f32(*w, x.data(), y.f32(), p.n_rows, nullptr, false);
    return y.read();
  };
  const auto files = [&] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  };
  std::vector<std::string> notices;
  run(true, notices);
  CHECK(files().empty());
  const auto first = run(false, notices);
  REQUIRE(files().size() == 1);
  const std::string name = files()[0], content = folder.read(name);
  MESSAGE(name);
  CHECK(run(false, notices) == first);  // recalled: the same algorithm, so the same bits
  CHECK(folder.read(name) == content);
  CHECK(notices.empty());
  folder.write(name, content.substr(0, content.size() / 2));
  run(false, notices);
  CHECK(notices.size() >= 1);
  CHECK(files().size() == 1);
  std::vector<std::string> none;
  run(false, none);
  CHECK(none.empty());
}

TEST_CASE("cuda: uniform rows and random contents are the host's, number by number") {
  const auto backend = make_cuda_backend();
  const UniformRows rows(80, 17, 0.25F);
  std::vector<float> host(300 * 80);
  rows.fill(0, 300, host.data());
  const auto w = backend->pack(300, 80, DType::bf16, rows);
  // Read back by products with unit vectors.
  std::vector<float> unit(80 * 80, 0.0F);
  for (std::size_t i = 0; i < 80; ++i) unit[i * 81] = 1.0F;
  const OnDevice x(*backend, DType::bf16, unit), y(*backend, DType::f32, 80 * 300);
  backend->matmul_f32(*w, x.data(), y.f32(), 80, nullptr, false);
  const auto got = y.read(), right = rounded(host, DType::bf16);
  bool same = true;
  for (std::size_t k = 0; k < 80; ++k) {
    for (std::size_t n = 0; n < 300; ++n) same = same && got[k * 300 + n] == right[n * 80 + k];
  }
  CHECK(same);

  const auto cpu = make_cpu_backend({.n_threads = 1});
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const OnDevice device(*backend, type, 1001), on_host(*cpu, type, 1001);
    backend->fill_random(device.data(), type, 1001, 5);
    cpu->fill_random(on_host.data(), type, 1001, 5);
    CHECK(device.read() == on_host.read());
  }
}

TEST_CASE("cuda: what does not fit is a typed error with sizes, and the backend goes on") {
  const auto backend = make_cuda_backend();
  CHECK_THROWS_WITH_AS(backend->allocate(std::int64_t{1} << 45), doctest::Contains("35184372088832 bytes wanted"),
                       Error);
  const OnDevice x(*backend, DType::f32, std::vector<float>{1, 2, 3});
  CHECK(x.read() == std::vector<float>{1, 2, 3});
  CHECK_THROWS_WITH_AS(make_cuda_backend({.device_index = 1000}), doctest::Contains("there are devices 0 to"), Error);
}
