#include "banyan/calibrate.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <string>

#include "kernels/ops.hpp"

namespace banyan {
namespace {

// Rows that each read `n_private` keys of their own behind `n_shared` keys that all read.
class Workload {
 public:
  Workload(kernels::Backend& backend, const AttentionShape& shape, DType kv_type, std::int64_t n_rows,
           std::int64_t n_shared, std::int64_t n_private)
      : backend_(backend) {
    const std::int64_t n_slots = n_shared + n_rows * n_private;
    const std::int64_t n_kv = 2 * shape.n_heads_kv * n_slots * shape.head_dim;
    q_.resize(static_cast<std::size_t>(n_rows * shape.n_heads_q * shape.head_dim));
    o_.resize(q_.size());
    kv_ = backend.allocate(dtype_bytes(kv_type, n_kv));
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    for (float& x : q_) x = normal(rng);
    // A short random stretch, repeated: values do not matter to the time, only that they are no zeros.
    std::vector<float> stretch(4099);
    for (float& x : stretch) x = normal(rng);
    for (std::int64_t i = 0; i < n_kv; ++i) {
      const float x = stretch[static_cast<std::size_t>(i % 4099)];
      if (kv_type == DType::f32) static_cast<float*>(kv_)[i] = x;
      if (kv_type == DType::bf16) static_cast<bf16*>(kv_)[i] = to_bf16(x);
      if (kv_type == DType::f16) static_cast<f16*>(kv_)[i] = to_f16(x);
    }
    if (n_shared > 0) add_call(0, n_shared, 0, 0, n_rows);
    for (std::int64_t r = 0; r < n_rows && n_private > 0; ++r)
      add_call(n_shared + r * n_private, n_private, n_shared, r, r + 1);
    positions_.assign(static_cast<std::size_t>(n_rows), static_cast<std::int32_t>(n_shared + n_private - 1));
    args_ = {.q = q_.data(),
             .o = o_.data(),
             .n_heads_q = shape.n_heads_q,
             .kv = {kv_, kv_type, n_slots, shape.n_heads_kv, shape.head_dim},
             .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim))};
  }
  ~Workload() { backend_.release(kv_); }
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  double median_us(int n_times) {
    std::vector<double> times;
    for (int i = 0; i <= n_times; ++i) {  // the first is a warm-up
      const auto begin = std::chrono::steady_clock::now();
      backend_.begin_step({.n_rows = std::ssize(positions_),
                           .positions = positions_,
                           .runs = runs_,
                           .calls = calls_,
                           .n_heads_q = args_.n_heads_q,
                           .n_heads_kv = args_.kv.n_heads_kv});
      backend_.attention(args_);
      backend_.synchronize();
      const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
      if (i > 0) times.push_back(us);
    }
    std::nth_element(times.begin(), times.begin() + n_times / 2, times.end());
    return times[static_cast<std::size_t>(n_times / 2)];
  }

 private:
  void add_call(std::int64_t first, std::int64_t n, std::int64_t position, std::int64_t row_begin,
                std::int64_t row_end) {
    runs_.push_back({first, n});
    const auto i = static_cast<std::int64_t>(runs_.size());
    calls_.push_back({i - 1, i, n, position, row_begin, row_end});
  }

  kernels::Backend& backend_;
  void* kv_ = nullptr;
  std::vector<float> q_, o_;
  std::vector<std::int32_t> positions_;
  std::vector<SlotRun> runs_;
  std::vector<AttentionCall> calls_;
  kernels::AttentionArgs args_;
};

}  // namespace

CostModel calibrate(const AttentionShape& shape, DType kv_type, int n_threads) {
  kernels::BackendOptions options;
  options.n_threads = n_threads;
  const auto backend = kernels::make_cpu_backend(options);
  constexpr std::int64_t kCalls = 2048, kLongRows = 16, kLong = 8192, kRows = 128, kShared = 2048;
  const double bytes_per_key = static_cast<double>(2 * shape.n_heads_kv * shape.head_dim * shape.kv_bytes);
  const double flops_per_key = static_cast<double>(4 * shape.n_heads_q * shape.head_dim);
  CostModel model;
  model.machine = backend->describe();
  model.call_us = Workload(*backend, shape, kv_type, kCalls, 0, 1).median_us(9) / kCalls;
  model.bytes_per_us = static_cast<double>(kLongRows * kLong) * bytes_per_key /
                       Workload(*backend, shape, kv_type, kLongRows, 0, kLong).median_us(9);
  model.flops_per_us = static_cast<double>(kRows * kShared) * flops_per_key /
                       Workload(*backend, shape, kv_type, kRows, kShared, 0).median_us(9);
  return model;
}

}  // namespace banyan
