// Which tile kernels there are. Internal to kernels/cuda.
#pragma once

#include <cstdint>

#include "banyan/types.hpp"
#include "kernels/cuda/tile_params.hpp"

namespace banyan::kernels::cuda {

// Without a function where there is none. Generated (attention.cmake): the one place that knows all instantiations.
TileKernel find_tile_kernel(TileKind kind, std::int64_t head_dim, DType kv_type);

}  // namespace banyan::kernels::cuda
