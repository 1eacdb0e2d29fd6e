// Launches the merge of partials. Internal to kernels/cuda.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/tile_params.hpp"

namespace banyan::kernels::cuda {

void launch_merge(const MergeParams& params, unsigned n_warps, cudaStream_t stream);

}  // namespace banyan::kernels::cuda
