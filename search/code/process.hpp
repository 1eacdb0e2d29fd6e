// Descriptors, memory files and child processes for the sandbox. Linux only. Knows nothing of programs and tests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace banyan::code {

// Owner of one file descriptor. Every descriptor made here is close-on-exec and above the numbers that children use.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

// Throws Error{device} with the name of the call and errno.
[[noreturn]] void throw_system_error(const char* call);

// A file in memory that holds `content`, with its offset at 0.
Fd memory_file(std::string_view content = {});
std::int64_t file_size(const Fd& file);
// At most `max_bytes` from the start, or from the end.
std::string read_head(const Fd& file, std::int64_t max_bytes);
std::string read_tail(const Fd& file, std::int64_t max_bytes);

struct Pipe {
  Fd read, write;
};
Pipe make_pipe();

// Two connected sockets that keep message borders.
struct SocketPair {
  Fd ours, theirs;
};
SocketPair make_socket_pair();

// Starts argv[0] (a path) in its own process group with fds[i] as descriptor i and nothing else open, and exactly this
// environment. Does not copy the address space, however large it is.
pid_t spawn(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
            std::span<const int> fds);

// Waits for the end; the wait status.
int wait_for(pid_t pid);

// Runs a trusted command to its end. `output` and `error` are cut at 64 KiB.
struct CommandResult {
  int exit_code = -1;
  std::string output, error;
};
CommandResult run_command(const std::vector<std::string>& argv, const std::vector<std::string>& environment);

// The path of an executable file: `name` itself where it has a slash, else the first on PATH; "" if there is none.
std::string find_executable(const std::string& name);

}  // namespace banyan::code
