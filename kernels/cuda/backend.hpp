// What the engine needs of a CUDA backend beyond ops.hpp. No CUDA header.
#pragma once

#include "kernels/ops.hpp"

namespace banyan::kernels::cuda {

// The stream (a cudaStream_t) of a backend that make_cuda_backend() made.
void* stream_of(const Backend& backend);

// The step that begin_step() began has all of its work on the stream. At most two such steps may be unwaited for.
void end_step(Backend& backend);

struct DeviceTimes {
  double busy_ms = 0;  // of the step, first operation to last
  double idle_ms = 0;  // between the step before and this one; 0 for the first
};
// Waits for the oldest step that was ended.
DeviceTimes wait_for_step(Backend& backend);

}  // namespace banyan::kernels::cuda
