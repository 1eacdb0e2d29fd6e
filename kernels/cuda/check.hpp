// CUDA's and cuBLASLt's error codes as banyan's exceptions. No CUDA header beyond the runtime's.
#pragma once

#include <cstdint>
#include <cublasLt.h>
#include <cuda_runtime_api.h>

namespace banyan::kernels::cuda {

// Throws Error{device} naming the call and what CUDA says of it; Error{out_of_memory} if that is what failed.
void check(cudaError_t status, const char* what);
void check(cublasStatus_t status, const char* what);
// Of the launch just made: a launch that could not begin says so here and nowhere else.
inline void check_launch(const char* what) { check(cudaGetLastError(), what); }

}  // namespace banyan::kernels::cuda
