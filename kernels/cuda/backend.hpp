// What the engine needs of a CUDA backend beyond ops.hpp. No CUDA header.
#pragma once

#include "kernels/ops.hpp"

namespace banyan::kernels::cuda {

// The stream (a cudaStream_t) of a backend that make_cuda_backend() made.
void* stream_of(const Backend& backend);

}  // namespace banyan::kernels::cuda
