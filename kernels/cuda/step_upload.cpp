#include "kernels/cuda/step_upload.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/cuda/check.hpp"

namespace banyan::kernels::cuda {

StepUpload::Place StepUpload::add_bytes(const void* data, std::int64_t n_bytes) {
  constexpr std::uint64_t kAlignment = 256;
  const Place begin = n_bytes_;
  parts_.push_back({data, begin, n_bytes});
  n_bytes_ += static_cast<std::int64_t>(std::bit_ceil(std::max(kAlignment, static_cast<std::uint64_t>(n_bytes))));
  return begin;
}

void StepUpload::send(cudaStream_t stream) {
  Slot& slot = slots_[turn_++ % slots_.size()];
  check(cudaEventSynchronize(slot.sent), "cudaEventSynchronize");
  slot.memory.reserve_bytes(n_bytes_);
  device_.reserve_bytes(n_bytes_);
  for (const Part& part : parts_) {
    if (part.n_bytes == 0) continue;
    std::memcpy(static_cast<std::byte*>(slot.memory.data()) + part.begin, part.data,
                static_cast<std::size_t>(part.n_bytes));
  }
  if (n_bytes_ == 0) return;
  check(cudaMemcpyAsync(device_.data(), slot.memory.data(), static_cast<std::size_t>(n_bytes_), cudaMemcpyHostToDevice,
                        stream),
        "cudaMemcpyAsync");
  check(cudaEventRecord(slot.sent, stream), "cudaEventRecord");
}

}  // namespace banyan::kernels::cuda
