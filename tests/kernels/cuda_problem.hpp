// For GPU tests of kernels: arrays on the device, and one attention problem given to either CUDA kernel.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <span>
#include <vector>

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/work_items.hpp"
#include "tests/kernels/forest.hpp"

namespace banyan::kernels::cuda {

template <class T>
class DeviceArray {
 public:
  // All bits set: NaN in every floating-point type, so that what no kernel wrote shows.
  explicit DeviceArray(std::int64_t n) : n_(n) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), bytes()), "cudaMalloc");
    check(cudaMemset(data_, 0xff, bytes()), "cudaMemset");
  }
  explicit DeviceArray(std::span<const T> values) : DeviceArray(std::ssize(values)) {
    check(cudaMemcpy(data_, values.data(), values.size_bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> download(std::int64_t begin, std::int64_t n) const {
    std::vector<T> values(static_cast<std::size_t>(n));
    check(cudaMemcpy(values.data(), data_ + begin, values.size() * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
  }
  std::vector<T> download() const { return download(0, n_); }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(std::max<std::int64_t>(1, n_)) * sizeof(T); }
  T* data_ = nullptr;
  std::int64_t n_;
};

inline std::vector<bf16> to_bf16(const std::vector<float>& x) {
  std::vector<bf16> y;
  y.reserve(x.size());
  for (const float v : x) y.push_back(banyan::to_bf16(v));
  return y;
}

// Attention of one layer, in host memory. Queries have values of bf16.
struct Problem {
  std::vector<float> q;  // [n_rows, n_heads_q, head_dim]
  std::vector<std::int32_t> positions;
  std::int64_t n_heads_q = 1, n_heads_kv = 1, head_dim = 64, n_slots = 0;
  DType type = DType::bf16;
  std::vector<std::byte> kv;
  Calls calls;
  float scale = 0.25F;
  std::vector<float> kv_scales;  // of f8_e4m3

  std::int64_t n_rows() const { return std::ssize(positions); }
};

struct Result {
  AttentionResult f32;
  std::vector<bf16> o_bf16;
  WorkItems work;
};

inline Problem problem_of(const Forest& f, const Calls& calls) {
  Problem p{f.q,   f.positions, f.shape.n_heads_q, f.shape.n_heads_kv, f.shape.head_dim, f.n_slots, f.shape.type, f.kv,
            calls, f.scale(),   f.scales};
  return p;
}

// A Forest whose queries are what the device gets.
inline Forest rounded_forest(const Forest::Shape& shape, std::mt19937& rng) {
  Forest f(shape, rng);
  for (float& x : f.q) x = to_float(banyan::to_bf16(x));
  return f;
}

// The problem's arrays on the device, and the kernels on them. Outputs and scratch memory are poisoned before each run.
class ProblemOnDevice {
 public:
  // `p` must outlive this. kv: device memory with the problem's keys and values; null: a copy of p.kv.
  explicit ProblemOnDevice(const Problem& p, std::byte* kv = nullptr)
      : p_(p),
        q_(to_bf16(p.q)),
        own_kv_(kv == nullptr ? std::span<const std::byte>(p.kv) : std::span<const std::byte>()),
        positions_(p.positions),
        runs_(p.calls.runs),
        calls_(p.calls.calls),
        tickets_(std::vector<std::uint32_t>(kTileKinds, 0)),
        kv_scales_(p.kv_scales),
        kv_(kv == nullptr ? own_kv_.data() : kv) {}

  Result generic() const {
    return run([&](const AttentionTensors& t, Result&) {
      attention_generic(t, {positions_.data(), runs_.data(), calls_.data(), std::ssize(p_.calls.calls)}, nullptr);
    });
  }

  Result tiles(bool deterministic, int n_sms = 132, bool warpgroup = has_warpgroup_tiles()) const {
    const TensorShape shape{p_.n_heads_q, p_.n_heads_kv, p_.head_dim, p_.type};
    const TileAttention attention(shape);
    return run([&](const AttentionTensors& t, Result& r) {
      r.work.build(p_.positions, p_.calls.runs, p_.calls.calls,
                   {p_.n_heads_q, p_.n_heads_kv, deterministic, n_sms, warpgroup});
      const DeviceArray<WorkHeader> header(std::span(&r.work.header(), 1));
      const DeviceArray<WorkItem> items(r.work.items());
      const DeviceArray<RowInfo> rows(r.work.rows());
      const DeviceArray<MergeRow> merge_rows(r.work.merge_rows());
      const DeviceArray<float> partial_o(partial_o_bytes(r.work.n_partials(), shape) / 4);
      const DeviceArray<float> partial_state(partial_state_bytes(r.work.n_partials(), shape) / 4);
      attention.launch(t, {header.data(), items.data(), rows.data(), merge_rows.data(), runs_.data()},
                       {partial_o.data(), partial_state.data(), tickets_.data()}, launches_of(r.work), nullptr);
      check(cudaDeviceSynchronize(), "attention");
      for (const std::uint32_t ticket : tickets_.download()) CHECK(ticket == 0);
    });
  }

 private:
  template <class Launch>
  Result run(const Launch& launch) const {
    Result r;
    const std::int64_t n_lse = p_.n_rows() * p_.n_heads_q, n_o = n_lse * p_.head_dim;
    const DeviceArray<float> o(n_o), lse(n_lse);
    const DeviceArray<bf16> o_bf16(n_o);
    AttentionTensors t{.q = q_.data(),
                       .o = o.data(),
                       .o_type = DType::f32,
                       .lse = lse.data(),
                       .n_rows = p_.n_rows(),
                       .n_heads_q = p_.n_heads_q,
                       .kv = {kv_, p_.type, p_.n_slots, p_.n_heads_kv, p_.head_dim, kv_scales_.data()},
                       .scale = p_.scale};
    launch(t, r);
    t.o = o_bf16.data();
    t.o_type = DType::bf16;
    t.lse = nullptr;
    launch(t, r);
    check(cudaDeviceSynchronize(), "attention");
    r.f32 = {o.download(), lse.download()};
    r.o_bf16 = o_bf16.download();
    return r;
  }

  const Problem& p_;
  DeviceArray<bf16> q_;
  DeviceArray<std::byte> own_kv_;
  DeviceArray<std::int32_t> positions_;
  DeviceArray<SlotRun> runs_;
  DeviceArray<AttentionCall> calls_;
  DeviceArray<std::uint32_t> tickets_;
  DeviceArray<float> kv_scales_;
  std::byte* kv_;
};

}  // namespace banyan::kernels::cuda
