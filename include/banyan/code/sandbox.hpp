// Runs untrusted Python programs. Layer 8: knows no problem, no expected answer, no verdict of correctness; it takes a
// program and inputs, and says what came out and how the run ended.
//
//   Sandbox::run ── bwrap (one per program) ── init ── driver (compiles once) ── one forked child per test
//
// What a program gets: no network, no home, a read-only system, a private /tmp of limited size, limits on memory,
// processes, output, file size, CPU and wall time; an unprivileged user also when we are root. Expected outputs never
// enter the sandbox. stdin, stdout and stderr are memory files, so no pipe can fill up or break. After each test every
// process that it left is ended and every file is removed; when run() returns, the whole process tree is waited for.
//
// Linux with bubblewrap >= 0.8 only; there is no other way to run a program, so without it the constructor refuses.
// Threads: run() may be called from several threads at once on one Sandbox.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace banyan::code {

struct RunLimits {
  std::int64_t time_ms = 4000;             // CPU time of one test; its wall time may be 1.5 x that
  std::int64_t memory_bytes = 1LL << 30;   // address space of each process
  std::int64_t output_bytes = 16LL << 20;  // stdout, and any other file
  std::int64_t tmp_bytes = 64LL << 20;     // all of /tmp and /dev/shm
  int n_processes = 16;                    // processes and threads of a test (Linux >= 5.14 counts per sandbox)
  int max_timeouts = 3;                    // after so many time-outs of one program its other tests are not run

  std::int64_t wall_ms() const { return time_ms + time_ms / 2; }
};

enum class ProgramKind : std::uint8_t {
  script,  // reads stdin, writes stdout; the output is stdout
  call,  // defines `entry_point` (or class Solution with it); input is a JSON list of arguments, output the JSON result
  check,  // checks itself by assert; the output is meaningless
};

struct Program {
  ProgramKind kind = ProgramKind::script;
  std::string source;
  std::string entry_point;  // call only
};

enum class RunStatus : std::uint8_t {
  ok,
  failed_assert,  // check only
  runtime_error,  // an exception, a signal, a non-zero exit, or the supervisor was killed
  time_limit,
  memory_limit,
  output_limit,
  compile_error,
  not_run,  // too many earlier tests timed out
};

struct RunResult {
  RunStatus status = RunStatus::not_run;
  std::string output;  // bytes as written
  std::string error;   // the end of stderr, or the compiler's message; at most 2,000 bytes
  double wall_ms = 0;
  double cpu_ms = 0;  // 0 where the run was stopped from outside
};

struct SandboxOptions {
  std::string bwrap = "bwrap";                 // name on PATH, or a path
  std::string python = "python3";              // name on PATH, or a path
  std::vector<std::string> extra_read_only{};  // more paths to show inside, at the same place
};

class Sandbox {
 public:
  // Finds both programs and starts a sandbox once. Throws Error{unsupported} that says what to install or to allow when
  // bubblewrap, Python or the right to make namespaces is missing.
  explicit Sandbox(SandboxOptions options = {});

  // Runs the program on each input; results in the order of the inputs. A test that ended by itself but over its time
  // is run once more and the second run counts. Throws Error{device} only when the machine fails (no descriptors, …);
  // whatever the program does is a result.
  std::vector<RunResult> run(const Program& program, std::span<const std::string> inputs,
                             const RunLimits& limits) const;

  // e.g. "python 3.11.7, bubblewrap 0.8.0", for the output's head.
  const std::string& description() const { return description_; }

 private:
  friend class Jail;
  std::vector<std::string> command(const Program& program, const RunLimits& limits, int uid) const;

  SandboxOptions options_;
  std::string bwrap_path_, python_path_, description_;
  std::vector<std::string> mounts_;       // bwrap arguments that show the system and the interpreter
  std::vector<std::string> import_path_;  // sys.path inside
  bool drop_user_ = false;                // root with a full range of ids: a true unprivileged user, no user namespace
  mutable std::atomic<unsigned> next_uid_{0};
};

}  // namespace banyan::code
