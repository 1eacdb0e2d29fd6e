// Launches that overlap with the end of the kernel before them on the stream (programmatic dependent launch, CUDA
// programming guide): a kernel's blocks come onto multiprocessors while its predecessor still runs, and wait there.
//
// A kernel launched by launch_overlapped() calls wait_for_predecessor() before it reads or writes anything that an
// earlier kernel of the stream writes or reads; only what no kernel writes (weights) may be touched before that. As
// each waits for its predecessor, it has waited for all before it. let_successor_begin() only lets the next one be
// placed: its effects are still waited for.
#pragma once

#include <cstddef>
#include <cuda_runtime.h>
#include <tuple>

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

inline void launch_overlapped(const char* what, const void* kernel, dim3 grid, unsigned n_threads,
                              std::size_t shared_bytes, cudaStream_t stream, void** arguments) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(n_threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelExC(&config, kernel, arguments), what);
}

template <class... Parameters, class... Arguments>
void launch_overlapped(const char* what, void (*kernel)(Parameters...), dim3 grid, unsigned n_threads,
                       cudaStream_t stream, Arguments... arguments) {
  std::tuple<Parameters...> values(static_cast<Parameters>(arguments)...);
  std::apply(
      [&](auto&... value) {
        void* addresses[] = {&value...};
        launch_overlapped(what, reinterpret_cast<const void*>(kernel), grid, n_threads, 0, stream, addresses);
      },
      values);
}

}  // namespace banyan::kernels::cuda
