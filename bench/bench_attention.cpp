// Times of the CUDA attention kernels beside what the device can do. Prints a table, one line per shape:
//
//     us        median of a layer's attention as a step launches it: tiles of each kind, then the merge
//     floor     the larger of bytes (each key and value, query, output once) over the copy rate, which is measured, and
//               FLOPs over the matrix rate, which is an argument
//     parts     warpgroup, wide, middle and narrow tiles and the merge, each launched alone
//     plan      work items built on the host, once per step for all layers
//
// Between runs a buffer larger than the L2 cache is written. Keys, values and queries are random. Rows and heads picked
// from each result are compared with the generic kernel's.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/device.hpp"

using namespace banyan;
using namespace banyan::kernels;
using namespace banyan::kernels::cuda;

namespace {

constexpr std::int64_t kFlushBytes = 256 << 20;  // four times the H200's L2 cache

struct Level {
  std::int64_t n_nodes, n_tokens, most_tokens = 0;  // most_tokens: lengths vary evenly up to it
};
struct Shape {
  const char* name;
  std::int64_t n_heads_q, n_heads_kv, head_dim;
  std::vector<Level> levels;   // children are spread evenly; one row at the end of each node of the last
  std::int64_t n_prefill = 0;  // rows of one prompt behind the (single) node instead, causal among themselves
};

const std::vector<Shape> kShapes{
    {"13b root 16K x 1024 rows", 40, 40, 128, {{1, 16'384}, {1024, 0}}},
    {"8B root 16K x 1024 rows", 32, 8, 128, {{1, 16'384}, {1024, 0}}},
    {"13b 16K, 960 leaves of 64", 40, 40, 128, {{1, 16'384}, {960, 64}}},
    {"8B 8K, 512 leaves of 64", 32, 8, 128, {{1, 8192}, {512, 64}}},
    {"13b 1024 leaves of 64-128", 40, 40, 128, {{1024, 64, 128}}},
    {"8B 512 leaves of 512", 32, 8, 128, {{512, 512}}},
    {"7b APPS 2400, 120 x 600, 8", 32, 32, 128, {{1, 2400}, {120, 200, 1000}, {960, 128}}},
    {"8B 6 levels", 32, 8, 128, {{1, 256}, {16, 128}, {32, 64}, {64, 32}, {128, 32}, {1024, 32}}},
    {"yi-6b 128K x 64 rows", 32, 4, 128, {{1, 131'072}, {64, 64}}},
    {"8B 1 row, 1K", 32, 8, 128, {{1, 1024}}},
    {"8B 1 row, 16K", 32, 8, 128, {{1, 16'384}}},
    {"8B prefill 2048 behind 14K", 32, 8, 128, {{1, 14'336}}, 2048},
    {"smollm2 1K, 200 leaves of 64", 9, 3, 64, {{1, 1024}, {200, 64}}},
    {"256 dims 8K, 512 leaves of 64", 16, 8, 256, {{1, 8192}, {512, 64}}},
};

struct Tree {
  std::vector<std::int32_t> positions;
  std::vector<SlotRun> runs;
  std::vector<AttentionCall> calls;
  std::int64_t n_slots = 0;
  double n_visible = 0;  // (row, key) pairs

  explicit Tree(const Shape& s) : shape_(s) {
    for (std::int64_t i = 0; i < s.levels.front().n_nodes; ++i) grow(0, i, 0);
    for (const AttentionCall& call : calls) {
      for (std::int64_t r = call.row_begin; r < call.row_end; ++r) {
        const std::int64_t n = positions[static_cast<std::size_t>(r)] + std::int64_t{1} - call.kv_position;
        n_visible += static_cast<double>(std::clamp<std::int64_t>(n, 0, call.n_keys));
      }
    }
  }

 private:
  void grow(std::size_t level, std::int64_t node, std::int64_t position) {
    const Level& l = shape_.levels[level];
    const std::int64_t n_more = std::max<std::int64_t>(0, l.most_tokens - l.n_tokens);
    const std::int64_t n = l.n_tokens + (n_more == 0 ? 0 : node * 7919 % (n_more + 1));
    const std::size_t call = add_call(n, position);
    if (shape_.n_prefill > 0) {
      add_call(shape_.n_prefill, position + n);
      for (std::int64_t i = 0; i < shape_.n_prefill; ++i)
        positions.push_back(static_cast<std::int32_t>(position + n + i));
      calls.back().row_end = std::ssize(positions);
    } else if (level + 1 == shape_.levels.size()) {
      positions.push_back(static_cast<std::int32_t>(position + n - 1));
    } else {
      const std::int64_t below = shape_.levels[level + 1].n_nodes;
      for (std::int64_t c = node * below / l.n_nodes; c < (node + 1) * below / l.n_nodes; ++c)
        grow(level + 1, c, position + n);
    }
    calls[call].row_end = std::ssize(positions);
  }
  std::size_t add_call(std::int64_t n_keys, std::int64_t position) {
    const std::int64_t run = std::ssize(runs), row = std::ssize(positions);
    runs.push_back({n_slots, n_keys});
    calls.push_back({run, run + 1, n_keys, position, row, row});
    n_slots += n_keys;
    return calls.size() - 1;
  }
  const Shape& shape_;
};

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::int64_t n) {
    memory_.reserve_bytes(std::max<std::int64_t>(1, n) * static_cast<std::int64_t>(sizeof(T)));
  }
  explicit DeviceArray(std::span<const T> values) : DeviceArray(std::ssize(values)) {
    check(cudaMemcpy(data(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  T* data() const { return static_cast<T*>(memory_.data()); }

 private:
  DeviceScratch memory_;
};

// Random bf16, normal(0, 1): a block of them again and again.
void fill_random(bf16* values, std::int64_t n, std::uint32_t seed) {
  constexpr std::int64_t kBlock = (1 << 22) + 1013;
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<bf16> block(static_cast<std::size_t>(std::min(n, kBlock)));
  for (bf16& x : block) x = to_bf16(normal(rng));
  for (std::int64_t i = 0; i < n; i += std::ssize(block)) {
    const auto n_bytes = static_cast<std::size_t>(std::min<std::int64_t>(std::ssize(block), n - i)) * sizeof(bf16);
    check(cudaMemcpy(values + i, block.data(), n_bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
}

class Clock {
 public:
  explicit Clock(int n_repeats) : n_repeats_(n_repeats), flush_(kFlushBytes) {}

  // Median microseconds of what `launch` queues, on a cold L2 cache.
  template <class Launch>
  double us(const Launch& launch) {
    std::vector<float> ms;
    for (int i = 0; i < n_repeats_ + 3; ++i) {  // three to warm up
      check(cudaMemsetAsync(flush_.data(), i, kFlushBytes, stream_), "cudaMemsetAsync");
      check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
      launch(stream_);
      check(cudaEventRecord(end_, stream_), "cudaEventRecord");
      check(cudaEventSynchronize(end_), "attention");
      float elapsed = 0;
      check(cudaEventElapsedTime(&elapsed, begin_, end_), "cudaEventElapsedTime");
      if (i >= 3) ms.push_back(elapsed);
    }
    std::sort(ms.begin(), ms.end());
    return 1e3 * ms[ms.size() / 2];
  }

 private:
  int n_repeats_;
  Stream stream_;
  Event begin_{cudaEventDefault}, end_{cudaEventDefault};
  DeviceArray<std::byte> flush_;
};

double copy_bytes_per_us(Clock& clock) {
  const std::int64_t n = std::int64_t{4} << 30;
  const DeviceArray<std::byte> from(n), to(n);
  const double us = clock.us([&](cudaStream_t stream) {
    check(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(n), cudaMemcpyDeviceToDevice, stream),
          "copy");
  });
  return 2.0 * static_cast<double>(n) / us;
}

struct Bench {
  Clock& clock;
  double bytes_per_us, flops_per_us;

  void run(const Shape& s, bool deterministic) {
    const Tree tree(s);
    const TensorShape shape{s.n_heads_q, s.n_heads_kv, s.head_dim, DType::bf16};
    const TileAttention attention(shape);
    WorkItems work;
    const auto build = [&] {
      work.build(tree.positions, tree.runs, tree.calls,
                 {s.n_heads_q, s.n_heads_kv, deterministic, 132, has_warpgroup_tiles()});
    };
    std::vector<double> plan_us;
    for (int i = 0; i < 21; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      build();
      plan_us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    }
    std::sort(plan_us.begin(), plan_us.end());

    const std::int64_t n_rows = std::ssize(tree.positions), n_q = n_rows * s.n_heads_q * s.head_dim;
    const std::int64_t n_kv = 2 * s.n_heads_kv * tree.n_slots * s.head_dim;
    const DeviceArray<bf16> q(n_q), kv(n_kv), o(n_q);
    fill_random(q.data(), n_q, 1);
    fill_random(kv.data(), n_kv, 2);
    const DeviceArray<float> lse(n_rows * s.n_heads_q);
    const DeviceArray<WorkHeader> header(std::span(&work.header(), 1));
    const DeviceArray<WorkItem> items(work.items());
    const DeviceArray<RowInfo> rows(work.rows());
    const DeviceArray<MergeRow> merge_rows(work.merge_rows());
    const DeviceArray<std::int32_t> positions(std::span<const std::int32_t>(tree.positions));
    const DeviceArray<SlotRun> runs(std::span<const SlotRun>(tree.runs));
    const DeviceArray<AttentionCall> calls(std::span<const AttentionCall>(tree.calls));
    const DeviceArray<float> partial_o(partial_o_bytes(work.n_partials(), shape) / 4);
    const DeviceArray<float> partial_state(partial_state_bytes(work.n_partials(), shape) / 4);
    const std::vector<std::uint32_t> zeros(kTileKinds, 0);
    const DeviceArray<std::uint32_t> tickets{std::span<const std::uint32_t>(zeros)};

    AttentionTensors t{.q = q.data(),
                       .o = o.data(),
                       .o_type = DType::bf16,
                       .lse = lse.data(),
                       .n_rows = n_rows,
                       .n_heads_q = s.n_heads_q,
                       .kv = {kv.data(), DType::bf16, tree.n_slots, s.n_heads_kv, s.head_dim},
                       .scale = 1.0F / std::sqrt(static_cast<float>(s.head_dim))};
    const DeviceWork on_device{header.data(), items.data(), rows.data(), merge_rows.data(), runs.data()};
    const PartialMemory memory{partial_o.data(), partial_state.data(), tickets.data()};
    const auto time_of = [&](const LaunchSet& set) {
      return clock.us([&](cudaStream_t stream) { attention.launch(t, on_device, memory, set, stream); });
    };
    const LaunchSet all = launches_of(work);
    const double us = time_of(all);
    double parts[kTileKinds + 1] = {};
    for (int part = 0; part <= kTileKinds; ++part) {
      LaunchSet alone{.n_phases = all.n_phases, .n_merge_rows = part == kTileKinds ? all.n_merge_rows : 0};
      if (part < kTileKinds) alone.n_items[part] = all.n_items[part];
      if (alone.n_merge_rows > 0 || (part < kTileKinds && alone.n_items[part] > 0)) parts[part] = time_of(alone);
    }
    attention.launch(t, on_device, memory, all, nullptr);
    check(cudaDeviceSynchronize(), "attention");
    const double worst =
        worst_difference(t, {positions.data(), runs.data(), calls.data(), std::ssize(tree.calls)}, tree);

    const double flops = 4.0 * static_cast<double>(s.n_heads_q * s.head_dim) * tree.n_visible;
    const double bytes = 2.0 * static_cast<double>(n_kv + 2 * n_q);
    const double floor = std::max(bytes / bytes_per_us, flops / flops_per_us);
    std::printf(
        "%-30s %s %8.1f us %6.1f TFLOP/s %6.0f GB/s  floor %7.1f (%s) x %4.2f  | %7.1f %7.1f %6.1f %7.1f %6.1f | "
        "plan %5.0f us, %zu items, %d phases, %.0f MB of partials, off by %.1e\n",
        s.name, deterministic ? "det" : "   ", us, 1e-6 * flops / us, 1e-3 * bytes / us, floor,
        flops / flops_per_us > bytes / bytes_per_us ? "FLOP" : "byte", us / floor, parts[3], parts[2], parts[1],
        parts[0], parts[4], plan_us[plan_us.size() / 2], work.items().size(), work.n_phases(),
        1e-6 * static_cast<double>(partial_o_bytes(work.n_partials(), shape)), worst);
    std::fflush(stdout);
  }

  // Against the generic kernel, which is given a few rows as calls of their own.
  static double worst_difference(AttentionTensors t, DeviceCalls calls, const Tree& tree) {
    const std::int64_t n = t.n_heads_q * t.kv.head_dim;
    const DeviceArray<bf16> o(n * t.n_rows);
    std::vector<bf16> got(static_cast<std::size_t>(n)), right = got;
    auto* all = static_cast<bf16*>(t.o);
    t.o = o.data();
    t.lse = nullptr;
    double worst = 0;
    for (const std::int64_t row : {std::int64_t{0}, t.n_rows / 2, t.n_rows - 1}) {
      std::vector<AttentionCall> own;
      for (AttentionCall call : tree.calls) {
        if (row < call.row_begin || row >= call.row_end) continue;
        call.row_begin = 0;
        call.row_end = 1;
        own.push_back(call);
      }
      const DeviceArray<AttentionCall> on_device{std::span<const AttentionCall>(own)};
      AttentionTensors one = t;
      one.q = t.q + row * n;
      one.n_rows = 1;
      attention_generic(one, {calls.positions + row, calls.runs, on_device.data(), std::ssize(own)}, nullptr);
      check(cudaMemcpy(right.data(), o.data(), right.size() * sizeof(bf16), cudaMemcpyDeviceToHost), "cudaMemcpy");
      check(cudaMemcpy(got.data(), all + row * n, got.size() * sizeof(bf16), cudaMemcpyDeviceToHost), "cudaMemcpy");
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double difference = std::fabs(double{to_float(got[i])} - double{to_float(right[i])});
        worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
      }
    }
    return worst;
  }
};

}  // namespace

// bench_attention [PART-OF-A-NAME [MATRIX-TFLOP/S [REPEATS]]]
int main(int argc, char** argv) {
  const std::string filter = argc > 1 ? argv[1] : "";
  const double tflops = argc > 2 ? std::atof(argv[2]) : 790;
  const int n_repeats = argc > 3 ? std::atoi(argv[3]) : 20;
  if (n_devices() == 0) {
    std::puts("no CUDA device answers");
    return 1;
  }
  open_device(0);
  Clock clock(n_repeats);
  Bench bench{clock, copy_bytes_per_us(clock), 1e6 * tflops};
  std::printf("copy %.2f TB/s (measured), matrix %.0f TFLOP/s (given)\n", 1e-6 * bench.bytes_per_us, tflops);
  std::printf("%-34s time, against its floor | warpgroup, wide, middle, narrow, merge alone in us | plan\n", "shape");
  for (const bool deterministic : {false, true}) {
    for (const Shape& shape : kShapes) {
      if (std::string(shape.name).find(filter) != std::string::npos) bench.run(shape, deterministic);
    }
  }
  return 0;
}
