#include "process.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "banyan/error.hpp"

namespace banyan::code {

namespace {

// Children get descriptors 0, 1, 2, …; ours stay above, so that no dup2 overwrites one that is still to be copied.
constexpr int kFirstFd = 16;

Fd raised(int fd, const char* call) {
  if (fd < 0) throw_system_error(call);
  if (fd >= kFirstFd) return Fd(fd);
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, kFirstFd);
  const int saved = errno;
  close(fd);
  errno = saved;
  if (high < 0) throw_system_error("fcntl");
  return Fd(high);
}

std::string read_range(const Fd& file, std::int64_t begin, std::int64_t n_bytes) {
  std::string text(static_cast<std::size_t>(n_bytes), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n =
        pread(file.get(), text.data() + done, text.size() - done, begin + static_cast<std::int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_system_error("pread");
    if (n == 0) break;  // it was shortened meanwhile
    done += static_cast<std::size_t>(n);
  }
  text.resize(done);
  return text;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const auto& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

void check(int error, const char* call) {
  if (error == 0) return;
  errno = error;
  throw_system_error(call);
}

// posix_spawn's two option objects, destroyed on every way out.
struct SpawnOptions {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

  SpawnOptions() {
    check(posix_spawn_file_actions_init(&actions), "posix_spawn_file_actions_init");
    check(posix_spawnattr_init(&attributes), "posix_spawnattr_init");
  }
  SpawnOptions(const SpawnOptions&) = delete;
  SpawnOptions& operator=(const SpawnOptions&) = delete;
  ~SpawnOptions() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
};

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int Fd::release() { return std::exchange(fd_, -1); }

void Fd::reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void throw_system_error(const char* call) {
  throw Error(ErrorCode::device, call, std::string(std::strerror(errno)) + " (errno " + std::to_string(errno) + ")");
}

Fd memory_file(std::string_view content) {
  Fd file = raised(memfd_create("banyan", MFD_CLOEXEC), "memfd_create");
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = pwrite(file.get(), content.data() + done, content.size() - done, static_cast<std::int64_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_system_error("pwrite");
    done += static_cast<std::size_t>(n);
  }
  return file;
}

std::int64_t file_size(const Fd& file) {
  struct stat info;
  if (fstat(file.get(), &info) != 0) throw_system_error("fstat");
  return info.st_size;
}

std::string read_head(const Fd& file, std::int64_t max_bytes) {
  return read_range(file, 0, std::min(file_size(file), max_bytes));
}

std::string read_tail(const Fd& file, std::int64_t max_bytes) {
  const std::int64_t size = file_size(file);
  const std::int64_t n_bytes = std::min(size, max_bytes);
  return read_range(file, size - n_bytes, n_bytes);
}

Pipe make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) throw_system_error("pipe2");
  Pipe pipe;
  pipe.read = raised(fds[0], "pipe2");
  pipe.write = raised(fds[1], "pipe2");
  return pipe;
}

SocketPair make_socket_pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) throw_system_error("socketpair");
  SocketPair pair;
  pair.ours = raised(fds[0], "socketpair");
  pair.theirs = raised(fds[1], "socketpair");
  return pair;
}

pid_t spawn(const std::vector<std::string>& argv, const std::vector<std::string>& environment,
            std::span<const int> fds) {
  SpawnOptions options;
  for (std::size_t i = 0; i < fds.size(); ++i)
    check(posix_spawn_file_actions_adddup2(&options.actions, fds[i], static_cast<int>(i)), "adddup2");
  check(posix_spawn_file_actions_addclosefrom_np(&options.actions, static_cast<int>(fds.size())), "addclosefrom");

  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  for (int signal : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGCHLD, SIGXFSZ}) sigaddset(&defaults, signal);
  check(posix_spawnattr_setsigmask(&options.attributes, &none), "setsigmask");
  check(posix_spawnattr_setsigdefault(&options.attributes, &defaults), "setsigdefault");
  // An own process group: a Ctrl-C on our terminal must not look like a crash of the program.
  check(posix_spawnattr_setpgroup(&options.attributes, 0), "setpgroup");
  check(posix_spawnattr_setflags(&options.attributes,
                                 POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP),
        "setflags");

  auto arguments = pointers(argv);
  auto variables = pointers(environment);
  pid_t pid = -1;
  check(posix_spawn(&pid, arguments[0], &options.actions, &options.attributes, arguments.data(), variables.data()),
        "posix_spawn");
  return pid;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) throw_system_error("waitpid");
  return status;
}

CommandResult run_command(const std::vector<std::string>& argv, const std::vector<std::string>& environment) {
  constexpr std::int64_t kMaxBytes = 64 << 10;
  const Fd input = memory_file(), output = memory_file(), error = memory_file();
  const int fds[] = {input.get(), output.get(), error.get()};
  const int status = wait_for(spawn(argv, environment, fds));
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_head(output, kMaxBytes), read_tail(error, kMaxBytes)};
}

std::string find_executable(const std::string& name) {
  const auto executable = [](const std::string& path) {
    struct stat info;
    return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return executable(name) ? name : "";
  const char* variable = std::getenv("PATH");
  const std::string path = variable ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    if (end > begin) {
      const std::string candidate = path.substr(begin, end - begin) + "/" + name;
      if (executable(candidate)) return candidate;
    }
    begin = end + 1;
  }
  return "";
}

}  // namespace banyan::code
