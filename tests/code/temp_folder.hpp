// A folder of its own for one test, removed at its end.
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> n{0};
    path_ = std::filesystem::temp_directory_path() /
            ("banyan-code-" + std::to_string(getpid()) + "-" + std::to_string(n++));
    std::filesystem::create_directories(path_);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string path(const std::string& name = "") const {
    return name.empty() ? path_.string() : (path_ / name).string();
  }

  // Makes the folders on the way; returns the path.
  std::string write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path(name);
  }

  std::string read(const std::string& name) const {
    std::ifstream file(path_ / name, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  }

 private:
  std::filesystem::path path_;
};
