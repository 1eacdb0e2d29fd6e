#include "banyan/read_file.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "banyan/error.hpp"

namespace banyan {

// Not through a stream: that reports a directory by an exception of its own, without the path.
std::string read_file(const std::string& path, std::int64_t most_bytes) {
  const auto fail = [&](const char* what) {
    return Error(ErrorCode::bad_file, path, std::string(what) + ": " + std::strerror(errno));
  };
  const auto check_size = [&](std::int64_t size) {
    if (size <= most_bytes) return;
    throw Error(ErrorCode::bad_file, path,
                "has more than the " + std::to_string(most_bytes) + " bytes that it can have");
  };
  struct Descriptor {
    int fd;
    ~Descriptor() {
      if (fd >= 0) close(fd);
    }
  } const file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) throw fail("cannot be opened");
  std::string content;
  struct stat status {};
  // A hint alone: files of /proc and pipes have no size.
  if (fstat(file.fd, &status) == 0 && status.st_size > 0) {
    check_size(status.st_size);
    content.reserve(static_cast<std::size_t>(status.st_size));
  }
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = read(file.fd, buffer, sizeof buffer);
    if (n == 0) return content;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw fail("cannot be read");
    content.append(buffer, static_cast<std::size_t>(n));
    check_size(static_cast<std::int64_t>(content.size()));
  }
}

}  // namespace banyan
