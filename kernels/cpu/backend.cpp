#include "kernels/cpu/fast.hpp"
#include "kernels/cpu/reference.hpp"
#include "kernels/ops.hpp"

namespace banyan::kernels {

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options) {
  if (options.n_threads < 0) {
    throw Error(ErrorCode::usage, "threads", std::to_string(options.n_threads) + " threads; give 0 (all) or more");
  }
  if (options.reference) return make_reference_backend();
  return make_fast_backend(*supported_isas().front(), options.n_threads);
}

}  // namespace banyan::kernels
