// What is open and what runs on this machine, from /proc.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

inline int open_descriptors() {
  int n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

// Processes whose command line holds `mark`. The sandbox has its limits there, and forks inherit it.
inline int processes_with(const std::string& mark) {
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    std::string command;
    // getline, since a stream iterator throws when the process ends meanwhile.
    for (std::string part; std::getline(file, part, '\0');) command += part + ' ';
    if (command.find(mark) != std::string::npos) ++n;
  }
  return n;
}

// By how much times grow because more processes want to run than there are processors; at least 1.
inline double crowding() {
  double load = 0;
  getloadavg(&load, 1);
  return std::max(1.0, load / std::max(1u, std::thread::hardware_concurrency()));
}
