// Processor time of a draw, per row; median. Two kinds of rows: "peaked" as language models make them (a hundred likely
// tokens over a low background) and "broad" (normal, sigma 2), where top-p 0.95 keeps thousands.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <vector>

#include "banyan/sampler.hpp"

namespace {

using namespace banyan;

constexpr std::int64_t kRows = 16;
constexpr int kRepeats = 15;

std::vector<std::vector<float>> make_rows(std::int64_t vocab_size, bool peaked) {
  std::mt19937 rng(1);
  std::normal_distribution<float> background(0.0F, 2.0F);
  std::exponential_distribution<float> peak(0.4F);
  std::uniform_int_distribution<std::int64_t> place(0, vocab_size - 1);
  std::vector<std::vector<float>> rows(kRows, std::vector<float>(static_cast<std::size_t>(vocab_size)));
  for (auto& row : rows) {
    for (auto& x : row) x = background(rng);
    for (int i = 0; peaked && i < 100; ++i) row[static_cast<std::size_t>(place(rng))] = 8.0F + peak(rng);
  }
  return rows;
}

// Median over repeats of the processor time per row, in microseconds.
double measure(const std::vector<std::vector<float>>& rows, const SamplerOptions& options) {
  Sampler sampler;
  Choice choice;
  std::vector<double> us;
  std::uint64_t position = 0;
  for (int r = 0; r <= kRepeats; ++r) {
    const std::clock_t begin = std::clock();
    for (const auto& row : rows) sampler.draw(row, options, {1, 2, 3, position++}, {}, 0, 0, choice);
    const double t_us = 1e6 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    if (r > 0) us.push_back(t_us / static_cast<double>(rows.size()));  // the first warms up
  }
  std::nth_element(us.begin(), us.begin() + kRepeats / 2, us.end());
  return us[kRepeats / 2];
}

}  // namespace

int main() {
  const std::pair<const char*, SamplerOptions> modes[] = {
      {"greedy", {.temperature = 0}},
      {"T=1", {}},
      {"T=0.8 top-p 0.95", {.temperature = 0.8, .top_p = 0.95}},
      {"top-k 50", {.top_k = 50}},
      {"T=0.8 top-k 50 top-p 0.95 min-p 0.02", {.temperature = 0.8, .top_k = 50, .top_p = 0.95, .min_p = 0.02}},
  };
  std::printf("%-10s %-8s %-38s %10s\n", "vocab_size", "rows", "options", "us_per_row");
  for (const std::int64_t vocab_size : {49152, 128256, 262144}) {
    for (const bool peaked : {true, false}) {
      const auto rows = make_rows(vocab_size, peaked);
      for (const auto& [name, options] : modes) {
        std::printf("%-10lld %-8s %-38s %10.1f\n", static_cast<long long>(vocab_size), peaked ? "peaked" : "broad",
                    name, measure(rows, options));
      }
    }
  }
  return EXIT_SUCCESS;
}
