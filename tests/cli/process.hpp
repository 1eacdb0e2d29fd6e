// Runs the banyan binary as a process, as a user does: arguments, environment, input; exit code and both outputs.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <map>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "code/temp_folder.hpp"

namespace banyan::test {

struct Outcome {
  int code = -1;  // exit code, or 128 + signal
  std::string out, err;
};

struct Start {
  std::vector<std::string> args;
  std::map<std::string, std::string> env = {};
  std::string stdout_path = {};  // instead of catching it; "-" closes it
};

// A started process. Its environment has no BANYAN_ variable but those given, and a HOME of its own.
class Process {
 public:
  explicit Process(const Start& start) {
    const std::string out = start.stdout_path.empty() ? folder_.path("out") : start.stdout_path;
    pid_ = fork();
    if (pid_ != 0) return;
    const auto redirect = [](const std::string& path, int fd) {
      const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      dup2(file, fd);
      close(file);
    };
    if (out == "-") {
      close(STDOUT_FILENO);
    } else {
      redirect(out, STDOUT_FILENO);
    }
    redirect(folder_.path("err"), STDERR_FILENO);
    std::vector<std::string> env{"HOME=" + folder_.path(), "OMP_NUM_THREADS=2"};
    if (const char* path = std::getenv("PATH")) env.push_back(std::string("PATH=") + path);
    if (const char* asan = std::getenv("ASAN_OPTIONS")) env.push_back(std::string("ASAN_OPTIONS=") + asan);
    for (const auto& [name, value] : start.env) env.push_back(name + "=" + value);
    std::vector<char*> argv{const_cast<char*>(BANYAN_CLI)}, envp;
    for (const auto& a : start.args) argv.push_back(const_cast<char*>(a.c_str()));
    for (const auto& e : env) envp.push_back(const_cast<char*>(e.c_str()));
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    execve(BANYAN_CLI, argv.data(), envp.data());
    _exit(127);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (pid_ <= 0) return;
    kill(SIGKILL);
    wait();
  }

  void kill(int signal) const {
    if (pid_ > 0) ::kill(pid_, signal);  // -1 would be everybody
  }
  bool running() {
    if (pid_ <= 0) return false;
    if (waitpid(pid_, &status_, WNOHANG) == 0) return true;
    pid_ = -1;
    return false;
  }
  Outcome wait() {
    if (pid_ > 0) waitpid(pid_, &status_, 0);
    pid_ = -1;
    return {WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_), folder_.read("out"),
            folder_.read("err")};
  }

 private:
  TempFolder folder_;
  pid_t pid_ = -1;
  int status_ = 0;
};

inline Outcome run(const Start& start) { return Process(start).wait(); }
inline Outcome run(const std::vector<std::string>& args) { return run(Start{args}); }

}  // namespace banyan::test
