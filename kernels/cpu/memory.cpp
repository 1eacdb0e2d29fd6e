#include "kernels/cpu/memory.hpp"

#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "banyan/error.hpp"

namespace banyan::kernels {
namespace {

// Weights come in hundreds of megabytes: with pages of 4 kB the system spends more time on handing them out than we do
// on filling them.
constexpr std::int64_t kHugePage = 2 << 20;

}  // namespace

void* allocate_aligned(std::int64_t bytes) {
  // Linux promises more memory than there is and ends the process later, so what cannot fit is refused here.
  const std::int64_t machine_bytes =
      static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(sysconf(_SC_PAGE_SIZE));
  const auto alignment = static_cast<std::int64_t>(bytes < kHugePage ? kAlignment : kHugePage);
  void* p = nullptr;
  if (bytes >= 0 && bytes <= machine_bytes) {
    const std::int64_t rounded = (bytes / alignment + 1) * alignment;
    p = std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(rounded));
    // Up to the last whole huge page: what is behind it would be memory that nobody uses.
    if (p != nullptr && bytes >= kHugePage)
      madvise(p, static_cast<std::size_t>(bytes / kHugePage * kHugePage), MADV_HUGEPAGE);
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
