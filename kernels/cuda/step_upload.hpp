// The host arrays of a step on their way to the device: gathered in pinned memory, sent in one asynchronous copy.
//
// begin(); add() each array; send(); then at() tells where an array lies on the device. An array has room for the next
// power of two of its bytes, so places change seldom, and launches that name them can be replayed while base() and
// n_bytes() and each place are the same. Two pinned buffers take turns,
// so that the arrays of a step can be gathered while the copy of the step before is still under way; the device has one
// buffer, as the stream runs one step after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/device.hpp"

namespace banyan::kernels::cuda {

class StepUpload {
 public:
  using Place = std::int64_t;  // of an array in this step's buffer

  void begin() {
    parts_.clear();
    n_bytes_ = 0;
  }
  // The array must stay as it is until send() returns.
  template <class T>
  Place add(std::span<const T> array) {
    return add_bytes(array.data(), static_cast<std::int64_t>(array.size_bytes()));
  }
  // Waits only if the copy two steps ago has not left its pinned buffer yet.
  void send(cudaStream_t stream);
  const void* base() const { return device_.data(); }
  // Valid after send(), until the next one.
  template <class T>
  const T* at(Place place) const {
    return reinterpret_cast<const T*>(static_cast<const std::byte*>(device_.data()) + place);
  }

 private:
  struct Part {
    const void* data;
    Place begin;
    std::int64_t n_bytes;
  };
  Place add_bytes(const void* data, std::int64_t n_bytes);

  struct Slot {
    PinnedScratch memory;
    Event sent;
  };
  std::vector<Part> parts_;
  std::int64_t n_bytes_ = 0;
  std::array<Slot, 2> slots_;
  std::size_t turn_ = 0;
  DeviceScratch device_;
};

}  // namespace banyan::kernels::cuda
