#include "kernels/cuda/algorithm_cache.hpp"

#include <cctype>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include "banyan/read_file.hpp"

namespace banyan::kernels::cuda {
namespace {

constexpr const char* kTitle = "banyan: cuBLASLt algorithms by shape, version 1";

std::string file_name(const std::string& machine) {
  std::string name = "products-" + machine + ".txt";
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.') c = '-';
  }
  return name;
}

// FNV-1a: finds torn and edited files; nobody is kept out by it.
std::uint64_t checksum(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325ULL;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return h;
}

// Everything but the last line, which is its checksum.
std::string body_of(const std::string& machine, const auto& algorithms) {
  std::string text = fmt::format("{}\n{}\n", kTitle, machine);
  for (const auto& [s, words] : algorithms) {
    text += fmt::format("{} {} {} {} {}", s.n_out, s.n_in, s.n_rows, static_cast<int>(s.y_type), int{s.accumulate});
    for (const std::uint64_t word : words) text += fmt::format(" {:x}", word);
    text += '\n';
  }
  return text;
}

}  // namespace

AlgorithmCache::AlgorithmCache(const std::string& directory, const std::string& machine,
                               std::function<void(std::string_view)> notice)
    : machine_(machine), notice_(std::move(notice)) {
  if (directory.empty()) return;
  path_ = (std::filesystem::path(directory) / file_name(machine)).string();
  read();
}

std::optional<AlgorithmCache::Algorithm> AlgorithmCache::find(const ProductShape& shape) const {
  const auto found = algorithms_.find(shape);
  return found != algorithms_.end() ? std::optional(found->second) : std::nullopt;
}

void AlgorithmCache::remember(const ProductShape& shape, const Algorithm& algorithm) {
  if (path_.empty()) return;
  read();
  algorithms_[shape] = algorithm;
  write();
}

// Adds what the file has to what is known.
void AlgorithmCache::read() {
  std::error_code error;
  if (!std::filesystem::exists(path_, error)) return;
  std::map<ProductShape, Algorithm> found;
  bool good = false;
  try {
    const std::string text = read_file(path_);
    const auto last_line = text.rfind('\n', text.size() < 2 ? 0 : text.size() - 2);
    const std::string body = text.substr(0, last_line == std::string::npos ? 0 : last_line + 1);
    std::istringstream lines(body);
    std::string title, machine;
    good = text == body + fmt::format("{:x}\n", checksum(body)) && std::getline(lines, title) && title == kTitle &&
           std::getline(lines, machine) && machine == machine_;
    for (std::string line; good && std::getline(lines, line);) {
      std::istringstream in(line);
      ProductShape s{};
      int type = 0;
      Algorithm words{};
      in >> s.n_out >> s.n_in >> s.n_rows >> type >> s.accumulate >> std::hex;
      for (std::uint64_t& word : words) in >> word;
      s.y_type = static_cast<DType>(type);
      good = static_cast<bool>(in);
      found.emplace(s, words);
    }
  } catch (const Error&) {
    good = false;
  }
  if (good) {
    found.merge(algorithms_);
    algorithms_ = std::move(found);
  } else if (notice_) {
    notice_(fmt::format("{}: is damaged or another machine's, and is written anew", path_));
  }
}

void AlgorithmCache::write() {
  const std::string body = body_of(machine_, algorithms_);
  const std::string beside = fmt::format("{}.{}.{:x}.part", path_, getpid(), reinterpret_cast<std::uintptr_t>(this));
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  {
    std::ofstream out(beside, std::ios::binary);
    out << body << fmt::format("{:x}\n", checksum(body));
    out.close();
    if (out) std::filesystem::rename(beside, path_, error);
    if (out && !error) return;
  }
  std::filesystem::remove(beside, error);
  if (notice_) notice_(fmt::format("{}: cannot be written; algorithms are picked anew each time", path_));
  path_.clear();
}

}  // namespace banyan::kernels::cuda
