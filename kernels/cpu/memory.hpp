// Aligned host memory for the CPU backends. Knows nothing of what is stored in it.
//
// Scratch grows only: after warm-up no operation allocates. Not thread-safe: one backend belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace banyan::kernels {

constexpr std::size_t kAlignment = 64;  // a cache line and a 512-bit vector

// Throws Error{out_of_memory} with the size asked for and the size of the machine. 0 bytes give a valid pointer.
void* allocate_aligned(std::int64_t bytes);
void release_aligned(void* p) noexcept;
std::int64_t free_host_bytes();  // of the machine, now

// One growing buffer. Contents are lost when it grows.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { release_aligned(data_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T>
  T* reserve(std::int64_t n) {
    return static_cast<T*>(reserve_bytes(n * static_cast<std::int64_t>(sizeof(T))));
  }
  template <class T>
  const T* data() const {
    return static_cast<const T*>(data_);
  }

 private:
  void* reserve_bytes(std::int64_t bytes);
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace banyan::kernels
