// A backend that passes everything on to another one: for tests that change one operation.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "kernels/ops.hpp"

namespace banyan::kernels {

class WrappedBackend : public Backend {
 public:
  explicit WrappedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  std::string describe() const override { return inner_->describe(); }
  DType activation_type() const override { return inner_->activation_type(); }
  void* allocate(std::int64_t bytes) override { return inner_->allocate(bytes); }
  void release(void* p) noexcept override { inner_->release(p); }
  std::int64_t free_bytes() const override { return inner_->free_bytes(); }
  void upload(void* dst, const void* host, std::int64_t bytes) override { inner_->upload(dst, host, bytes); }
  void download(void* host, const void* src, std::int64_t bytes) override { inner_->download(host, src, bytes); }
  void copy(void* dst, const void* src, std::int64_t bytes) override { inner_->copy(dst, src, bytes); }
  void fill_random(void* dst, DType type, std::int64_t n, std::uint64_t seed) override {
    inner_->fill_random(dst, type, n, seed);
  }
  void synchronize() override { inner_->synchronize(); }
  std::unique_ptr<Matrix> pack(std::int64_t n_out, std::int64_t n_in, DType type, const RowSource& rows) override {
    return inner_->pack(n_out, n_in, type, rows);
  }
  void begin_step(const StepArrays& step) override { inner_->begin_step(step); }
  void matmul(const Matrix& w, const void* x, void* y, std::int64_t n_rows, const float* bias) override {
    inner_->matmul(w, x, y, n_rows, bias);
  }
  void matmul_f32(const Matrix& w, const void* x, float* y, std::int64_t n_rows, const float* bias,
                  bool accumulate) override {
    inner_->matmul_f32(w, x, y, n_rows, bias, accumulate);
  }
  void embed(const Matrix& table, float* x) override { inner_->embed(table, x); }
  void rms_norm(const float* x, const float* w, void* y, std::int64_t n_rows, std::int64_t dim, float eps) override {
    inner_->rms_norm(x, w, y, n_rows, dim, eps);
  }
  void rope_kv(const RopeKvArgs& args) override { inner_->rope_kv(args); }
  void attention(const AttentionArgs& args) override { inner_->attention(args); }
  void silu_mul(const void* gate_up, void* y, std::int64_t n_rows, std::int64_t dim) override {
    inner_->silu_mul(gate_up, y, n_rows, dim);
  }
  void gather_logit_rows(const float* x, float* dst, std::int64_t dim) override {
    inner_->gather_logit_rows(x, dst, dim);
  }

 private:
  std::unique_ptr<Backend> inner_;
};

}  // namespace banyan::kernels
