// From logits on a device to answers. Layer 7, internal.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "banyan/runner.hpp"
#include "model/forward.hpp"

namespace banyan::detail {

class DeviceAnswerer {
 public:
  virtual ~DeviceAnswerer() = default;
  // Where the device finds what the queries of the last step drew.
  virtual kernels::DrawnTokens drawn() const = 0;
  // Puts the queries behind the step that `forward` was given last. Appends to `left` the indices of those that the
  // host must answer: with logit hooks, rewards, lists longer than the device makes. Two steps may be unharvested.
  virtual void submit(Forward& forward, const Plan& plan, std::span<const StepQuery> queries,
                      std::vector<std::int32_t>& left) = 0;
  // Waits for the oldest step. Writes all of its answers but those that are left, whose places it may use, and adds the
  // device's times.
  virtual void harvest(std::span<StepAnswer> answers, StepTimes& times) = 0;
};

// Null for models that compute on the host.
std::unique_ptr<DeviceAnswerer> make_device_answerer(const Model& model);

}  // namespace banyan::detail
