#include <cmath>
#include <cstring>
#include <doctest/doctest.h>

#include "bench/count_allocations.hpp"
#include "tests/kernels/backends.hpp"
#include "tests/kernels/forest.hpp"

using namespace banyan;
using namespace banyan::kernels;

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Runs `op(backend, first, n)`, which returns the rows [first, first + n), for all rows at once and in parts.
template <class Op>
void check_company(const Op& op, std::int64_t n_rows, std::int64_t width) {
  for (const auto& backend : all_backends(2)) {
    CAPTURE(backend->describe());
    const std::vector<float> all = op(*backend, 0, n_rows);
    for (const std::int64_t n : {std::int64_t{1}, n_rows / 3}) {
      const std::vector<float> some = op(*backend, n_rows - n, n);
      CHECK(std::memcmp(some.data(), all.data() + (n_rows - n) * width, some.size() * sizeof(float)) == 0);
    }
  }
}

}  // namespace

TEST_CASE("rms_norm equals its definition in double precision; in place; each row by itself") {
  std::mt19937 rng(1);
  for (const std::int64_t dim : {1, 5, 64, 100, 576}) {
    const std::int64_t n_rows = 120;
    const auto x = random_floats(n_rows * dim, rng, 3.0F), w = random_floats(dim, rng);
    const auto op = [&](Backend& b, std::int64_t first, std::int64_t n) {
      std::vector<float> y(x.begin() + first * dim, x.begin() + (first + n) * dim);
      b.rms_norm(y.data(), w.data(), y.data(), n, dim, 1e-5F);
      return y;
    };
    check_company(op, n_rows, dim);
    for (const auto& backend : all_backends(2)) {
      const auto y = op(*backend, 0, n_rows);
      double worst = 0;  // relative: a sum of dim squares, a root, a division and two products in f32
      for (std::int64_t r = 0; r < n_rows; ++r) {
        double sum = 0;
        for (std::int64_t i = 0; i < dim; ++i) sum += double{x[at(r * dim + i)]} * double{x[at(r * dim + i)]};
        const double root = std::sqrt(sum / static_cast<double>(dim) + double{1e-5F});
        for (std::int64_t i = 0; i < dim; ++i) {
          const double right = double{x[at(r * dim + i)]} / root * double{w[at(i)]};
          worst = std::max(worst, std::fabs(y[at(r * dim + i)] - right) / (std::fabs(right) + 1e-30));
        }
      }
      CHECK(worst < 3e-6);
    }
  }
}

TEST_CASE("silu_mul equals its definition in double precision, also far out; each row by itself") {
  std::mt19937 rng(2);
  for (const std::int64_t dim : {1, 19, 1536}) {
    const std::int64_t n_rows = 30;
    auto x = random_floats(n_rows * 2 * dim, rng, 4.0F);
    x[0] = -200.0F;
    x[at(2 * dim)] = 200.0F;
    x[at(4 * dim)] = 0.0F;
    x[at(6 * dim)] = -87.0F;
    const auto op = [&](Backend& b, std::int64_t first, std::int64_t n) {
      std::vector<float> y(at(n * dim));
      b.silu_mul(x.data() + first * 2 * dim, y.data(), n, dim);
      return y;
    };
    check_company(op, n_rows, dim);
    for (const auto& backend : all_backends(2)) {
      const auto y = op(*backend, 0, n_rows);
      double worst = 0;  // relative: exp to 1e-7 times its argument's rounding (|x| 2^-24), two products, a division
      for (std::int64_t r = 0; r < n_rows; ++r) {
        for (std::int64_t i = 0; i < dim; ++i) {
          const double gate = x[at(r * 2 * dim + i)], up = x[at(r * 2 * dim + dim + i)];
          const double right = gate / (1.0 + std::exp(-gate)) * up;
          worst = std::max(worst,
                           std::fabs(y[at(r * dim + i)] - right) / (std::fabs(right) + 1e-30) / (4 + std::fabs(gate)));
        }
      }
      CHECK(worst < 1.5e-7);
    }
  }
}

TEST_CASE("rope_kv rotates q and k, leaves v, stores both at their slots in the KV type, and nothing at slot -1") {
  std::mt19937 rng(3);
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t d : {8, 64, 80}) {
      constexpr std::int64_t n_rows = 70, n_heads_q = 6, n_heads_kv = 2, n_slots = 90;
      const std::int64_t width = (n_heads_q + 2 * n_heads_kv) * d;
      const auto qkv = random_floats(n_rows * width, rng);
      std::vector<float> inv_freq(at(d / 2));
      for (std::int64_t i = 0; i < d / 2; ++i) {
        inv_freq[at(i)] = static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(d)));
      }
      std::vector<std::int32_t> positions(at(n_rows));
      std::vector<std::int64_t> slots(at(n_rows));
      for (std::int64_t r = 0; r < n_rows; ++r) {
        positions[at(r)] = static_cast<std::int32_t>(r * 37 % 1000);
        slots[at(r)] = r % 5 == 4 ? -1 : (r * 7 + 3) % n_slots;
      }
      for (const auto& backend : all_backends(2)) {
        CAPTURE(backend->describe());
        const std::int64_t n_kv = 2 * n_heads_kv * n_slots * d;
        std::vector<std::byte> kv(at(dtype_bytes(type, n_kv)), std::byte{0x11});
        const std::vector<std::byte> untouched = kv;
        std::vector<float> q(at(n_rows * n_heads_q * d));
        const float magnitude = 1.25F;
        backend->begin_step({.n_rows = n_rows, .positions = positions, .kv_slots = slots});
        backend->rope_kv(
            {qkv.data(), q.data(), inv_freq.data(), magnitude, n_heads_q, {kv.data(), type, n_slots, n_heads_kv, d}});
        const auto rotated = [&](std::int64_t r, std::int64_t head, std::int64_t i) {
          const float* x = qkv.data() + r * width + head * d;
          const std::int64_t half = d / 2, j = i % half;
          const double angle = static_cast<float>(positions[at(r)]) * inv_freq[at(j)];  // the product is f32, as in HF
          const double c = std::cos(angle) * double{magnitude}, s = std::sin(angle) * double{magnitude};
          return i < half ? x[j] * c - x[j + half] * s : x[j + half] * c + x[j] * s;
        };
        double worst_q = 0, worst_kv = 0;
        std::int64_t n_touched = 0;
        for (std::int64_t r = 0; r < n_rows; ++r) {
          for (std::int64_t h = 0; h < n_heads_q; ++h) {
            for (std::int64_t i = 0; i < d; ++i) {
              worst_q = std::max(worst_q, std::fabs(q[at((r * n_heads_q + h) * d + i)] - rotated(r, h, i)));
            }
          }
          for (std::int64_t h = 0; h < 2 * n_heads_kv && slots[at(r)] >= 0; ++h) {
            for (std::int64_t i = 0; i < d; ++i) {
              const std::int64_t j = (h * n_slots + slots[at(r)]) * d + i;  // k heads, then v heads
              float stored = 0;
              if (type == DType::f32) stored = reinterpret_cast<const float*>(kv.data())[j];
              if (type == DType::bf16) stored = to_float(reinterpret_cast<const bf16*>(kv.data())[j]);
              if (type == DType::f16) stored = to_float(reinterpret_cast<const f16*>(kv.data())[j]);
              const double right =
                  h < n_heads_kv ? rotated(r, n_heads_q + h, i) : qkv[at(r * width + (n_heads_q + h) * d + i)];
              worst_kv = std::max(worst_kv, std::fabs(stored - right) / (1.0 + std::fabs(right)));
              ++n_touched;
            }
          }
        }
        CHECK(worst_q < 2e-6);
        // Half a unit in the last place, relatively: 2^-8 for bf16, 2^-11 for f16.
        CHECK(worst_kv < (type == DType::f32 ? 2e-6 : type == DType::bf16 ? 0x1p-8 : 0x1p-11));
        std::int64_t n_same = 0;
        const std::int64_t element = dtype_bytes(type, 1);
        for (std::int64_t j = 0; j < n_kv; ++j) {
          n_same += std::memcmp(kv.data() + j * element, untouched.data() + j * element, at(element)) == 0 ? 1 : 0;
        }
        CHECK(n_same >= n_kv - n_touched);
      }
    }
  }
}

TEST_CASE("rope_kv norms each q and k head by its own weights before it rotates, and leaves v") {
  std::mt19937 rng(7);
  for (const std::int64_t d : {8, 24, 128}) {
    constexpr std::int64_t n_rows = 5, n_heads_q = 4, n_heads_kv = 2, n_heads = n_heads_q + 2 * n_heads_kv;
    constexpr float eps = 1e-5F;
    const auto qkv = random_floats(n_rows * n_heads * d, rng, 2.0F);
    const auto q_norm = random_floats(d, rng), k_norm = random_floats(d, rng);
    std::vector<float> inv_freq(at(d / 2));
    for (std::size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] = 1.0F / static_cast<float>(1 + i);
    const std::vector<std::int32_t> positions{0, 1, 5, 17, 100};
    const std::vector<std::int64_t> slots{0, 1, 2, 3, 4};
    // The same without norms, of rows that were normed here in double precision.
    std::vector<float> normed = qkv;
    for (std::int64_t r = 0; r < n_rows; ++r) {
      for (std::int64_t h = 0; h < n_heads_q + n_heads_kv; ++h) {
        float* x = normed.data() + (r * n_heads + h) * d;
        double squares = 0;
        for (std::int64_t i = 0; i < d; ++i) squares += double{x[i]} * double{x[i]};
        const double root = std::sqrt(squares / static_cast<double>(d) + double{eps});
        const auto& w = h < n_heads_q ? q_norm : k_norm;
        for (std::int64_t i = 0; i < d; ++i) x[i] = static_cast<float>(x[i] / root * w[at(i)]);
      }
    }
    for (const auto& backend : all_backends(2)) {
      CAPTURE(backend->describe());
      backend->begin_step({.n_rows = n_rows, .positions = positions, .kv_slots = slots});
      const auto run = [&](const std::vector<float>& rows, const float* q_weights, const float* k_weights) {
        std::vector<float> out(at((n_rows * n_heads_q + 2 * n_heads_kv * n_rows) * d));  // q, then KV
        backend->rope_kv({.qkv = rows.data(),
                          .q = out.data(),
                          .inv_freq = inv_freq.data(),
                          .n_heads_q = n_heads_q,
                          .kv = {out.data() + n_rows * n_heads_q * d, DType::f32, n_rows, n_heads_kv, d},
                          .q_norm = q_weights,
                          .k_norm = k_weights,
                          .norm_eps = eps});
        return out;
      };
      const auto got = run(qkv, q_norm.data(), k_norm.data()), right = run(normed, nullptr, nullptr);
      double worst = 0;
      for (std::size_t i = 0; i < got.size(); ++i)
        worst = std::max(worst, std::fabs(double{got[i]} - double{right[i]}));
      CHECK(worst < 5e-6);
    }
  }
}

TEST_CASE("rope_kv: angles are remembered between calls, and made again when anything about them changes") {
  const auto backend = make_cpu_backend({.n_threads = 1});
  std::vector<float> qkv(3 * 4, 1.0F), kv(2 * 4 * 4), q(4);
  const std::vector<float> slow{0.5F, 0.25F}, fast{0.75F, 0.5F};
  const std::vector<std::int64_t> slots{0};
  std::vector<std::int32_t> positions{3};
  const auto begin_step = [&] { backend->begin_step({.n_rows = 1, .positions = positions, .kv_slots = slots}); };
  const auto run = [&](const std::vector<float>& inv_freq, float magnitude) {
    backend->rope_kv({qkv.data(), q.data(), inv_freq.data(), magnitude, 1, {kv.data(), DType::f32, 4, 1, 4}});
    return q[0];
  };
  const auto right = [&](const std::vector<float>& inv_freq, float magnitude) {
    const float angle = static_cast<float>(positions[0]) * inv_freq[0];
    return doctest::Approx((std::cos(angle) - std::sin(angle)) * magnitude).epsilon(1e-5);
  };
  begin_step();
  CHECK(run(slow, 1.0F) == right(slow, 1.0F));
  CHECK(run(slow, 2.0F) == right(slow, 2.0F));
  CHECK(run(fast, 2.0F) == right(fast, 2.0F));
  CHECK(run(fast, 2.0F) == right(fast, 2.0F));
  positions[0] = 5;
  begin_step();
  CHECK(run(fast, 2.0F) == right(fast, 2.0F));
}

TEST_CASE("gather_logit_rows copies the rows named") {
  std::mt19937 rng(4);
  const auto src = random_floats(50 * 7, rng);
  const std::vector<std::int32_t> index{49, 0, 0, 17};
  for (const auto& backend : all_backends(2)) {
    std::vector<float> dst(4 * 7);
    backend->begin_step({.n_rows = 50, .logit_rows = index});
    backend->gather_logit_rows(src.data(), dst.data(), 7);
    for (std::size_t i = 0; i < dst.size(); ++i) CHECK(dst[i] == src[at(index[i / 7] * 7) + i % 7]);
  }
}

TEST_CASE("no operation allocates once it has seen its largest step") {
  std::mt19937 rng(5);
  const auto w = random_floats(256 * 576, rng), x = random_floats(100 * 576, rng);
  std::vector<float> y(100 * 576);
  const Forest forest({.n_nodes = 20, .type = DType::bf16}, rng);
  const Calls calls = forest.by_node();
  AttentionResult result;
  result.o.resize(forest.q.size());
  result.lse.resize(at(forest.n_rows() * forest.shape.n_heads_q));
  const std::vector<TokenId> tokens(100, 5);
  const auto backend = make_cpu_backend({.n_threads = 2});
  const auto f32 = backend->pack(256, 576, DType::f32, MemoryRows(w, 576));
  const auto bf16 = backend->pack(256, 576, DType::bf16, MemoryRows(w, 576));
  const auto step = [&](std::int64_t n_rows) {
    backend->begin_step({.n_rows = n_rows, .tokens = std::span(tokens).first(at(n_rows))});
    backend->embed(*bf16, y.data());
    backend->rms_norm(x.data(), w.data(), y.data(), n_rows, 576, 1e-5F);
    backend->matmul(*f32, x.data(), y.data(), n_rows, nullptr);
    backend->matmul_f32(*bf16, x.data(), y.data(), n_rows, nullptr, true);
    backend->silu_mul(x.data(), y.data(), n_rows, 288);
    backend->begin_step(forest.step(calls));
    backend->attention(forest.arguments(result));
  };
  step(100);
  const std::int64_t before = n_allocations;
  for (const std::int64_t n_rows : {1, 7, 64, 99, 100}) step(n_rows);
  CHECK(n_allocations == before);
}
