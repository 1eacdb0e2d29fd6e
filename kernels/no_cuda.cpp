// The CUDA backend's entry points in a build without it.
#include "kernels/ops.hpp"

namespace banyan::kernels {

int n_cuda_devices() { return 0; }

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& /*options*/) {
  throw Error(ErrorCode::usage, "device cuda", "is not in this build; configure with the preset cuda");
}

}  // namespace banyan::kernels
