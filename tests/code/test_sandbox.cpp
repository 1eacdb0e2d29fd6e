#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <doctest/doctest.h>
#include <fstream>
#include <future>
#include <string>
#include <unistd.h>
#include <vector>

#include "banyan/code/sandbox.hpp"
#include "banyan/error.hpp"
#include "code/proc.hpp"
#include "code/sandbox_fixture.hpp"
#include "code/temp_folder.hpp"

using namespace banyan;
using namespace banyan::code;

namespace {

RunResult run_script(const Sandbox& sandbox, const std::string& source, const std::string& input = "",
                     const RunLimits& limits = {}) {
  return sandbox.run({ProgramKind::script, source, ""}, {&input, 1}, limits).front();
}

RunLimits one_second() {
  RunLimits limits;
  limits.time_ms = 1000;
  return limits;
}

double seconds_of(const auto& action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

TEST_CASE("a program reads stdin, writes stdout, and its end is told") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  MESSAGE(sandbox->description());
  CHECK(run_script(*sandbox, "print(sum(map(int, input().split())))", "1 2 3\n").output == "6\n");
  CHECK(run_script(*sandbox, "import sys\nsys.exit()").status == RunStatus::ok);
  CHECK(run_script(*sandbox, "print(4)\nexit(0)").output == "4\n");
  CHECK(run_script(*sandbox, "import sys\nsys.exit(3)").status == RunStatus::runtime_error);
  CHECK(run_script(*sandbox, "import os\nos.kill(os.getpid(), 11)").status == RunStatus::runtime_error);
  CHECK(run_script(*sandbox, "def (").status == RunStatus::compile_error);
  CHECK(run_script(*sandbox, std::string("x = '\0'", 7)).status == RunStatus::compile_error);
  const RunResult failed = run_script(*sandbox, "print(1)\n1/0\n");
  CHECK(failed.status == RunStatus::runtime_error);
  CHECK(failed.error.find("ZeroDivisionError") != std::string::npos);
}

TEST_CASE("a program is a script of its own: main guard, exit functions, threads, recursion, /dev/stdin") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  CHECK(run_script(*sandbox, "def f():\n  global x\n  x = 5\nif __name__ == '__main__':\n  f()\n  print(x)").output ==
        "5\n");
  CHECK(run_script(*sandbox, "import atexit\natexit.register(lambda: print('end'))\nprint('begin')").output ==
        "begin\nend\n");
  CHECK(run_script(*sandbox,
                   "import threading, time\n"
                   "threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()")
            .output == "late\n");
  CHECK(run_script(*sandbox,
                   "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(64 << 20)\n"
                   "def f(n): return 0 if n == 0 else 1 + f(n - 1)\n"
                   "t = threading.Thread(target=lambda: print(f(50000)))\nt.start()\nt.join()")
            .output == "50000\n");
  CHECK(run_script(*sandbox, "print(open('/dev/stdin').read() + open(0).read())", "ab").output == "abab\n");
  CHECK(run_script(*sandbox, "print(*{'a', 'b', 'c'})").output ==
        run_script(*sandbox, "print(*{'a', 'b', 'c'})").output);
}

TEST_CASE("BL-47: nothing of a run survives its time limit") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  const std::vector<std::string> hostile = {
      "import os, time\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(1000)\nwhile True: pass",
      "import signal\nfor s in (15, 2, 1, 24): signal.signal(s, signal.SIG_IGN)\nwhile True: pass",
      "import os, time\nos.close(1)\nos.close(2)\ntime.sleep(1000)",
      "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
      // double fork and new session: an orphan that writes after the verdict
      "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    time.sleep(2.5)\n"
      "    open('/tmp/late', 'w').write('x')\n  os._exit(0)\nwhile True: time.sleep(1)",
  };
  const int before = open_descriptors();
  RunLimits limits = one_second();
  limits.memory_bytes += getpid();  // a number of our own
  std::vector<std::future<std::pair<RunStatus, double>>> runs;
  for (const std::string& source : hostile)
    runs.push_back(std::async(std::launch::async, [&, source] {
      RunResult result;
      const double s = seconds_of([&] { result = run_script(*sandbox, source, "", limits); });
      return std::pair(result.status, s);
    }));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    CAPTURE(hostile[i]);
    const auto [status, s] = runs[i].get();
    CHECK(status == RunStatus::time_limit);
    CHECK(s < 2.0 * crowding());
  }
  CHECK(processes_with(std::to_string(limits.memory_bytes)) == 0);
  CHECK(open_descriptors() == before);
}

TEST_CASE("BL-47: an orphan ends with its test, before the next one") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  const std::string source =
      "import os, time\n"
      "if input() == 'leave':\n"
      "  if os.fork() == 0:\n    os.setsid()\n    time.sleep(0.3)\n    open('/tmp/late', 'w').close()\n    "
      "os._exit(0)\n"
      "  print('left')\n"
      "else:\n  time.sleep(0.6)\n  print(os.path.exists('/tmp/late'))\n";
  const std::vector<std::string> inputs = {"leave\n", "look\n"};
  const auto results = sandbox->run({ProgramKind::script, source, ""}, inputs, {});
  CHECK(results[0].output == "left\n");
  CHECK(results[1].output == "False\n");
}

TEST_CASE("BL-48: large input and output, output before input, input never read") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  std::string numbers;
  for (int i = 0; i < 200'000; ++i) numbers += "123456789\n";
  RunResult result;
  const double s = seconds_of([&] {
    result = run_script(*sandbox, "import sys\nd = sys.stdin.read()\nprint('x' * 200000)\nprint(len(d))", numbers);
  });
  CHECK(result.output == std::string(200'000, 'x') + "\n2000000\n");
  CHECK(s < 1.0 * crowding());
  CHECK(run_script(*sandbox, "print('y' * 300000, flush=True)\nprint(len(input()))", "abc\n").output ==
        std::string(300'000, 'y') + "\n3\n");
  CHECK(run_script(*sandbox, "print('done')", numbers).output == "done\n");
  CHECK(run_script(*sandbox, "print(10**4999 + 7)").output == "1" + std::string(4998, '0') + "7\n");
  CHECK(run_script(*sandbox, "print(int(input()) + 1)", "1" + std::string(4999, '0')).output ==
        "1" + std::string(4998, '0') + "1\n");
}

TEST_CASE("BL-49: the binary streams are there") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  CHECK(run_script(*sandbox, "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])", "abc").output ==
        "cba");
  CHECK(run_script(*sandbox, "import sys\nfor line in sys.stdin: sys.stdout.write(line.upper())", "a\nb\n").output ==
        "A\nB\n");
  CHECK(run_script(*sandbox, "import os\nos.write(1, os.read(0, 100))", "raw").output == "raw");
}

TEST_CASE("limits: memory, output, files, processes") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  CHECK(run_script(*sandbox, "x = bytearray(3 << 30)").status == RunStatus::memory_limit);
  CHECK(run_script(*sandbox, "x = []\nwhile True: x.append(bytes(1 << 20))").status == RunStatus::memory_limit);
  RunLimits small;
  small.output_bytes = 1 << 20;
  small.tmp_bytes = 1 << 20;
  small.time_ms = 2000;
  CHECK(run_script(*sandbox, "while True: print('x' * 1000)", "", small).status == RunStatus::output_limit);
  CHECK(run_script(*sandbox,
                   "try:\n  for i in range(9):\n    open('/tmp/f%d' % i, 'wb').write(b'x' * (1 << 19))\n"
                   "except OSError as e: print(e.errno)",
                   "", small)
            .output == "28\n");
  CHECK(
      run_script(*sandbox,
                 "import os\nn = 0\ntry:\n  while n < 500:\n    if os.fork() == 0:\n      import time; time.sleep(9)\n"
                 "    n += 1\nexcept OSError: print(n < 20)")
          .output == "True\n");
  CHECK(run_script(*sandbox, "import os\nwhile True: os.fork()", "", small).status != RunStatus::ok);
}

TEST_CASE("inside there is no network, no home, no write access, no privilege, no way to more namespaces") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  const std::string source = R"(
import os, socket, ctypes
def tries(f):
    try:
        f()
        return 'allowed'
    except Exception:
        return 'denied'
print(tries(lambda: socket.create_connection(('1.1.1.1', 53), 1)))
print(tries(lambda: open('/usr/x', 'w')))
print(tries(lambda: open('/x', 'w')))
print(tries(lambda: open('/dev/x', 'w')))
print(tries(lambda: open('/proc/sys/kernel/core_pattern', 'w')))
print(tries(lambda: open('/etc/shadow')))
print(tries(lambda: os.setuid(0)))
print(os.getuid() >= 65520 and os.getgroups() in ([], [65534]))
print([l.split()[1].strip('0') for l in open('/proc/self/status') if l.startswith(('CapEff', 'CapPrm', 'CapAmb'))])
print(sorted(set(os.listdir('/')) - {'bin', 'dev', 'etc', 'lib', 'lib32', 'lib64', 'libx32', 'proc', 'sbin', 'tmp', 'usr'}))
libc = ctypes.CDLL(None, use_errno=True)
print(libc.unshare(0x10000000), libc.syscall(319, b'x', 0))
print(sorted(os.environ) == sorted(set(os.environ) & {'PATH', 'HOME', 'LANG', 'PWD', 'PYTHONHASHSEED', 'LC_CTYPE',
      'PYTHONINTMAXSTRDIGITS', 'PYTHONDONTWRITEBYTECODE', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'}))
print(open('/tmp/x', 'w').write('ok'))
)";
  setenv("BANYAN_TEST_SECRET", "must not be seen", 1);
  const RunResult result = run_script(*sandbox, source);
  CAPTURE(result.error);
  // An interpreter outside /usr shows its own folders, and only them.
  CAPTURE(result.output);
  CHECK(result.output.starts_with("denied\ndenied\ndenied\ndenied\ndenied\ndenied\ndenied\nTrue\n['', '', '']\n["));
  CHECK(result.output.ends_with("]\n-1 -1\nTrue\n2\n"));
}

TEST_CASE("call: arguments in, JSON out, nothing of a print in between") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  const auto call = [&](const std::string& source, const std::string& input) {
    return sandbox->run({ProgramKind::call, source, "f"}, {&input, 1}, {}).front();
  };
  CHECK(call("def f(a, b):\n  print('noise')\n  return [a, b]", "[1, \"x\"]").output == "[1, \"x\"]");
  CHECK(call("class Solution:\n  def f(self, a: List[int]) -> int: return sum(a)", "[[1, 2, 3]]").output == "6");
  CHECK(call("def f(n): return n + 1", "[" + std::string(5000, '9') + "]").output == "1" + std::string(5000, '0'));
  CHECK(call("def f(d): return d[3]", "[{\"3\": \"three\"}]").output == "\"three\"");
  CHECK(call("def g(): pass", "[]").status == RunStatus::runtime_error);
  CHECK(call("def f(): exit(0)", "[]").status == RunStatus::runtime_error);
  CHECK(call("def f(): return Counter('aab')", "[]").output == "{\"a\": 2, \"b\": 1}");
}

TEST_CASE("check: asserts decide, and leaving early does not pass") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  const std::string mark = "mark";
  const auto check = [&](const std::string& source) {
    return sandbox->run({ProgramKind::check, source, ""}, {&mark, 1}, {}).front();
  };
  CHECK(check("assert 1 == 1").output == mark);
  CHECK(check("assert 1 == 2").status == RunStatus::failed_assert);
  CHECK(check("import os\nos._exit(0)").output != mark);
  CHECK(check("raise SystemExit").status == RunStatus::runtime_error);
  CHECK(check("print('mark')\nimport sys\nsys.exit(0)").output != mark);
}

TEST_CASE("a program that ends its supervisor spoils only its own test") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  const std::vector<std::string> inputs = {"kill\n", "ok\n", "kill\n", "ok\n"};
  const auto results = sandbox->run(
      {ProgramKind::script, "import os\nif input() == 'kill': os.kill(os.getppid(), 9)\nprint('fine')", ""}, inputs,
      {});
  CHECK(results[0].status == RunStatus::runtime_error);
  CHECK(results[1].output == "fine\n");
  CHECK(results[2].status == RunStatus::runtime_error);
  CHECK(results[3].output == "fine\n");
}

TEST_CASE("what a test wrote is gone for the next one") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  const std::string source =
      "import os\nprint(os.listdir('/tmp'), os.listdir('/dev/shm'))\n"
      "os.makedirs('/tmp/a/b')\nopen('/tmp/a/b/c', 'w').close()\nos.symlink('/usr', '/tmp/l')\n"
      "open('/dev/shm/x', 'w').close()\n";
  const std::vector<std::string> inputs(2, "");
  const auto results = sandbox->run({ProgramKind::script, source, ""}, inputs, {});
  CHECK(results[0].output == "[] []\n");
  CHECK(results[1].output == "[] []\n");
}

TEST_CASE("after max_timeouts the other tests are not run") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  RunLimits limits;
  limits.time_ms = 200;
  limits.max_timeouts = 2;
  const std::vector<std::string> inputs(5, "");
  const auto results = sandbox->run({ProgramKind::script, "while True: pass", ""}, inputs, limits);
  CHECK(results[1].status == RunStatus::time_limit);
  CHECK(results[2].status == RunStatus::not_run);
  CHECK(results[4].status == RunStatus::not_run);
}

TEST_CASE("without bubblewrap or an interpreter it refuses and says what to install") {
  const auto message_of = [](SandboxOptions options) -> std::string {
    try {
      Sandbox sandbox(std::move(options));
      return "";
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::unsupported);
      return error.what();
    }
  };
  CHECK(message_of({.bwrap = "no-such-bwrap"}).find("apt-get install bubblewrap") != std::string::npos);
  CHECK(message_of({.bwrap = "/bin/false"}).find("namespaces") != std::string::npos);
  CHECK(message_of({.bwrap = "/bin/true", .python = "no-such-python"}).find("no-such-python") != std::string::npos);
}

TEST_CASE("more folders can be shown, and only ones that are there") {
  if (!shared_sandbox()) return;
  const TempFolder folder;
  const std::string file = folder.write("shown/x", "seen");
  const Sandbox sandbox({.extra_read_only = {folder.path("shown")}});
  CHECK(run_script(sandbox, "print(open('" + file + "').read())").output == "seen\n");
  CHECK(run_script(sandbox, "open('" + file + "', 'w')").status == RunStatus::runtime_error);
  CHECK_THROWS_AS(Sandbox({.extra_read_only = {folder.path("absent")}}), Error);
}

TEST_CASE("starting a program costs less than 50 ms, each further test a fraction of it") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  double program_ms = 1e9;  // the best of ten, since other tests may run beside
  for (int i = 0; i < 10; ++i)
    program_ms = std::min(program_ms, 1e3 * seconds_of([&] { run_script(*sandbox, "print(0)"); }));
  constexpr int kTests = 100;
  const std::vector<std::string> inputs(kTests, "");
  const double s = seconds_of([&] { sandbox->run({ProgramKind::script, "print(0)", ""}, inputs, {}); });
  MESSAGE("a program with one test: " << program_ms
                                      << " ms; each further test: " << (1e3 * s - program_ms) / (kTests - 1) << " ms");
  CHECK(program_ms < 50 * crowding());
}
