// Measures the constants of CostModel on this machine. Layer 5 (it runs the attention kernels).
#pragma once

#include "banyan/model.hpp"
#include "banyan/plan.hpp"
#include "banyan/types.hpp"

namespace banyan {

// Times attention of one layer of this shape, with KV of `kv_type`, where `options` say (device, device_index,
// n_threads; `automatic` is a CUDA device if one answers): a call's own cost from many calls of one row and one key,
// the byte rate from rows that each read long private KV, the FLOP rate from many rows over one shared node. Takes
// about two seconds, and the machine should have nothing else to do; medians. `machine` of the result names the shape.
CostModel calibrate(const AttentionShape& shape, DType kv_type, const LoadOptions& options = {});

}  // namespace banyan
