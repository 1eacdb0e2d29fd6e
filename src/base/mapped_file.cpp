#include "banyan/mapped_file.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "banyan/error.hpp"

namespace banyan {
namespace {

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::bad_file, path, what + ": " + std::strerror(errno));
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) fail(path, "cannot open");
  struct stat info {};
  if (fstat(file.fd, &info) != 0) fail(path, "cannot read its size");
  if (!S_ISREG(info.st_mode)) throw Error(ErrorCode::bad_file, path, "not a regular file");
  if (info.st_size == 0) throw Error(ErrorCode::bad_file, path, "the file is empty");
  const auto size = static_cast<std::size_t>(info.st_size);
  void* base = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (base == MAP_FAILED) fail(path, "cannot map " + std::to_string(size) + " bytes");
  bytes_ = {static_cast<const std::byte*>(base), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void forget_pages(std::span<const std::byte> bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t begin = (address + page - 1) / page * page, end = (address + bytes.size()) / page * page;
  // Advice: where it is not taken, nothing is lost but memory.
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace banyan
