// Launches that overlap with the end of the kernel before them on the stream (programmatic dependent launch, CUDA
// programming guide): a kernel's blocks come onto multiprocessors while its predecessor still runs, and wait there.
//
// A kernel launched by launch_overlapped() calls wait_for_predecessor() before it reads or writes anything that an
// earlier kernel of the stream writes or reads; only what no kernel writes (weights) may be touched before that. As
// each waits for its predecessor, it has waited for all before it. let_successor_begin() only lets the next one be
// placed: its effects are still waited for.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/check.hpp"

namespace banyan::kernels::cuda {

__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

__device__ __forceinline__ void let_successor_begin() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

template <class... Parameters, class... Arguments>
void launch_overlapped(const char* what, void (*kernel)(Parameters...), dim3 grid, unsigned n_threads,
                       cudaStream_t stream, Arguments... arguments) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(n_threads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), what);
}

}  // namespace banyan::kernels::cuda
