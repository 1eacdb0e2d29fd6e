#include "banyan/code/sandbox.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <unistd.h>

#include "banyan/error.hpp"
#include "jail.hpp"
#include "process.hpp"
#include "seccomp.hpp"

namespace banyan::code {

namespace {

namespace fs = std::filesystem;

// Ids that no distribution gives away (65534 is "nobody", which real services use).
constexpr int kFirstUid = 65520, kUids = 14;
constexpr int kNobody = 65534;

const std::vector<std::string>& program_environment() {
  static const std::vector<std::string> variables = {
      "PATH=/usr/local/bin:/usr/bin:/bin",
      "HOME=/tmp",
      "LANG=C.UTF-8",
      "PYTHONHASHSEED=0",         // the order of sets, and so some outputs, must not change from run to run
      "PYTHONINTMAXSTRDIGITS=0",  // answers of more than 4,300 digits are answers
      "PYTHONDONTWRITEBYTECODE=1",
      "OMP_NUM_THREADS=1",
      "OPENBLAS_NUM_THREADS=1",  // numpy's threads would each take address space and a process
  };
  return variables;
}

bool is_below(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder.ends_with('/') ? folder : folder + "/");
}

// Whether this user namespace has all ids of the range, so that root can become one of them.
bool has_id_range(const char* map_file) {
  std::ifstream map(map_file);
  for (std::int64_t inside = 0, outside = 0, n = 0; map >> inside >> outside >> n;)
    if (inside <= kFirstUid && kFirstUid + kUids <= inside + n) return true;
  return false;
}

// Shows a path at its own place (a name like "bind" would be std::bind where that is known). bubblewrap would make
// missing parents for their owner alone.
void show(std::vector<std::string>& mounts, const std::string& path) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
    mounts.insert(mounts.end(), {"--perms", "0755", "--dir", path.substr(0, slash)});
  mounts.insert(mounts.end(), {"--ro-bind-try", path, path});
}

// The system, without home, /root, /var, /srv, /run, /mnt, and with a few harmless files of /etc.
std::vector<std::string> system_mounts() {
  std::vector<std::string> mounts = {"--ro-bind", "/usr", "/usr"};
  for (const char* folder : {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}) {
    if (fs::is_symlink(folder))
      mounts.insert(mounts.end(), {"--symlink", fs::read_symlink(folder).string(), folder});
    else
      show(mounts, folder);
  }
  for (const char* path : {"/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"}) show(mounts, path);
  return mounts;
}

struct Interpreter {
  std::string path, version;
  std::vector<std::string> prefixes, import_path;
};

// Asks the interpreter itself, since the name on PATH may be a wrapper or belong to a virtual environment.
Interpreter ask_interpreter(const std::string& found) {
  static const char* const kQuestion =
      "import sys\n"
      "print(getattr(sys, '_base_executable', None) or sys.executable)\n"
      "print('%d.%d.%d' % sys.version_info[:3])\n"
      "print(sys.prefix)\n"
      "print(sys.base_prefix)\n"
      "print('\\n'.join(p for p in sys.path if p))\n";
  std::vector<std::string> environment;
  for (const char* name : {"PATH", "HOME", "LD_LIBRARY_PATH", "PYENV_ROOT", "PYENV_VERSION"})
    if (const char* value = std::getenv(name)) environment.push_back(std::string(name) + "=" + value);
  const CommandResult answer = run_command({found, "-I", "-c", kQuestion}, environment);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < answer.output.size();) {
    const std::size_t end = std::min(answer.output.find('\n', begin), answer.output.size());
    lines.push_back(answer.output.substr(begin, end - begin));
    begin = end + 1;
  }
  if (answer.exit_code != 0 || lines.size() < 5)
    throw Error(ErrorCode::unsupported, found, "is not a working Python 3.8 or later: " + answer.error);
  Interpreter python{lines[0], lines[1], {lines[2], lines[3]}, {}};
  std::error_code ignored;
  for (std::size_t i = 4; i < lines.size(); ++i) {
    const bool inside = is_below(lines[i], "/usr") || is_below(lines[i], lines[2]) || is_below(lines[i], lines[3]);
    if (inside && fs::exists(lines[i], ignored)) python.import_path.push_back(lines[i]);
  }
  return python;
}

// Only what an interpreter needs of its prefix: a prefix can be somebody's home.
void add_interpreter(std::vector<std::string>& mounts, const Interpreter& python) {
  for (const std::string& prefix : python.prefixes) {
    if (is_below(prefix, "/usr")) continue;
    for (const char* part : {"/bin", "/lib", "/lib64"}) show(mounts, prefix + part);
  }
  if (!is_below(python.path, "/usr")) show(mounts, python.path);
}

Error cannot_start(const std::string& reason) {
  return Error(
      ErrorCode::unsupported, "sandbox",
      fmt::format("bubblewrap cannot start a program here ({}). Programs are run in no other way. It needs the "
                  "right to make namespaces: in a container start it with --privileged; on Ubuntu 24.04 run "
                  "as root or allow it with 'sysctl -w kernel.apparmor_restrict_unprivileged_userns=0'. If "
                  "the interpreter lies in an unusual place, name another one or give its folders as extra "
                  "read-only paths",
                  reason.substr(0, reason.find_last_not_of(" \n") + 1)));
}

}  // namespace

Sandbox::Sandbox(SandboxOptions options) : options_(std::move(options)) {
  bwrap_path_ = find_executable(options_.bwrap);
  if (bwrap_path_.empty())
    throw Error(ErrorCode::unsupported, options_.bwrap,
                "bubblewrap is not installed, and untrusted programs are run in no other way; install it (Debian and "
                "Ubuntu: apt-get install bubblewrap)");
  const std::string found = find_executable(options_.python);
  if (found.empty())
    throw Error(ErrorCode::unsupported, options_.python, "there is no such interpreter; install python3 or name one");

  const Interpreter python = ask_interpreter(found);
  const CommandResult bwrap = run_command({bwrap_path_, "--version"}, {});
  python_path_ = python.path;
  import_path_ = python.import_path;
  description_ = fmt::format("python {}, {}", python.version, bwrap.output.substr(0, bwrap.output.find('\n')));
  mounts_ = system_mounts();
  add_interpreter(mounts_, python);
  for (const std::string& path : options_.extra_read_only) {
    if (!fs::exists(path)) throw Error(ErrorCode::bad_file, path, "is to be shown in the sandbox, but is not there");
    show(mounts_, path);
  }
  drop_user_ = geteuid() == 0 && has_id_range("/proc/self/uid_map") && has_id_range("/proc/self/gid_map");

  const RunLimits limits;
  const std::string no_input;
  try {
    const RunResult probe = run({ProgramKind::script, "print(1)", ""}, {&no_input, 1}, limits).front();
    if (probe.output != "1\n") throw cannot_start("a first program failed: " + probe.error);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) throw;
    throw cannot_start(error.what());
  }
}

std::vector<std::string> Sandbox::command(const Program& program, const RunLimits& limits, int uid) const {
  std::vector<std::string> c = {bwrap_path_,     "--unshare-pid",        "--unshare-net",     "--unshare-ipc",
                                "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent", "--new-session"};
  const auto add = [&](std::initializer_list<std::string> more) { c.insert(c.end(), more); };
  add({"--info-fd", std::to_string(kInfoFd)});
  if (!seccomp_filter().empty()) add({"--seccomp", std::to_string(kSeccompFd)});
  if (drop_user_)
    // A user namespace made by root maps its user to root, who may write to /proc/sys and has no limit on processes;
    // so there is none, and the driver's first act is to become `uid`.
    add({"--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"});
  else
    add({"--unshare-user", "--uid", std::to_string(kNobody), "--gid", std::to_string(kNobody), "--disable-userns"});
  const std::string tmp = std::to_string(limits.tmp_bytes);
  add({"--proc", "/proc", "--remount-ro", "/proc"});
  add({"--dev", "/dev", "--perms", "1777", "--size", tmp, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"});
  add({"--perms", "1777", "--size", tmp, "--tmpfs", "/tmp", "--chdir", "/tmp"});
  c.insert(c.end(), mounts_.begin(), mounts_.end());  // after /tmp, since an interpreter may lie below it
  add({"--remount-ro", "/"});

  static constexpr const char* kKinds[] = {"script", "call", "check"};
  add({"--", python_path_, "-S", "-s", "-c", kDriverSource, kKinds[static_cast<int>(program.kind)], program.entry_point,
       std::to_string(uid), std::to_string(limits.memory_bytes), std::to_string(limits.output_bytes),
       std::to_string(cpu_stop_s(limits)), std::to_string(limits.n_processes)});
  c.insert(c.end(), import_path_.begin(), import_path_.end());
  return c;
}

std::vector<RunResult> Sandbox::run(const Program& program, std::span<const std::string> inputs,
                                    const RunLimits& limits) const {
  std::vector<RunResult> results(inputs.size());
  // Sandboxes that run at the same time have different users, so that their processes are counted apart.
  const int uid = drop_user_ ? kFirstUid + static_cast<int>(next_uid_++ % kUids) : 0;
  const std::vector<std::string> start = command(program, limits, uid);
  std::unique_ptr<Jail> jail;
  const auto restart_if_gone = [&] {
    if (jail && jail->alive()) return;
    jail.reset();
    jail = std::make_unique<Jail>(start, program_environment(), program.source);
  };

  int n_timeouts = 0;
  for (std::size_t i = 0; i < inputs.size() && n_timeouts < limits.max_timeouts; ++i) {
    restart_if_gone();
    if (!jail->compile_error().empty()) {
      for (RunResult& result : results) {
        result.status = RunStatus::compile_error;
        result.error = jail->compile_error();
      }
      break;
    }
    bool ended_late = false;
    results[i] = jail->run(program.kind, inputs[i], limits, ended_late);
    if (ended_late) results[i] = jail->run(program.kind, inputs[i], limits, ended_late);
    if (results[i].status == RunStatus::time_limit) ++n_timeouts;
  }
  return results;
}

}  // namespace banyan::code
