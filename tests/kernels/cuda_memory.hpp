// Vectors of floats in a CUDA backend's memory and back, for tests.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.hpp"

namespace banyan::kernels {

class OnDevice {
 public:
  OnDevice(Backend& backend, DType type, std::int64_t n)
      : backend_(backend), type_(type), n_(n), data_(backend.allocate(dtype_bytes(type, n))) {}
  OnDevice(Backend& backend, DType type, const std::vector<float>& values)
      : OnDevice(backend, type, static_cast<std::int64_t>(values.size())) {
    write(values);
  }
  ~OnDevice() { backend_.release(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  void write(const std::vector<float>& values) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(dtype_bytes(type_, n_)));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (type_ == DType::f32) reinterpret_cast<float*>(bytes.data())[i] = values[i];
      if (type_ == DType::bf16) reinterpret_cast<bf16*>(bytes.data())[i] = to_bf16(values[i]);
      if (type_ == DType::f16) reinterpret_cast<f16*>(bytes.data())[i] = to_f16(values[i]);
    }
    backend_.upload(data_, bytes.data(), static_cast<std::int64_t>(bytes.size()));
  }
  std::vector<float> read() const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(dtype_bytes(type_, n_)));
    backend_.download(bytes.data(), data_, static_cast<std::int64_t>(bytes.size()));
    std::vector<float> values(static_cast<std::size_t>(n_));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (type_ == DType::f32) values[i] = reinterpret_cast<const float*>(bytes.data())[i];
      if (type_ == DType::bf16) values[i] = to_float(reinterpret_cast<const bf16*>(bytes.data())[i]);
      if (type_ == DType::f16) values[i] = to_float(reinterpret_cast<const f16*>(bytes.data())[i]);
    }
    return values;
  }
  void* data() const { return data_; }
  float* f32() const { return static_cast<float*>(data_); }

 private:
  Backend& backend_;
  DType type_;
  std::int64_t n_;
  void* data_;
};

// Each value rounded to the type, as the device holds it.
inline std::vector<float> rounded(std::vector<float> values, DType type) {
  for (float& x : values) {
    if (type == DType::bf16) x = to_float(to_bf16(x));
    if (type == DType::f16) x = to_float(to_f16(x));
  }
  return values;
}

}  // namespace banyan::kernels
