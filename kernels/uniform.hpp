// One number of UniformRows, on the host and on the device.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define BANYAN_HOST_DEVICE __host__ __device__
#else
#define BANYAN_HOST_DEVICE
#endif

namespace banyan::kernels {

// Element `index` of the stream `seed`, in [-bound, bound): the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA
// 2014) over a counter.
BANYAN_HOST_DEVICE inline float uniform_element(std::uint64_t seed, std::uint64_t index, float bound) {
  std::uint64_t z = (index + 1) * 0x9e3779b97f4a7c15U + seed * 0xd1342543de82ef95U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  z ^= z >> 31;
  return (static_cast<float>(z >> 40) * 0x1p-23F - 1.0F) * bound;
}

}  // namespace banyan::kernels
