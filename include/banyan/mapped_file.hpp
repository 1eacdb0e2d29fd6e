// A file mapped read-only into memory, owned. Layer 0. It knows no format.
//
// The pages are those of the page cache, so reading weights from it makes no second copy. A file that another process
// shortens while it is mapped raises SIGBUS on access: checkpoints are not to be written while they are loaded.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace banyan {

class MappedFile {
 public:
  // Throws Error{bad_file} naming the path when it cannot be opened, is no regular file, or is empty.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

// Gives the memory of mapped bytes that have been read back to the system, as far as it is whole pages. Reading them
// again is right, and slower. What a process has mapped counts as its memory; so a file that is read once, piece by
// piece, costs no more than a piece.
void forget_pages(std::span<const std::byte> bytes);

}  // namespace banyan
