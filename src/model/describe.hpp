// The text of `inspect`: what a checkpoint holds, and what banyan makes of it. Layer 5, internal.
#pragma once

#include <string>

#include "model/model_tensors.hpp"

namespace banyan {

// What loading decided and found.
struct LoadedFacts {
  Compute compute = Compute::f32;
  std::int64_t weight_bytes = 0;  // in memory
  std::string backend;
};

// "key   value" lines.
std::string describe(const Checkpoint& checkpoint, const ModelTensors& tensors, const LoadedFacts& facts);

}  // namespace banyan
