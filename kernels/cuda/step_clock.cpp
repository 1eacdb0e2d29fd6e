#include "kernels/cuda/step_clock.hpp"

#include <cassert>

#include "kernels/cuda/check.hpp"

namespace banyan::kernels::cuda {
namespace {

double elapsed_ms(cudaEvent_t from, cudaEvent_t to) {
  float ms = 0;
  check(cudaEventElapsedTime(&ms, from, to), "cudaEventElapsedTime");
  return ms;
}

}  // namespace

void StepClock::begin(cudaStream_t stream) { check(cudaEventRecord(step(n_ended_).begin, stream), "cudaEventRecord"); }

void StepClock::end(cudaStream_t stream) {
  assert(n_ended_ - n_harvested_ < kMostInFlight);
  check(cudaEventRecord(step(n_ended_).end, stream), "cudaEventRecord");
  ++n_ended_;
}

StepClock::Times StepClock::harvest() {
  assert(n_harvested_ < n_ended_);
  const std::uint64_t number = n_harvested_++;
  check(cudaEventSynchronize(step(number).end), "cudaEventSynchronize(step)");
  return {.busy_ms = elapsed_ms(step(number).begin, step(number).end),
          .idle_ms = number > 0 ? elapsed_ms(step(number - 1).end, step(number).begin) : 0.0};
}

}  // namespace banyan::kernels::cuda
