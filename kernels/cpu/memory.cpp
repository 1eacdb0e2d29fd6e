#include "kernels/cpu/memory.hpp"

#include <cstdlib>
#include <string>
#include <unistd.h>

#include "banyan/error.hpp"

namespace banyan::kernels {

void* allocate_aligned(std::int64_t bytes) {
  // Linux promises more memory than there is and ends the process later, so what cannot fit is refused here.
  const std::int64_t machine_bytes =
      static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(sysconf(_SC_PAGE_SIZE));
  const auto alignment = static_cast<std::int64_t>(kAlignment);
  void* p = nullptr;
  if (bytes >= 0 && bytes <= machine_bytes) {
    const std::int64_t rounded = (bytes / alignment + 1) * alignment;
    p = std::aligned_alloc(kAlignment, static_cast<std::size_t>(rounded));
  }
  if (p == nullptr) {
    throw Error(ErrorCode::out_of_memory, "cpu",
                "cannot allocate " + std::to_string(bytes) + " bytes; the machine has " +
                    std::to_string(machine_bytes) + " bytes of memory in all");
  }
  return p;
}

std::int64_t free_host_bytes() {
  return static_cast<std::int64_t>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::int64_t>(sysconf(_SC_PAGE_SIZE));
}

void release_aligned(void* p) noexcept { std::free(p); }

void* Scratch::reserve_bytes(std::int64_t bytes) {
  if (bytes > bytes_ || data_ == nullptr) {
    void* larger = allocate_aligned(bytes);
    release_aligned(data_);
    data_ = larger;
    bytes_ = bytes;
  }
  return data_;
}

}  // namespace banyan::kernels
