// When steps begin and end on a stream, from events on the device itself. The host waits for a step's end here.
//
// begin() before a step's first kernel, end() behind its last; harvest() in the order of end(). At most kMostInFlight
// steps have ended on the stream's record and are not harvested. A begin() without an end() is forgotten by the next.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cuda/device.hpp"

namespace banyan::kernels::cuda {

class StepClock {
 public:
  static constexpr std::uint64_t kMostInFlight = 2;

  struct Times {
    double busy_ms = 0;  // begin to end
    double idle_ms = 0;  // since the end of the step before; 0 for the first
  };

  void begin(cudaStream_t stream);
  void end(cudaStream_t stream);
  Times harvest();  // waits for the end of the oldest step

 private:
  struct Step {
    Event begin{cudaEventDefault}, end{cudaEventDefault};
  };
  Step& step(std::uint64_t number) { return steps_[number % steps_.size()]; }

  std::array<Step, kMostInFlight + 1> steps_;  // those in flight, and the one before them
  std::uint64_t n_ended_ = 0, n_harvested_ = 0;
};

}  // namespace banyan::kernels::cuda
