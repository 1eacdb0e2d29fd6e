// Counts the heap allocations of a whole program, the library's included, by replacing operator new and delete. For
// tests and benches: to be included in one source of an executable.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace banyan {

inline std::atomic<std::int64_t> n_allocations{0};  // since the program began

}  // namespace banyan

// Not inlined: where g++ 12 inlines one of a pair and not the other, it warns that they do not match.
[[gnu::noinline]] void* operator new(std::size_t n) {
  ++banyan::n_allocations;
  if (void* p = std::malloc(n)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t alignment) {
  ++banyan::n_allocations;
  const auto a = static_cast<std::size_t>(alignment);
  if (void* p = std::aligned_alloc(a, (n + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
