// In a build without CUDA every model computes on the host.
#include "engine/device_answer.hpp"

namespace banyan::detail {

std::unique_ptr<DeviceAnswerer> make_device_answerer(const Model& /*model*/) { return nullptr; }

}  // namespace banyan::detail
