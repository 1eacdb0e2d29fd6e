#include "result_file.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <stdexcept>
#include <thread>
#include <utility>

namespace banyan::bench {
namespace {

using nlohmann::ordered_json;

// First line that a shell command prints; empty where it fails.
std::string first_line(const char* command) {
  std::string line;
  if (FILE* pipe = popen(command, "r")) {
    std::array<char, 256> buffer{};
    if (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) line = buffer.data();
    pclose(pipe);
  }
  while (!line.empty() && line.back() == '\n') line.pop_back();
  return line;
}

std::string commit() {
  const std::string id = first_line("git rev-parse --short=12 HEAD 2>/dev/null");
  if (id.empty()) return "unknown";
  const bool is_changed = !first_line("git status --porcelain -uno -- ':(top)' ':(top,exclude)bench/results'").empty();
  return is_changed ? id + "-dirty" : id;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%MZ", &utc);
  return text.data();
}

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

double rounded(double x) {
  if (x == 0) return 0;
  const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(x))));
  return std::round(x * scale) / scale;
}

ordered_json number(double x) { return std::isfinite(x) ? ordered_json(rounded(x)) : ordered_json(nullptr); }

}  // namespace

ResultFile::ResultFile(std::string bench, int argc, const char* const* argv) {
  std::string command;
  for (int i = 0; i < argc; ++i) {
    // Absolute paths by their last part alone: where files lie on this machine is nobody's business.
    const std::string word = argv[i];
    const bool is_path = i == 0 || word.starts_with('/');
    command += (i > 0 ? " " : "") + (is_path ? word.substr(word.rfind('/') + 1) : word);
  }
  file_ = {{"bench", std::move(bench)},
           {"commit", commit()},
           {"date", utc_now()},
           {"machine", processor()},
           {"gpu", nullptr},
           {"command", command},
           {"roofs", ordered_json::object()},
           {"rows", ordered_json::array()}};
}

void ResultFile::set_gpu(const std::string& name) { file_["gpu"] = name; }

void ResultFile::set_machine(const std::string& backend) { file_["machine"] = processor() + ", " + backend; }
void ResultFile::set_roof(const std::string& name, double value) { file_["roofs"][name] = number(value); }

void ResultFile::add_row(ordered_json row) {
  for (auto& value : row) {
    if (value.is_number_float()) value = number(value.get<double>());
  }
  ordered_json& rows = file_["rows"];
  const auto same_key = [](const auto& a, const auto& b) { return a.key() == b.key(); };
  if (!rows.empty()) {
    const auto a = rows[0].items(), b = row.items();
    if (rows[0].size() != row.size() || !std::equal(a.begin(), a.end(), b.begin(), same_key)) {
      throw std::logic_error("keys of row " + row.dump() + " are not those of row " + rows[0].dump());
    }
  }
  rows.push_back(std::move(row));
}

void ResultFile::prepend_rows_of(const std::string& path) {
  std::ifstream in(path);
  if (!in) return;
  const ordered_json earlier = ordered_json::parse(in, nullptr, false);
  if (earlier.is_discarded() || earlier.value("bench", "") != file_["bench"]) {
    throw std::runtime_error(path + ": is no result file of bench " + file_["bench"].dump());
  }
  const ordered_json later = std::exchange(file_["rows"], earlier["rows"]);
  for (const auto& row : later) add_row(row);
  file_["command"] = earlier["command"].get<std::string>() + "; " + file_["command"].get<std::string>();
}

void ResultFile::write(const std::string& path) const {
  std::ofstream out(path);
  // One row a line, so that two files can be compared line by line.
  out << "{\n";
  for (const auto& [key, value] : file_.items()) {
    if (key == "rows") continue;
    out << ordered_json(key) << ": " << value << ",\n";
  }
  out << "\"rows\": [\n";
  const ordered_json& rows = file_["rows"];
  for (std::size_t i = 0; i < rows.size(); ++i) out << rows[i] << (i + 1 < rows.size() ? ",\n" : "\n");
  out << "]}\n";
  out.close();
  if (!out) throw std::runtime_error(path + ": cannot be written");
}

double read_gb_s(std::int64_t n_bytes, int n_threads) {
  constexpr std::int64_t kLine = 64;  // bytes
  constexpr int kRounds = 9;
  const std::int64_t n = n_threads > 0 ? n_threads : std::max(1U, std::thread::hardware_concurrency());
  const std::int64_t n_lines = std::max<std::int64_t>(1, n_bytes / n / kLine);  // of each thread
  const std::int64_t n_passes = std::max<std::int64_t>(1, (std::int64_t{1} << 28) / n_bytes);
  std::vector<double> seconds;
  std::barrier start(n), end(n);
  const auto work = [&](bool is_timer) {
    std::vector<std::uint64_t> lines(static_cast<std::size_t>(n_lines * 8), 1);
    for (int round = 0; round < kRounds; ++round) {
      start.arrive_and_wait();
      const auto begin = std::chrono::steady_clock::now();
      std::array<std::uint64_t, 8> sum{};
      for (std::int64_t pass = 0; pass < n_passes; ++pass) {
        for (std::size_t i = 0; i < lines.size(); i += 8) {
          for (std::size_t j = 0; j < 8; ++j) sum[j] ^= lines[i + j];
        }
        // Neither the sums nor the passes may be found to be needless.
        asm volatile("" : "+m"(sum) : "r"(lines.data()) : "memory");
      }
      end.arrive_and_wait();
      if (!is_timer) continue;
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  };
  std::vector<std::thread> others;
  for (std::int64_t i = 1; i < n; ++i) others.emplace_back(work, false);
  work(true);
  for (std::thread& t : others) t.join();
  return 1e-9 * static_cast<double>(n_lines * kLine * n * n_passes) / summarize(seconds).median;
}

Summary summarize(std::vector<double> values) {
  if (values.empty()) return {std::nan(""), std::nan("")};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto i = static_cast<std::size_t>(place);
    const double next = values[std::min(i + 1, values.size() - 1)];
    return values[i] + (next - values[i]) * (place - static_cast<double>(i));
  };
  return {at(0.5), 50 * (at(0.75) - at(0.25)) / at(0.5)};
}

}  // namespace banyan::bench
