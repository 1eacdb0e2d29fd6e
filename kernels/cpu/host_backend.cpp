#include "kernels/cpu/host_backend.hpp"

#include "kernels/e4m3.hpp"
#include "kernels/uniform.hpp"

namespace banyan::kernels {

void HostBackend::fill_random(void* dst, DType type, std::int64_t n, std::uint64_t seed) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float x = uniform_element(seed, static_cast<std::uint64_t>(i), 1.0F);
    if (type == DType::f32) static_cast<float*>(dst)[i] = x;
    if (type == DType::bf16) static_cast<bf16*>(dst)[i] = to_bf16(x);
    if (type == DType::f16) static_cast<f16*>(dst)[i] = to_f16(x);
    if (type == DType::f8_e4m3) static_cast<std::uint8_t*>(dst)[i] = e4m3_code(x);
  }
}

}  // namespace banyan::kernels
