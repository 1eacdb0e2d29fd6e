#include "banyan/calibrate.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>

#include "kernels/ops.hpp"

namespace banyan {
namespace {

// Memory of a backend, full of random numbers.
class RandomTensor {
 public:
  RandomTensor(kernels::Backend& backend, DType type, std::int64_t n, std::uint64_t seed)
      : backend_(backend), data_(backend.allocate(dtype_bytes(type, n))) {
    backend.fill_random(data_, type, n, seed);
  }
  ~RandomTensor() { backend_.release(data_); }
  RandomTensor(const RandomTensor&) = delete;
  RandomTensor& operator=(const RandomTensor&) = delete;
  void* data() const { return data_; }

 private:
  kernels::Backend& backend_;
  void* data_;
};

// Rows that each read `n_private` keys of their own behind `n_shared` keys that all read.
class Workload {
 public:
  Workload(kernels::Backend& backend, const AttentionShape& shape, DType kv_type, std::int64_t n_rows,
           std::int64_t n_shared, std::int64_t n_private)
      : backend_(backend),
        q_(backend, backend.activation_type(), n_rows * shape.n_heads_q * shape.head_dim, 1),
        o_(backend, backend.activation_type(), n_rows * shape.n_heads_q * shape.head_dim, 2),
        kv_(backend, kv_type, 2 * shape.n_heads_kv * (n_shared + n_rows * n_private) * shape.head_dim, 3) {
    if (n_shared > 0) add_call(0, n_shared, 0, 0, n_rows);
    for (std::int64_t r = 0; r < n_rows && n_private > 0; ++r) {
      add_call(n_shared + r * n_private, n_private, n_shared, r, r + 1);
    }
    positions_.assign(static_cast<std::size_t>(n_rows), static_cast<std::int32_t>(n_shared + n_private - 1));
    args_ = {.q = q_.data(),
             .o = o_.data(),
             .n_heads_q = shape.n_heads_q,
             .kv = {kv_.data(), kv_type, n_shared + n_rows * n_private, shape.n_heads_kv, shape.head_dim},
             .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim))};
  }
  // Of one layer's attention, where a step has many: the arrays of the step are given once.
  double median_us(int n_times) {
    constexpr int kLayers = 4;
    backend_.begin_step({.n_rows = std::ssize(positions_),
                         .positions = positions_,
                         .runs = runs_,
                         .calls = calls_,
                         .n_heads_q = args_.n_heads_q,
                         .n_heads_kv = args_.kv.n_heads_kv});
    std::vector<double> times;
    for (int i = 0; i <= n_times; ++i) {  // the first is a warm-up
      backend_.synchronize();
      const auto begin = std::chrono::steady_clock::now();
      for (int layer = 0; layer < kLayers; ++layer) backend_.attention(args_);
      backend_.synchronize();
      const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
      if (i > 0) times.push_back(us / kLayers);
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
  RandomTensor q_, o_, kv_;
  std::vector<std::int32_t> positions_;
  std::vector<SlotRun> runs_;
  std::vector<AttentionCall> calls_;
  kernels::AttentionArgs args_;
};

}  // namespace

CostModel calibrate(const AttentionShape& shape, DType kv_type, const LoadOptions& options) {
  const bool on_cuda =
      options.device == Device::cuda || (options.device == Device::automatic && kernels::n_cuda_devices() > 0);
  const kernels::BackendOptions backend_options{.n_threads = options.n_threads, .device_index = options.device_index};
  const auto backend =
      on_cuda ? kernels::make_cuda_backend(backend_options) : kernels::make_cpu_backend(backend_options);
  constexpr std::int64_t kCalls = 2048, kLongRows = 16, kLong = 8192, kRows = 128, kShared = 2048;
  const double bytes_per_key = static_cast<double>(2 * shape.n_heads_kv * shape.head_dim * shape.kv_bytes);
  const double flops_per_key = static_cast<double>(4 * shape.n_heads_q * shape.head_dim);
  CostModel model;
  model.machine = backend->describe() + "; attention of " + std::to_string(shape.n_heads_q) + " query heads, " +
                  std::to_string(shape.n_heads_kv) + " KV heads, " + std::to_string(shape.head_dim) +
                  " elements each, KV in " + std::string(to_string(kv_type));
  model.call_us = Workload(*backend, shape, kv_type, kCalls, 0, 1).median_us(9) / kCalls;
  model.bytes_per_us = static_cast<double>(kLongRows * kLong) * bytes_per_key /
                       Workload(*backend, shape, kv_type, kLongRows, 0, kLong).median_us(9);
  model.flops_per_us = static_cast<double>(kRows * kShared) * flops_per_key /
                       Workload(*backend, shape, kv_type, kRows, kShared, 0).median_us(9);
  return model;
}

}  // namespace banyan
