// Simple elementwise launches: random contents, biases. Device pointers; asynchronous on the stream.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

#include "banyan/types.hpp"

namespace banyan::kernels::cuda {

// dst [n] of f32, bf16, f16 or f8_e4m3: uniform_element(seed, i, bound), rounded (kernels/uniform.hpp).
void fill_uniform(void* dst, DType type, std::int64_t n, std::uint64_t seed, float bound, cudaStream_t stream);

// y [n_rows, n_out] of f32 or bf16 += bias [n_out] f32, in every row.
void add_bias(void* y, DType type, const float* bias, std::int64_t n_rows, std::int64_t n_out, cudaStream_t stream);

}  // namespace banyan::kernels::cuda
