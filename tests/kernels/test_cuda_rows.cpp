// CUDA row kernels against their definitions in double precision, and against the CPU reference on the same inputs.
//
// Outputs in bf16 are rounded once, by at most 2^-8 of themselves (half a unit in the last of 8 bits is 2^-9 of the
// power of two below); f32 arithmetic before that is off by some 1e-6 relatively. So: |got - right| <= 2^-8 |right| + a
// little of the row's scale where results cancel.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <doctest/doctest.h>
#include <map>

#include "kernels/cuda/rows.hpp"
#include "tests/kernels/backends.hpp"
#include "tests/kernels/cuda_problem.hpp"

using namespace banyan;
using namespace banyan::kernels;
using namespace banyan::kernels::cuda;

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

constexpr double kBf16Rounding = 0x1p-8;

std::vector<float> to_floats(const std::vector<bf16>& x) {
  std::vector<float> y;
  y.reserve(x.size());
  for (const bf16 v : x) y.push_back(to_float(v));
  return y;
}
std::vector<float> bf16_floats(std::int64_t n, std::mt19937& rng, float deviation = 1.0F) {
  return to_floats(to_bf16(random_floats(n, rng, deviation)));
}

// The largest |got - right| beyond rounding to bf16, in units of `scale`.
struct Worst {
  const char* name;
  double scale, bound, value = 0;
  void take(double got, double right, double rounding = kBf16Rounding) {
    const double error = std::fabs(got - right) - rounding * std::fabs(right);
    value = std::isnan(got) ? INFINITY : std::max(value, error / scale);
  }
  void verdict(std::int64_t n_rows, std::int64_t dim) const {
    std::printf("%-14s rows %6ld dim %5ld: beyond rounding %.1e (%.1e)\n", name, static_cast<long>(n_rows),
                static_cast<long>(dim), value, bound);
    CHECK(value <= bound);
  }
};

}  // namespace

TEST_CASE("CUDA embed: the table's rows, exactly; gather: rows by index, plus delta") {
  std::mt19937 rng(1);
  for (const auto& [n_rows, dim] : {std::pair<std::int64_t, std::int64_t>{1, 8}, {70'000, 64}, {33, 5120}}) {
    const std::int64_t n_vocab = 500;
    const auto table = bf16_floats(n_vocab * dim, rng), delta = bf16_floats(n_vocab * dim, rng);
    std::vector<TokenId> tokens;
    for (std::int64_t r = 0; r < n_rows; ++r) tokens.push_back(static_cast<TokenId>(rng() % n_vocab));
    tokens.back() = n_vocab - 1;
    const DeviceArray<bf16> on_table(to_bf16(table)), on_delta(to_bf16(delta));
    const DeviceArray<float> source(table), x(n_rows * dim), gathered(n_rows * dim), sum(n_rows * dim);
    const DeviceArray<TokenId> on_tokens(tokens);
    embed(on_table.data(), n_vocab, on_tokens.data(), {}, x.data(), n_rows, dim, nullptr);
    gather_rows(source.data(), nullptr, on_tokens.data(), gathered.data(), n_rows, dim, nullptr);
    gather_rows(source.data(), on_delta.data(), on_tokens.data(), sum.data(), n_rows, dim, nullptr);
    const auto embedded = x.download(), rows = gathered.download(), sums = sum.download();
    std::int64_t n_wrong = 0;
    for (std::int64_t i = 0; i < n_rows * dim; ++i) {
      const auto from = at(tokens[at(i / dim)] * dim + i % dim);
      n_wrong +=
          embedded[at(i)] != table[from] || rows[at(i)] != table[from] || sums[at(i)] != table[from] + delta[from];
    }
    CHECK(n_wrong == 0);
  }
}

TEST_CASE("CUDA embed: tokens that a step before drew are read on the device; what was not drawn is any token") {
  std::mt19937 rng(9);
  const std::int64_t n_vocab = 100, dim = 64, stride = 4;
  const auto table = bf16_floats(n_vocab * dim, rng);
  const std::vector<std::int32_t> drawn{7, 0, 0, 0, -1, 0, 0, 0, 99, 0, 0, 0, 100, 0, 0, 0};  // of four queries
  const std::vector<TokenId> tokens{5, drawn_token(2), drawn_token(0), drawn_token(1), drawn_token(3), 6},
      right{5, 99, 7, 0, 0, 6};
  const DeviceArray<bf16> on_table(to_bf16(table));
  const DeviceArray<std::int32_t> on_drawn(drawn);
  const DeviceArray<TokenId> on_tokens(tokens);
  const DeviceArray<float> x(std::ssize(tokens) * dim);
  embed(on_table.data(), n_vocab, on_tokens.data(), {on_drawn.data(), stride}, x.data(), std::ssize(tokens), dim,
        nullptr);
  const auto got = x.download();
  std::int64_t n_wrong = 0;
  for (std::size_t r = 0; r < right.size(); ++r) {
    for (std::int64_t i = 0; i < dim; ++i) n_wrong += got[r * 64 + at(i)] != table[at(right[r] * dim + i)];
  }
  CHECK(n_wrong == 0);
}

TEST_CASE("CUDA rms_norm: its definition, the CPU reference, with and without delta, each row by itself") {
  std::mt19937 rng(2);
  const auto cpu = make_reference_backend();
  for (const auto& [n_rows, dim] :
       {std::pair<std::int64_t, std::int64_t>{70'000, 16}, {37, 576}, {5, 5120}, {9, 8192}, {3, 16'384}}) {
    const auto x = random_floats(n_rows * dim, rng, 3.0F), w = random_floats(dim, rng);
    const auto delta = bf16_floats(n_rows * dim, rng);
    const DeviceArray<float> on_x(x), on_w(w), on_sum(x);
    const DeviceArray<bf16> on_delta(to_bf16(delta)), y(n_rows * dim), y_sum(n_rows * dim), last(dim);
    rms_norm(on_x.data(), on_w.data(), y.data(), n_rows, dim, 1e-5F, nullptr);
    add_rms_norm(on_sum.data(), on_delta.data(), on_w.data(), y_sum.data(), n_rows, dim, 1e-5F, nullptr);
    rms_norm(on_x.data() + (n_rows - 1) * dim, on_w.data(), last.data(), 1, dim, 1e-5F, nullptr);
    CHECK(on_x.download() == x);
    const auto got = to_floats(y.download()), got_sum = to_floats(y_sum.download()), sum = on_sum.download();
    std::vector<float> reference(at(n_rows * dim));
    cpu->rms_norm(x.data(), w.data(), reference.data(), n_rows, dim, 1e-5F);
    // f32: a sum of dim squares, a root, two products.
    Worst plain{"rms_norm", 1.0, 1e-5}, added{"add_rms_norm", 1.0, 1e-5}, cpu_rows{"rms_norm, CPU", 1.0, 1e-5};
    std::int64_t n_wrong = 0;
    const auto compare = [&](const std::vector<float>& in, const std::vector<float>& out, Worst& worst) {
      for (std::int64_t r = 0; r < n_rows; ++r) {
        double squares = 0;
        for (std::int64_t i = 0; i < dim; ++i) squares += double{in[at(r * dim + i)]} * double{in[at(r * dim + i)]};
        const double root = std::sqrt(squares / static_cast<double>(dim) + 1e-5);
        for (std::int64_t i = 0; i < dim; ++i)
          worst.take(out[at(r * dim + i)], in[at(r * dim + i)] / root * double{w[at(i)]});
      }
    };
    compare(x, got, plain);
    compare(sum, got_sum, added);
    for (std::size_t i = 0; i < x.size(); ++i) {
      n_wrong += sum[i] != x[i] + delta[i];
      cpu_rows.take(got[i], reference[i]);
    }
    plain.verdict(n_rows, dim);
    added.verdict(n_rows, dim);
    cpu_rows.verdict(n_rows, dim);
    CHECK(n_wrong == 0);
    const auto alone = to_floats(last.download());
    CHECK(std::memcmp(alone.data(), got.data() + (n_rows - 1) * dim, at(dim) * sizeof(float)) == 0);
  }
}

TEST_CASE("CUDA silu_mul: its definition and the CPU reference, also far out") {
  std::mt19937 rng(3);
  const auto cpu = make_reference_backend();
  for (const auto& [n_rows, dim] : {std::pair<std::int64_t, std::int64_t>{70'000, 8}, {30, 1536}, {3, 28'672}}) {
    auto x = bf16_floats(n_rows * 2 * dim, rng, 4.0F);
    x[0] = -200.0F;
    x[1] = 200.0F;
    x[2] = 0.0F;
    x[3] = -87.0F;
    const DeviceArray<bf16> on_x(to_bf16(x)), y(n_rows * dim);
    silu_mul(on_x.data(), y.data(), n_rows, dim, nullptr);
    const auto got = to_floats(y.download());
    std::vector<float> reference(at(n_rows * dim));
    cpu->silu_mul(x.data(), reference.data(), n_rows, dim);
    // The device's fast exp is off by 2 ulp and |gate| / 64 ulp more; |gate| is up to 20 but in the first row, where
    // results are tiny or the exponential vanishes.
    Worst worst{"silu_mul", 1.0, 1e-5}, cpu_rows{"silu_mul, CPU", 1.0, 1e-5};
    for (std::int64_t r = 0; r < n_rows; ++r) {
      for (std::int64_t i = 0; i < dim; ++i) {
        const double gate = x[at(r * 2 * dim + i)], up = x[at((r * 2 + 1) * dim + i)];
        worst.take(got[at(r * dim + i)], gate / (1 + std::exp(-gate)) * up, kBf16Rounding * 1.001);
        cpu_rows.take(got[at(r * dim + i)], reference[at(r * dim + i)], kBf16Rounding * 1.001);
      }
    }
    worst.verdict(n_rows, dim);
    cpu_rows.verdict(n_rows, dim);
  }
}

namespace {

struct RopeCase {
  std::int64_t head_dim, n_heads_q, n_heads_kv, n_rotary;
  DType type;
  bool q_norm, k_norm;
  std::int64_t n_rows = 60, first_position = 0;
};

void check_rope(const RopeCase& c, std::mt19937& rng) {
  const std::int64_t d = c.head_dim, n_heads = c.n_heads_q + 2 * c.n_heads_kv, n_slots = 3 * c.n_rows;
  const float magnitude = 1.25F;
  const auto qkv = bf16_floats(c.n_rows * n_heads * d, rng);
  const auto q_norm = random_floats(d, rng), k_norm = random_floats(d, rng);
  std::vector<float> inv_freq;
  for (std::int64_t i = 0; i < c.n_rotary / 2; ++i) {
    inv_freq.push_back(
        static_cast<float>(std::pow(10'000.0, -2.0 * static_cast<double>(i) / static_cast<double>(c.n_rotary))));
  }
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> slots;
  for (std::int64_t r = 0; r < c.n_rows; ++r) {
    positions.push_back(static_cast<std::int32_t>(c.first_position + r * 37 % 4096));
    slots.push_back(r % 5 == 3 ? -1 : (c.n_rows - r) * 3 - 1);
  }
  const DeviceArray<bf16> on_qkv(to_bf16(qkv)), on_q(c.n_rows * c.n_heads_q * d);
  const DeviceArray<std::int32_t> on_positions(positions);
  const DeviceArray<std::int64_t> on_slots(slots);
  const DeviceArray<float> on_freq(inv_freq), on_q_norm(q_norm), on_k_norm(k_norm);
  const DeviceArray<std::byte> kv(dtype_bytes(c.type, 2 * c.n_heads_kv * n_slots * d));
  const DeviceArray<float> on_scales(2 * c.n_heads_kv * n_slots);
  rope_kv({.qkv = on_qkv.data(),
           .q = on_q.data(),
           .positions = on_positions.data(),
           .kv_slots = on_slots.data(),
           .inv_freq = on_freq.data(),
           .n_rotary = c.n_rotary,
           .magnitude = magnitude,
           .q_norm = c.q_norm ? on_q_norm.data() : nullptr,
           .k_norm = c.k_norm ? on_k_norm.data() : nullptr,
           .norm_eps = 1e-6F,
           .n_rows = c.n_rows,
           .n_heads_q = c.n_heads_q,
           .kv = {kv.data(), c.type, n_slots, c.n_heads_kv, d, on_scales.data()}},
          nullptr);
  const auto q = to_floats(on_q.download());
  const auto stored = kv.download();
  const auto scales = on_scales.download();
  const auto kv_value = [&](std::int64_t i) {
    if (c.type == DType::f32) return reinterpret_cast<const float*>(stored.data())[i];
    if (c.type == DType::bf16) return to_float(reinterpret_cast<const bf16*>(stored.data())[i]);
    if (c.type == DType::f8_e4m3) {
      return static_cast<float>(e4m3_oracle_value(std::to_integer<std::uint8_t>(stored[at(i)]))) * scales[at(i / d)];
    }
    return to_float(reinterpret_cast<const f16*>(stored.data())[i]);
  };
  const std::map<DType, double> kv_rounding{
      {DType::f32, 0.0}, {DType::bf16, kBf16Rounding}, {DType::f16, 0x1p-11}, {DType::f8_e4m3, 0x1p-4}};

  // Angles in double have no error to speak of; sin and cos in f32 of an angle up to pi are off by 2e-7 or so.
  Worst of_q{"rope q", 1.0, 1e-5}, of_kv{"rope kv", 1.0, 1e-5};
  if (c.type == DType::f8_e4m3) of_kv.bound = 10 * 0x1p-17;  // small elements of rows whose largest is 10 or so
  std::int64_t n_touched = 0, n_stored = 0;
  for (std::int64_t r = 0; r < c.n_rows; ++r) {
    for (std::int64_t h = 0; h < n_heads; ++h) {
      const bool is_q = h < c.n_heads_q, is_v = h >= c.n_heads_q + c.n_heads_kv;
      std::vector<double> x(at(d)), right;
      double squares = 0;
      for (std::int64_t i = 0; i < d; ++i) {
        x[at(i)] = qkv[at((r * n_heads + h) * d + i)];
        squares += x[at(i)] * x[at(i)];
      }
      const float* norm = is_q && c.q_norm ? q_norm.data() : !is_q && !is_v && c.k_norm ? k_norm.data() : nullptr;
      for (std::int64_t i = 0; norm != nullptr && i < d; ++i) {
        x[at(i)] *= double{norm[i]} / std::sqrt(squares / static_cast<double>(d) + 1e-6);
      }
      right = x;
      for (std::int64_t i = 0; !is_v && i < c.n_rotary / 2; ++i) {
        const double angle = double{inv_freq[at(i)]} * positions[at(r)], a = x[at(i)], b = x[at(i + c.n_rotary / 2)];
        right[at(i)] = (a * std::cos(angle) - b * std::sin(angle)) * double{magnitude};
        right[at(i + c.n_rotary / 2)] = (b * std::cos(angle) + a * std::sin(angle)) * double{magnitude};
      }
      for (std::int64_t i = 0; i < d; ++i) {
        if (is_q) of_q.take(q[at((r * c.n_heads_q + h) * d + i)], right[at(i)]);
        if (is_q || slots[at(r)] < 0) continue;
        of_kv.take(kv_value(((h - c.n_heads_q) * n_slots + slots[at(r)]) * d + i), right[at(i)],
                   kv_rounding.at(c.type));
        ++n_stored;
      }
    }
  }
  for (std::int64_t i = 0; i < 2 * c.n_heads_kv * n_slots * d; ++i) n_touched += std::isnan(kv_value(i)) ? 0 : 1;
  of_q.verdict(c.n_rows, d);
  of_kv.verdict(c.n_rows, d);
  CHECK(n_touched == n_stored);  // nothing else
}

}  // namespace

TEST_CASE("CUDA rope_kv: q/k norm, rotation and KV store equal their definition; -1 stores nothing") {
  std::mt19937 rng(4);
  for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::f8_e4m3}) {
    for (const std::int64_t d : {8, 16, 64, 80, 96, 128, 256}) {
      check_rope({d, 6, 2, d, type, false, false}, rng);
      check_rope({d, 3, 3, d, type, true, true}, rng);
    }
    check_rope({128, 32, 8, 0, type, true, false}, rng);   // no rotation
    check_rope({128, 32, 8, 64, type, false, true}, rng);  // half of the dims, in vectors
    check_rope({64, 5, 1, 20, type, false, false}, rng);   // 20 of 64 dims, one by one
    check_rope({6, 2, 1, 4, type, true, true}, rng);
  }
  check_rope({64, 1, 1, 64, DType::bf16, false, false, 70'000}, rng);
}

TEST_CASE("CUDA rope_kv: angles at a million positions are as good as at the first") {
  std::mt19937 rng(5);
  for (const std::int64_t first : {100'000, 1'000'000, 16'000'000}) {
    check_rope({128, 4, 2, 128, DType::f32, false, false, 60, first}, rng);
  }
}

TEST_CASE("CUDA rope_kv equals the CPU reference near position 0") {
  std::mt19937 rng(6);
  const std::int64_t n_rows = 20, n_heads_q = 4, n_heads_kv = 2, d = 64, n_slots = 40;
  const auto qkv = bf16_floats(n_rows * (n_heads_q + 2 * n_heads_kv) * d, rng);
  std::vector<float> inv_freq, q(at(n_rows * n_heads_q * d)), kv(at(2 * n_heads_kv * n_slots * d), 0.0F);
  for (std::int64_t i = 0; i < d / 2; ++i) inv_freq.push_back(std::pow(10'000.0F, -2.0F * static_cast<float>(i) / d));
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> slots;
  for (std::int64_t r = 0; r < n_rows; ++r) {
    positions.push_back(static_cast<std::int32_t>(r));
    slots.push_back(2 * r);
  }
  const auto cpu = make_reference_backend();
  cpu->begin_step({.n_rows = n_rows, .positions = positions, .kv_slots = slots});
  cpu->rope_kv(
      {qkv.data(), q.data(), inv_freq.data(), 1.0F, n_heads_q, {kv.data(), DType::f32, n_slots, n_heads_kv, d}});
  const DeviceArray<bf16> on_qkv(to_bf16(qkv)), on_q(n_rows * n_heads_q * d);
  const DeviceArray<std::int32_t> on_positions(positions);
  const DeviceArray<std::int64_t> on_slots(slots);
  const DeviceArray<float> on_freq(inv_freq), on_kv(std::vector<float>(kv.size(), 0.0F));
  rope_kv({.qkv = on_qkv.data(),
           .q = on_q.data(),
           .positions = on_positions.data(),
           .kv_slots = on_slots.data(),
           .inv_freq = on_freq.data(),
           .n_rotary = d,
           .n_rows = n_rows,
           .n_heads_q = n_heads_q,
           .kv = {on_kv.data(), DType::f32, n_slots, n_heads_kv, d}},
          nullptr);
  const auto got_q = to_floats(on_q.download()), got_kv = on_kv.download();
  // The CPU's angles are f32 products: off by 20 x 2^-24.
  Worst of_q{"rope q, CPU", 1.0, 2e-5}, of_kv{"rope kv, CPU", 1.0, 2e-5};
  for (std::size_t i = 0; i < q.size(); ++i) of_q.take(got_q[i], q[i]);
  for (std::size_t i = 0; i < kv.size(); ++i) of_kv.take(got_kv[i], kv[i], 0.0);
  of_q.verdict(n_rows, d);
  of_kv.verdict(n_rows, d);
}

TEST_CASE("CUDA row kernels: elements beyond 2^31") {
  // 270,000 rows of 8,192: 2.2e9 elements. All zero but the last row.
  const std::int64_t n_rows = 270'000, dim = 8192;
  float* x = nullptr;
  bf16* y = nullptr;
  const bool fits = cudaMalloc(reinterpret_cast<void**>(&x), at(n_rows * dim) * 4) == cudaSuccess &&
                    cudaMalloc(reinterpret_cast<void**>(&y), at(n_rows * dim) * 2) == cudaSuccess;
  if (fits) {
    std::mt19937 rng(7);
    const auto row = bf16_floats(dim, rng);
    const DeviceArray<float> on_row(row), ones(std::vector<float>(at(dim), 1.0F));
    const DeviceArray<bf16> right(dim), on_bf16(to_bf16(row));
    rms_norm(on_row.data(), ones.data(), right.data(), 1, dim, 1e-5F, nullptr);
    check(cudaMemset(x, 0, at(n_rows * dim) * 4), "cudaMemset");
    check(cudaMemcpy(x + (n_rows - 1) * dim, on_row.data(), at(dim) * 4, cudaMemcpyDeviceToDevice), "cudaMemcpy");
    rms_norm(x, ones.data(), y, n_rows, dim, 1e-5F, nullptr);
    const auto bits = [&](const bf16* p) {
      std::vector<bf16> v(at(dim));
      check(cudaMemcpy(v.data(), p, at(dim) * 2, cudaMemcpyDeviceToHost), "cudaMemcpy");
      return to_floats(v);
    };
    CHECK(bits(y + (n_rows - 1) * dim) == bits(right.data()));
    CHECK(bits(y) == std::vector<float>(at(dim), 0.0F));

    // silu_mul of rows of 2 x 4,096 takes y as its input: its last row's input is element 2.2e9 too.
    auto* product = reinterpret_cast<bf16*>(x);
    silu_mul(y, product, n_rows, dim / 2, nullptr);
    silu_mul(right.data(), on_bf16.data(), 1, dim / 2, nullptr);
    std::vector<bf16> a(at(dim / 2)), b(at(dim / 2));
    check(cudaMemcpy(a.data(), product + (n_rows - 1) * dim / 2, a.size() * 2, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(cudaMemcpy(b.data(), on_bf16.data(), b.size() * 2, cudaMemcpyDeviceToHost), "cudaMemcpy");
    CHECK(to_floats(a) == to_floats(b));
  } else {
    cudaGetLastError();
    MESSAGE("skipped: the device has no 14 GB free");
  }
  cudaFree(x);
  cudaFree(y);
}

TEST_CASE("CUDA row kernels refuse by name what they do not do") {
  CHECK_THROWS_WITH_AS(rms_norm(nullptr, nullptr, nullptr, 1, 12, 0.0F, nullptr), doctest::Contains("12 elements"),
                       Error);
  CHECK_THROWS_WITH_AS(silu_mul(nullptr, nullptr, 1, 4, nullptr), doctest::Contains("multiple of 8"), Error);
  RopeKv a;
  a.kv.head_dim = 258;
  CHECK_THROWS_WITH_AS(rope_kv(a, nullptr), doctest::Contains("head_dim 258"), Error);
  a.kv = {nullptr, DType::q8_0, 1, 1, 64};
  CHECK_THROWS_WITH_AS(rope_kv(a, nullptr), doctest::Contains("q8_0"), Error);
}
