#include "kernels/uniform.hpp"

#include "kernels/ops.hpp"

namespace banyan::kernels {

void UniformRows::fill(std::int64_t row_begin, std::int64_t row_end, float* dst) const {
  for (std::int64_t i = row_begin * n_in; i < row_end * n_in; ++i) {
    *dst++ = uniform_element(seed, static_cast<std::uint64_t>(i), bound);
  }
}

}  // namespace banyan::kernels
