// Matrix products: bf16 operands, f32 sums; of one to four rows by few_rows.hpp, else through cuBLASLt. Knows weights
// and rows, no model.
//
// An algorithm is picked once for each shape: the number of rows falls into a bucket, the likeliest candidates for it
// are timed on scratch memory, and the fastest is kept. Deterministic products never split the inner dimension, and use
// one algorithm per weight shape whatever the number of rows, so a row's bits do not depend on its company.
#pragma once

#include <cstdint>
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <map>
#include <tuple>

#include "kernels/cuda/device.hpp"
#include "kernels/ops.hpp"

namespace banyan::kernels::cuda {

// W [n_out, n_in], bf16, row-major, in device memory.
struct DeviceMatrix final : Matrix {
  DeviceMatrix(std::int64_t n_out, std::int64_t n_in);
  ~DeviceMatrix() override { cudaFree(data); }
  void* data = nullptr;
};

class Products {
 public:
  Products(cudaStream_t stream, bool deterministic);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // y[r] = (accumulate ? y[r] : 0) + W x[r], y f32 or bf16 ([n_rows, n_out]), x bf16 ([n_rows, n_in]).
  void run(const DeviceMatrix& w, const void* x, void* y, DType y_type, std::int64_t n_rows, bool accumulate);

 private:
  struct Shape {
    std::int64_t n_out, n_in, n_rows;
    DType y_type;
    bool accumulate;
    auto operator<=>(const Shape&) const = default;
  };
  struct Call;
  const cublasLtMatmulAlgo_t& algorithm(const Shape& bucket);
  cublasLtMatmulAlgo_t pick(const Shape& bucket);

  cudaStream_t stream_;
  bool deterministic_;
  cublasLtHandle_t handle_ = nullptr;
  DeviceScratch workspace_, trial_;
  std::map<Shape, cublasLtMatmulAlgo_t> algorithms_;
};

}  // namespace banyan::kernels::cuda
