#include "kernels/cpu/reference.hpp"
#include "kernels/ops.hpp"

namespace banyan::kernels {

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions&) { return make_reference_backend(); }

}  // namespace banyan::kernels
