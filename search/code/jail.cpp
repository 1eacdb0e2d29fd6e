#include "jail.hpp"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "banyan/error.hpp"
#include "seccomp.hpp"

namespace banyan::code {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kStartTimeoutMs = 30'000;  // generous: compiling also runs on an overloaded machine
constexpr std::int64_t kErrorBytes = 2000;
constexpr int kExitMemory = 86, kExitAssert = 87;  // agreed with driver.py

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// How a test ended, from what the driver saw.
RunStatus ended_as(int status, bool late) {
  if (WIFSIGNALED(status)) {
    if (WTERMSIG(status) == SIGXCPU || late) return RunStatus::time_limit;
    if (WTERMSIG(status) == SIGXFSZ) return RunStatus::output_limit;
    // Nobody in the sandbox but the program itself sends it; outside it is the kernel's out-of-memory killer.
    return WTERMSIG(status) == SIGKILL ? RunStatus::memory_limit : RunStatus::runtime_error;
  }
  if (late) return RunStatus::time_limit;
  switch (WEXITSTATUS(status)) {
    case 0: return RunStatus::ok;
    case kExitMemory: return RunStatus::memory_limit;
    case kExitAssert: return RunStatus::failed_assert;
    default: return RunStatus::runtime_error;
  }
}

bool parse_report(const std::string& message, int& status, std::int64_t& cpu_us) {
  const char* end = message.data() + message.size();
  const auto first = std::from_chars(message.data(), end, status);
  if (first.ec != std::errc() || first.ptr == end) return false;
  return std::from_chars(first.ptr + 1, end, cpu_us).ec == std::errc();
}

}  // namespace

std::int64_t cpu_stop_s(const RunLimits& limits) { return (limits.time_ms * 5 / 4 + 999) / 1000; }

Jail::Jail(const std::vector<std::string>& command, const std::vector<std::string>& environment,
           const std::string& source) {
  SocketPair sockets = make_socket_pair();
  Pipe info = make_pipe();
  const Fd program = memory_file(source), output = memory_file(), filter = memory_file(seccomp_filter());
  errors_ = memory_file();
  control_ = std::move(sockets.ours);
  info_ = std::move(info.read);
  const int fds[] = {program.get(), output.get(), errors_.get(), sockets.theirs.get(), info.write.get(), filter.get()};
  pid_ = spawn(command, environment, fds);
  sockets.theirs.reset();
  info.write.reset();

  std::string message;
  read_init_pid();
  const Reply reply = init_.open() ? wait_for_reply(kStartTimeoutMs, message) : Reply::closed;
  if (reply == Reply::message && message == "ready") return;
  end();
  const std::string errors = read_tail(errors_, kErrorBytes);
  if (reply == Reply::message && message.starts_with("compile "))
    compile_error_ = message.substr(8);
  else if (!init_.open() || errors.starts_with("bwrap: "))
    throw Error(ErrorCode::device, "bubblewrap", errors.empty() ? "it ended at once" : errors);
  else
    compile_error_ = reply == Reply::timeout ? "compiling took longer than 30 s" : "the compiler crashed: " + errors;
}

Jail::~Jail() { end(); }

// bubblewrap writes {"child-pid": N} as soon as the inner init exists, or ends.
void Jail::read_init_pid() {
  std::string text;
  char buffer[256];
  while (text.find('}') == std::string::npos) {
    const ssize_t n = read(info_.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  info_.reset();
  const std::size_t colon = text.find(':', text.find("child-pid"));
  const std::size_t digits = colon == std::string::npos ? colon : text.find_first_of("0123456789", colon);
  int init_pid = 0;
  if (digits == std::string::npos ||
      std::from_chars(text.data() + digits, text.data() + text.size(), init_pid).ec != std::errc())
    return;
  init_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, init_pid, 0)));
}

void Jail::end() noexcept {
  if (pid_ <= 0) return;
  // The kernel ends every process of the inner PID namespace before its init counts as dead; the outer process waits
  // for that init, and we for the outer process.
  if (!init_.open() || syscall(SYS_pidfd_send_signal, init_.get(), SIGKILL, nullptr, 0) != 0) kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  control_.reset();
}

Jail::Reply Jail::wait_for_reply(std::int64_t timeout_ms, std::string& message) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return Reply::timeout;
    pollfd waiting{control_.get(), POLLIN, 0};
    const int n = poll(&waiting, 1, static_cast<int>(left));
    if (n < 0 && errno != EINTR) return Reply::closed;
    if (n > 0) break;
  }
  char buffer[4096];
  const ssize_t n = recv(control_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (n <= 0) return Reply::closed;
  message.assign(buffer, static_cast<std::size_t>(n));
  return Reply::message;
}

void Jail::send_test(const int (&fds)[5]) {
  char text[] = "test";
  iovec data{text, 4};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof fds)] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = space;
  header.msg_controllen = sizeof space;
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof fds);
  std::memcpy(CMSG_DATA(rights), fds, sizeof fds);
  // A driver that is gone shows in the reply.
  while (sendmsg(control_.get(), &header, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

RunResult Jail::run(ProgramKind kind, const std::string& input, const RunLimits& limits, bool& ended_late) {
  const bool script = kind == ProgramKind::script;
  const Fd in = memory_file(script ? input : ""), out = memory_file(), err = memory_file();
  const Fd source = memory_file(script ? "" : input), answer = memory_file();
  const int fds[5] = {in.get(), out.get(), err.get(), source.get(), answer.get()};

  RunResult result;
  ended_late = false;
  std::string message;
  const auto start = Clock::now();
  send_test(fds);
  const Reply reply = wait_for_reply(limits.wall_ms(), message);
  result.wall_ms = ms_since(start);
  int status = 0;
  std::int64_t cpu_us = 0;
  if (reply == Reply::message && parse_report(message, status, cpu_us)) {
    result.cpu_ms = static_cast<double>(cpu_us) / 1000;
    const bool late = result.cpu_ms > static_cast<double>(limits.time_ms);
    result.status = ended_as(status, late);
    ended_late = late && WIFEXITED(status);
  } else {
    result.status = reply == Reply::timeout ? RunStatus::time_limit : RunStatus::runtime_error;
    end();
  }

  result.error = read_tail(err, kErrorBytes);
  const Fd& output = script ? out : answer;
  if (file_size(out) > limits.output_bytes || file_size(answer) > limits.output_bytes)
    result.status = RunStatus::output_limit;
  else if (result.status == RunStatus::runtime_error && result.error.find("\nMemoryError") != std::string::npos)
    result.status = RunStatus::memory_limit;
  if (result.status == RunStatus::ok) result.output = read_head(output, limits.output_bytes);
  return result;
}

}  // namespace banyan::code
