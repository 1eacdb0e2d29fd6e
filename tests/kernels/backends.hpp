// The CPU backends that this machine can run, for tests that hold for each of them.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/fast.hpp"
#include "kernels/cpu/reference.hpp"
#include "kernels/ops.hpp"

namespace banyan::kernels {

inline std::vector<std::unique_ptr<Backend>> fast_backends(int n_threads) {
  std::vector<std::unique_ptr<Backend>> backends;
  for (const IsaOps* isa : supported_isas()) backends.push_back(make_fast_backend(*isa, n_threads));
  return backends;
}

inline std::vector<std::unique_ptr<Backend>> all_backends(int n_threads) {
  auto backends = fast_backends(n_threads);
  backends.push_back(make_reference_backend());
  return backends;
}

inline std::vector<float> random_floats(std::int64_t n, std::mt19937& rng, float deviation = 1.0F) {
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& v : x) v = normal(rng);
  return x;
}

// Rows in memory, as a source to pack from.
struct MemoryRows final : Backend::RowSource {
  const std::vector<float>& values;
  std::int64_t n_in;
  MemoryRows(const std::vector<float>& v, std::int64_t n) : values(v), n_in(n) {}
  void fill(std::int64_t begin, std::int64_t end, float* dst) const override {
    std::copy(values.begin() + begin * n_in, values.begin() + end * n_in, dst);
  }
};

}  // namespace banyan::kernels
