// The JSON file that a bench leaves in bench/results: what was measured, on what, of which commit, by which command.
//
//     {bench, commit, date, machine, gpu, command, roofs: {...}, rows: [...]}
//
// Knows nothing of what the rows mean, but every row of one file has the same keys: add_row() asserts it by throwing.
// scripts/bench_table.py makes the table that a person reads. One thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace banyan::bench {

class ResultFile {
 public:
  // `bench`: NAME of NAME.json. argv becomes `command`; the commit is what git says in the working folder
  // ("…-dirty" with changes outside bench/results), or "unknown".
  ResultFile(std::string bench, int argc, const char* const* argv);

  // `backend`: what computed, as Backend::describe() says; stands behind the processor's name.
  void set_machine(const std::string& backend);
  void set_gpu(const std::string& name);  // null without
  // The unit stands in the name: "read_gb_s".
  void set_roof(const std::string& name, double value);
  // Numbers are rounded to six significant digits, those that are not finite become null. Throws std::logic_error where
  // the keys are not those of the first row.
  void add_row(nlohmann::ordered_json row);
  // Puts the rows of an earlier run of the same bench in front, if the file is there, and its commands beside ours: a
  // table may take several runs. Throws std::runtime_error naming the file, std::logic_error for rows of other keys.
  void prepend_rows_of(const std::string& path);
  // Throws std::runtime_error naming the file.
  void write(const std::string& path) const;

 private:
  nlohmann::ordered_json file_;
};

// --- roofs -----------------------------------------------------------------------------------------------------------

// GB/s at which n_threads (0: all cores) read `n_bytes` of memory, each its share, again and again. Median.
double read_gb_s(std::int64_t n_bytes, int n_threads);

// --- small statistics ------------------------------------------------------------------------------------------------

// Median and half the distance between the quartiles, in percent of the median.
struct Summary {
  double median = 0, spread_percent = 0;
};
Summary summarize(std::vector<double> values);

}  // namespace banyan::bench
