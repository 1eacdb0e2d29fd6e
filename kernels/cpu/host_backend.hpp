// What the CPU backends share: memory that is the host's own, and the arrays of the step, read in place.
#pragma once

#include <cstring>

#include "kernels/cpu/memory.hpp"
#include "kernels/ops.hpp"

namespace banyan::kernels {

class HostBackend : public Backend {
 public:
  DType activation_type() const final { return DType::f32; }
  void* allocate(std::int64_t bytes) final { return allocate_aligned(bytes); }
  void release(void* p) noexcept final { release_aligned(p); }
  void upload(void* dst, const void* host, std::int64_t bytes) final {
    std::memcpy(dst, host, static_cast<std::size_t>(bytes));
  }
  void download(void* host, const void* src, std::int64_t bytes) final {
    std::memcpy(host, src, static_cast<std::size_t>(bytes));
  }
  void copy(void* dst, const void* src, std::int64_t bytes) final { upload(dst, src, bytes); }
  std::int64_t free_bytes() const final { return free_host_bytes(); }
  void fill_random(void* dst, DType type, std::int64_t n, std::uint64_t seed) final;
  void synchronize() final {}

  void begin_step(const StepArrays& step) override { step_ = step; }
  void matmul(const Matrix& w, const void* x, void* y, std::int64_t n_rows, const float* bias) final {
    matmul_f32(w, x, static_cast<float*>(y), n_rows, bias, false);
  }

 protected:
  const StepArrays& step() const { return step_; }

 private:
  StepArrays step_;
};

}  // namespace banyan::kernels
