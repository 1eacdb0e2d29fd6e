// Matrix products: bf16 operands, f32 sums; of one to four rows by few_rows.hpp, else through cuBLASLt. Knows weights
// and rows, no model.
//
// An algorithm is picked once for each shape: the number of rows falls into a bucket, the likeliest candidates for it
// are timed on scratch memory, and the fastest is kept, also for later runs (algorithm_cache.hpp). Deterministic
// products never split the inner dimension, and use one algorithm per weight shape whatever the number of rows, so a
// row's bits do not depend on its company; it is the library's first choice, not a timing's, so that two devices of a
// kind and two runs have the same.
#pragma once

#include <cstdint>
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <map>
#include <memory>

#include "kernels/cuda/algorithm_cache.hpp"
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
  // `kept`: algorithms of other runs; has a path only where products are not deterministic.
  Products(cudaStream_t stream, bool deterministic, AlgorithmCache kept);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // y[r] = (accumulate ? y[r] : 0) + W x[r], y f32 or bf16 ([n_rows, n_out]), x bf16 ([n_rows, n_in]).
  void run(const DeviceMatrix& w, const void* x, void* y, DType y_type, std::int64_t n_rows, bool accumulate);

 private:
  using Shape = ProductShape;
  struct Call;
  const cublasLtMatmulAlgo_t& algorithm(const Shape& bucket);
  cublasLtMatmulAlgo_t pick(const Shape& bucket);
  bool recall(const Shape& bucket, cublasLtMatmulAlgo_t& algorithm);

  cudaStream_t stream_;
  bool deterministic_;
  cublasLtHandle_t handle_ = nullptr;
  DeviceScratch workspace_, trial_;
  std::map<Shape, cublasLtMatmulAlgo_t> algorithms_;
  AlgorithmCache kept_;
};

// What the fastest algorithm depends on beside the shape, as one line: for AlgorithmCache.
std::string products_machine(const char* gpu_name);

}  // namespace banyan::kernels::cuda
