#include "kernels/cuda/check.hpp"

#include <string>

#include "banyan/error.hpp"

namespace banyan::kernels::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // forget it: the next call is not to blame, unless the context is lost
  const ErrorCode code = status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::device;
  throw Error(code, what, std::string(cudaGetErrorName(status)) + ", " + cudaGetErrorString(status));
}

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const ErrorCode code = status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::out_of_memory : ErrorCode::device;
  throw Error(code, what, cublasLtGetStatusString(status));
}

}  // namespace banyan::kernels::cuda
