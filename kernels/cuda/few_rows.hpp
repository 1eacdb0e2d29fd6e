// Products of one to four rows with a weight matrix: memory bound, so every byte of W is read once, in 16-byte pieces,
// as fast as the memory gives them. cuBLASLt's kernels reach 70 to 95 % of that at one row (H200), this one is for the
// rest.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

#include "banyan/types.hpp"

namespace banyan::kernels::cuda {

constexpr std::int64_t kMostFewRows = 4;

// Whether few_rows_product() computes it: 1 to kMostFewRows rows, n_in a multiple of 8.
constexpr bool is_few_rows_product(std::int64_t n_rows, std::int64_t n_in) {
  return n_rows >= 1 && n_rows <= kMostFewRows && n_in % 8 == 0;
}

// y [n_rows, n_out] of f32 or bf16 = (accumulate ? y : 0) + W x.  w [n_out, n_in], x [n_rows, n_in] bf16, 16-byte
// aligned. accumulate: f32 alone.
void few_rows_product(const bf16* w, const bf16* x, void* y, DType y_type, std::int64_t n_rows, std::int64_t n_out,
                      std::int64_t n_in, bool accumulate, cudaStream_t stream);

}  // namespace banyan::kernels::cuda
