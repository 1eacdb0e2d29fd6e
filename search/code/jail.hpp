// One sandboxed program: bubblewrap, its init, the driver, and the tests that it runs one after another.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "banyan/code/sandbox.hpp"
#include "process.hpp"

namespace banyan::code {

// Descriptors of the driver; the numbers are agreed with driver.py and with the bwrap arguments of Sandbox.
inline constexpr int kControlFd = 3;
inline constexpr int kInfoFd = 4;
inline constexpr int kSeccompFd = 5;

// The text of driver.py.
extern const char* const kDriverSource;

// Whole seconds of CPU after which the kernel ends a test: a quarter more than its limit, so that a near miss can be
// told from an endless loop.
std::int64_t cpu_stop_s(const RunLimits& limits);

class Jail {
 public:
  // Starts and lets the program compile. Throws Error{device} with bubblewrap's own message when it cannot start.
  Jail(const std::vector<std::string>& command, const std::vector<std::string>& environment, const std::string& source);
  Jail(const Jail&) = delete;
  Jail& operator=(const Jail&) = delete;
  ~Jail();  // end()

  const std::string& compile_error() const { return compile_error_; }  // "" if it compiled
  bool alive() const { return pid_ > 0; }

  // One test. Afterwards the jail is still alive unless the test had to be stopped or killed the driver.
  // `ended_late`: the test ended by itself, but over its time.
  RunResult run(ProgramKind kind, const std::string& input, const RunLimits& limits, bool& ended_late);

  // Ends the whole process tree and waits until nothing of it is left.
  void end() noexcept;

 private:
  enum class Reply { message, closed, timeout };
  Reply wait_for_reply(std::int64_t timeout_ms, std::string& message);
  void read_init_pid();
  void send_test(const int (&fds)[5]);

  pid_t pid_ = -1;  // bubblewrap's outer process, our child
  Fd init_;         // pidfd of the first process of the inner PID namespace
  Fd control_, info_, errors_;
  std::string compile_error_;
};

}  // namespace banyan::code
