// The device sampler: time of its kernel beside the time to read the logits once at the copy rate measured in the same
// run, and of a whole submission (queries up, kernel, choices down) as the host sees it. Median of launches. Two kinds
// of rows: "peaked" as language models make them (few likely tokens over a low background) and "broad" (normal, sigma
// 2), where top-p 0.95 keeps thousands. Launches walk through 1 GB of logits, so none finds its rows in the L2 cache.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device_sampler.hpp"
#include "kernels/cuda/sample.hpp"

namespace {

using namespace banyan;
using namespace banyan::kernels::cuda;

constexpr std::int64_t kPoolFloats = std::int64_t{256} << 20;
constexpr int kRepeats = 20;

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + std::ssize(v) / 2, v.end());
  return v[v.size() / 2];
}

// A block of random logits, again and again.
void fill_pool(float* pool, bool peaked) {
  std::vector<float> block(std::size_t{1} << 23);
  std::mt19937 rng(1);
  std::normal_distribution<float> background(0.0F, 2.0F);
  std::exponential_distribution<float> peak(0.4F);
  for (float& x : block) x = peaked && rng() % 500 == 0 ? 8.0F + peak(rng) : background(rng);
  for (std::int64_t i = 0; i < kPoolFloats; i += std::ssize(block)) {
    check(cudaMemcpy(pool + i, block.data(), block.size() * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
}

// Microseconds of what `launch(i)` puts on the stream, one by one.
template <class Launch>
double device_us(cudaStream_t stream, const Launch& launch) {
  const Event begin(cudaEventDefault), end(cudaEventDefault);
  std::vector<double> us;
  for (int i = 0; i < kRepeats + 2; ++i) {
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    launch(i);
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i >= 2) us.push_back(1e3 * static_cast<double>(ms));
  }
  return median(us);
}

struct Mode {
  const char* name;
  SampleQuery query;
};

std::vector<Mode> modes() {
  std::vector<Mode> all{{"greedy", {}},
                        {"T=1", {}},
                        {"T=0.8", {}},
                        {"T=0.8 top-p 0.95", {}},
                        {"top-k 50", {}},
                        {"T=0.8 top-k 50 top-p 0.95 min-p 0.02", {}},
                        {"T=1, 20 likeliest", {}},
                        {"log-probability", {}}};
  all[0].query.temperature = 0;
  all[2].query.temperature = 0.8;
  all[3].query.temperature = 0.8;
  all[3].query.top_p = 0.95;
  all[4].query.top_k = 50;
  all[5].query = all[3].query;
  all[5].query.top_k = 50;
  all[5].query.min_p = 0.02;
  all[6].query.n_top = 20;
  all[7].query.kind = RowQuery::logprob;
  all[7].query.target = 3;
  return all;
}

class Bench {
 public:
  Bench() {
    memory_.reserve_bytes(kPoolFloats * static_cast<std::int64_t>(sizeof(float)));
    other_.reserve_bytes(memory_.bytes());
    check(cudaMemset(memory_.data(), 1, static_cast<std::size_t>(memory_.bytes())), "cudaMemset");
    const double us = device_us(stream_, [&](int) {
      check(cudaMemcpyAsync(other_.data(), memory_.data(), static_cast<std::size_t>(memory_.bytes()),
                            cudaMemcpyDeviceToDevice, stream_),
            "cudaMemcpyAsync");
    });
    copy_bytes_per_us_ = 2 * static_cast<double>(memory_.bytes()) / us;
    std::printf("copy rate: %.2f TB/s\n%-8s %-7s %-6s %-38s %10s %10s %8s %12s\n", copy_bytes_per_us_ / 1e6, "vocab",
                "kind", "rows", "options", "kernel_us", "floor_us", "x floor", "submit_us");
  }

  void fill(bool peaked) {
    peaked_ = peaked;
    fill_pool(pool(), peaked);
  }

  void measure(const Mode& mode, std::int64_t vocab_size, std::int64_t n_rows) {
    const std::int64_t n_sets = std::max<std::int64_t>(1, kPoolFloats / (vocab_size * n_rows));
    const auto set = [&](int i) { return pool() + i % n_sets * vocab_size * n_rows; };
    std::vector<SampleQuery> queries(static_cast<std::size_t>(n_rows), mode.query);
    for (std::size_t i = 0; i < queries.size(); ++i) {
      queries[i].row = static_cast<std::int32_t>(i);
      queries[i].sample = i;
    }
    const double kernel_us = measure_kernel(queries, vocab_size, set);
    const double floor_us = 4 * static_cast<double>(vocab_size * n_rows) / copy_bytes_per_us_;
    std::printf("%-8lld %-7s %-6lld %-38s %10.1f %10.1f %8.2f %12.1f\n", static_cast<long long>(vocab_size),
                peaked_ ? "peaked" : "broad", static_cast<long long>(n_rows), mode.name, kernel_us, floor_us,
                kernel_us / floor_us, measure_submission(queries, vocab_size, set));
  }

 private:
  float* pool() const { return static_cast<float*>(memory_.data()); }

  template <class Set>
  double measure_kernel(const std::vector<SampleQuery>& queries, std::int64_t vocab_size, const Set& set) {
    std::vector<RowQuery> rows;
    for (const SampleQuery& q : queries) {
      rows.push_back(to_row_query(q, vocab_size));
      rows.back().top_begin = std::ssize(rows) * q.n_top - q.n_top;
    }
    const auto n = std::ssize(rows);
    int n_multiprocessors = 0;
    check(cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
    DeviceScratch on_device, choices, tops;
    on_device.reserve_bytes(n * static_cast<std::int64_t>(sizeof(RowQuery)));
    choices.reserve_bytes(n * static_cast<std::int64_t>(sizeof(RowChoice)));
    tops.reserve_bytes(n * std::max<std::int64_t>(1, queries[0].n_top) * static_cast<std::int64_t>(sizeof(RowTop)));
    check(cudaMemcpy(on_device.data(), rows.data(), rows.size() * sizeof(RowQuery), cudaMemcpyHostToDevice),
          "cudaMemcpy");
    return device_us(stream_, [&](int i) {
      launch_sample({.logits = set(i),
                     .row_stride = vocab_size,
                     .vocab_size = static_cast<std::int32_t>(vocab_size),
                     .n_queries = static_cast<std::int32_t>(n),
                     .queries = static_cast<const RowQuery*>(on_device.data()),
                     .choices = static_cast<RowChoice*>(choices.data()),
                     .tops = static_cast<RowTop*>(tops.data())},
                    n_multiprocessors, stream_);
    });
  }

  template <class Set>
  double measure_submission(const std::vector<SampleQuery>& queries, std::int64_t vocab_size, const Set& set) {
    DeviceSampler sampler(vocab_size);
    std::vector<SampleResult> results(queries.size());
    std::vector<double> us;
    for (int i = 0; i < kRepeats + 2; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      sampler.submit(set(i), vocab_size, std::ssize(queries), queries, stream_);
      sampler.harvest(results);
      const std::chrono::duration<double, std::micro> t = std::chrono::steady_clock::now() - begin;
      if (i >= 2) us.push_back(t.count());
    }
    return median(us);
  }

  Stream stream_;
  DeviceScratch memory_, other_;
  double copy_bytes_per_us_ = 0;
  bool peaked_ = false;
};

}  // namespace

int main() {
  Bench bench;
  for (const bool peaked : {true, false}) {
    bench.fill(peaked);
    for (const std::int64_t vocab_size : {32'000, 128'256, 262'144}) {
      for (const std::int64_t n_rows : {1, 64, 1024, 8192}) {
        if (vocab_size * n_rows > kPoolFloats) continue;
        for (const Mode& mode : modes()) bench.measure(mode, vocab_size, n_rows);
      }
    }
  }
  return EXIT_SUCCESS;
}
