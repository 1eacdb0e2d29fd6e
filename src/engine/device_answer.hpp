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
  // Puts the queries behind the step that `forward` has in flight. Appends to `left` the indices of those that the host
  // must answer: with logit hooks, rewards, lists longer than the device makes.
  virtual void submit(const Forward& forward, const Plan& plan, std::span<const StepQuery> queries,
                      std::vector<std::int32_t>& left) = 0;
  // Waits. Writes the answers of the others.
  virtual void harvest(std::span<StepAnswer> answers) = 0;
};

// Null for models that compute on the host.
std::unique_ptr<DeviceAnswerer> make_device_answerer(const Model& model);

}  // namespace banyan::detail
