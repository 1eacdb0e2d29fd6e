// What the fuzzers share: the input as a file in memory, and errors that are no finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "banyan/error.hpp"

namespace banyan::test {

// A file without a name, with a path as long as it lives.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size) : fd_(memfd_create("fuzz", 0)) {
    if (fd_ < 0 || write(fd_, data, size) != static_cast<ssize_t>(size)) std::abort();
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

// Runs `read`; a typed error is what a bad file shall give.
template <class F>
void expect_typed_errors(F&& read) {
  try {
    read();
  } catch (const Error&) {
  }
}

}  // namespace banyan::test
