// Times of the CPU kernels on SmolLM2-135M's shapes, beside what the machine can do. Prints a table.
//
// Weights are cold, as in a decoding step: each product uses the next of a ring of matrices larger than the caches.
// Medians. With one thread (second argument) the time is the process's own CPU time, which the machine's other work
// disturbs less than the clock on the wall. The machine's own peak is measured by a loop of independent multiply-adds
// through the same product kernel on operands that stay in the level 1 cache.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/isa.hpp"
#include "kernels/ops.hpp"

using namespace banyan;
using namespace banyan::kernels;

namespace {

bool use_cpu_time = false;

double now_s() {
  if (use_cpu_time) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Timing {
  double median_s = 0, fastest_s = 0;
};
template <class F>
Timing time_of(F&& f, double budget_s = 0.1) {
  f(0);
  std::vector<double> times;
  const double end = now_s() + budget_s;
  for (int i = 1; i < 1000 && (i < 6 || now_s() < end); ++i) {
    const double t = now_s();
    f(i);
    times.push_back(now_s() - t);
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front()};
}

std::vector<float> random_floats(std::int64_t n, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& v : x) v = normal(rng);
  return x;
}

struct ConstantRows final : Backend::RowSource {
  std::vector<float> row;
  explicit ConstantRows(std::int64_t n_in) : row(random_floats(n_in, 1)) {}
  void fill(std::int64_t begin, std::int64_t end, float* dst) const override {
    for (std::int64_t r = begin; r < end; ++r, dst += row.size()) std::copy(row.begin(), row.end(), dst);
  }
};

void bench_peak(const IsaOps& isa) {
  constexpr std::int64_t k = 64, n = 64, rows = 6;
  std::vector<float> a(static_cast<std::size_t>(rows * k)), b(static_cast<std::size_t>(k * n)), c(rows * n);
  PanelProduct p{.a = a.data(),
                 .a_stride = k,
                 .b = b.data(),
                 .c = c.data(),
                 .c_stride = n,
                 .n_rows = rows,
                 .n_columns = n,
                 .k = k};
  for (const bool is_bf16 : {false, true}) {
    p.k = is_bf16 ? 2 * k : k;
    p.a_stride = p.k;
    const auto gemm = is_bf16 ? isa.gemm_bf16 : isa.gemm_f32;
    if (is_bf16 && isa.bf16_row_bytes != 2) continue;
    const Timing t = time_of([&](int) {
      for (int i = 0; i < 2000; ++i) gemm(p);
    });
    std::printf("%-12s %s, one thread, level 1 cache: %.0f GFLOP/s\n", std::string(isa.name).c_str(),
                is_bf16 ? "bf16" : "f32", 2e-9 * 2000 * rows * n * static_cast<double>(p.k) / t.fastest_s);
  }
}

void bench_matmul(Backend& backend, DType type) {
  constexpr std::int64_t kShapes[][2] = {{960, 576}, {576, 576}, {3072, 576}, {576, 1536}, {49152, 576}};
  constexpr std::int64_t kRing = 100'000'000;
  for (const auto& [n_out, n_in] : kShapes) {
    const ConstantRows rows(n_in);
    std::vector<std::unique_ptr<Matrix>> ring;
    for (std::int64_t bytes = 0; bytes < kRing; bytes += ring.back()->bytes)
      ring.push_back(backend.pack(n_out, n_in, type, rows));
    for (const std::int64_t n_rows : {1, 16, 64, 256}) {
      const auto x = random_floats(n_rows * n_in, 2);
      std::vector<float> y(static_cast<std::size_t>(n_rows * n_out));
      const Timing t = time_of([&](int i) {
        backend.matmul(*ring[static_cast<std::size_t>(i) % ring.size()], x.data(), y.data(), n_rows, nullptr);
      });
      const double flops = matmul_flops(n_rows, n_out, n_in);
      std::printf("matmul %-4s %5ld x %-5ld rows %3ld: %8.1f us, %5.0f GFLOP/s (best %5.0f), %4.0f GB/s of weights\n",
                  type == DType::f32 ? "f32" : "bf16", n_in, n_out, n_rows, t.median_s * 1e6, 1e-9 * flops / t.median_s,
                  1e-9 * flops / t.fastest_s, 1e-9 * static_cast<double>(ring[0]->bytes) / t.median_s);
    }
  }
}

// n_rows leaves below one prefix, each with a private suffix; a ring of layers keeps the KV cold.
void bench_attention(Backend& backend, DType type, std::int64_t n_rows, std::int64_t n_prefix, std::int64_t n_suffix) {
  constexpr std::int64_t n_heads_q = 9, n_heads_kv = 3, head_dim = 64, n_layers = 8;
  const std::int64_t n_slots = n_prefix + n_rows * n_suffix;
  const std::int64_t layer_bytes = dtype_bytes(type, 2 * n_heads_kv * n_slots * head_dim);
  void* kv = backend.allocate(layer_bytes * n_layers);
  std::memset(kv, 0, static_cast<std::size_t>(layer_bytes * n_layers));
  const auto q = random_floats(n_rows * n_heads_q * head_dim, 3);
  std::vector<float> o(q.size());
  const std::vector<std::int32_t> positions(static_cast<std::size_t>(n_rows),
                                            static_cast<std::int32_t>(n_prefix + n_suffix - 1));
  std::vector<SlotRun> runs{{0, n_prefix}};
  std::vector<AttentionCall> calls;
  if (n_prefix > 0) calls.push_back({0, 1, n_prefix, 0, 0, n_rows});
  for (std::int64_t r = 0; r < n_rows && n_suffix > 0; ++r) {
    runs.push_back({n_prefix + r * n_suffix, n_suffix});
    calls.push_back({r + 1, r + 2, n_suffix, n_prefix, r, r + 1});
  }
  backend.begin_step({.n_rows = n_rows,
                      .positions = positions,
                      .runs = runs,
                      .calls = calls,
                      .n_heads_q = n_heads_q,
                      .n_heads_kv = n_heads_kv,
                      .head_dim = head_dim});
  const Timing t = time_of([&](int i) {
    AttentionArgs a;
    a.q = q.data();
    a.o = o.data();
    a.n_heads_q = n_heads_q;
    a.kv = {static_cast<std::byte*>(kv) + i % n_layers * layer_bytes, type, n_slots, n_heads_kv, head_dim};
    a.scale = 0.125F;
    backend.attention(a);
  });
  const double flops = 4.0 * static_cast<double>(n_rows * n_heads_q * head_dim * (n_prefix + n_suffix));
  std::printf(
      "attention %-4s %3ld rows, %4ld shared + %3ld private keys: %7.1f us (best %7.1f), %5.0f GFLOP/s, %4.0f GB/s of "
      "KV\n",
      type == DType::f32 ? "f32" : "bf16", n_rows, n_prefix, n_suffix, t.median_s * 1e6, t.fastest_s * 1e6,
      1e-9 * flops / t.median_s, 1e-9 * static_cast<double>(layer_bytes) / t.median_s);
  backend.release(kv);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "all";
  const int n_threads = argc > 2 ? std::atoi(argv[2]) : 0;
  use_cpu_time = n_threads == 1;
  const auto backend = make_cpu_backend({.n_threads = n_threads});
  std::printf("%s\n", backend->describe().c_str());
  const bool all = what == "all";
  if (all || what == "peak") {
    for (const IsaOps* isa : supported_isas()) bench_peak(*isa);
  }
  if (all || what == "matmul") {
    for (const DType type : {DType::bf16, DType::f32}) bench_matmul(*backend, type);
  }
  if (all || what == "attention") {
    for (const DType type : {DType::bf16, DType::f32}) {
      bench_attention(*backend, type, 64, 1024, 64);
      bench_attention(*backend, type, 64, 1024, 0);
      bench_attention(*backend, type, 64, 0, 64);
      bench_attention(*backend, type, 1, 1024, 64);
    }
  }
  return 0;
}
