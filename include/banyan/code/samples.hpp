// Samples as JSON Lines: written while a run goes on, read back after any end of it. Layer 8.
//
// A line is one JSON object, valid UTF-8, with no NaN or infinity in it (they become null). A line counts when its line
// end is on disk; a process that was killed leaves at most one torn line at the end, which the next writer cuts off.
// Files that are read are untrusted: they are read line by line, and a line of more than 16 MiB is an error by itself.
// Threads: a writer may be used by several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "banyan/error.hpp"

namespace banyan::code {

using SampleKey = std::pair<std::string, std::int64_t>;  // task_id, sample_id

struct SampleRecord {
  std::string task_id;
  std::int64_t sample_id = 0;
  std::string completion;           // the program; with task_id all that human-eval's own evaluator needs
  std::optional<std::string> text;  // what the model wrote, as it came
  std::optional<std::int64_t> n_prompt_tokens, n_tokens;
  std::string finish_reason;  // "" if not known, like those below
  std::optional<double> cumulative_logprob;
  std::optional<std::uint64_t> seed;
  std::string model, version;
  std::string extra_json;  // "" or a JSON object, whose members follow ours ("sampler", …)

  SampleKey key() const { return {task_id, sample_id}; }
};

// One line without its end. Throws Error{bad_input} if extra_json is no object.
std::string to_json_line(const SampleRecord& record);

// A file of JSON Lines that grows line by line; every line is handed to the system before append() returns.
class JsonLinesWriter {
 public:
  // `resume`: goes on with what is there, after cutting off a torn last line; else an existing file is replaced. Throws
  // Error{bad_file}.
  JsonLinesWriter(const std::string& path, bool resume);
  ~JsonLinesWriter();
  JsonLinesWriter(const JsonLinesWriter&) = delete;
  JsonLinesWriter& operator=(const JsonLinesWriter&) = delete;

  // Throws Error{device} when the disk is full; what was written before stays whole.
  void append(std::string_view line);

 private:
  struct File;
  std::unique_ptr<File> file_;
};

struct SampleFile {
  std::vector<SampleRecord> samples;
  std::vector<Error> errors;  // the first 1,000 lines that are no sample, or repeat a key: names file and line
  std::int64_t n_errors = 0;  // all of them
};

// Lines without sample_id (human-eval's own files) get the numbers 0, 1, … within their task. A last line without its
// end counts if it is whole. Throws Error{bad_file} when the file cannot be read.
SampleFile read_samples(const std::string& path);

// What a resumed run need not do again. Empty if there is no file. Torn and malformed lines do not count.
std::set<SampleKey> done_samples(const std::string& path);

struct MergeReport {
  std::int64_t n_samples = 0;     // written
  std::int64_t n_duplicates = 0;  // lines left out because the same sample was there
};

// Joins the files of a run with --shard into one, in order. A sample that stands twice with the same completion is
// written once; with different completions: Error{bad_input} that names both lines. A malformed line: Error{bad_file}.
// The output appears whole or not at all.
MergeReport merge_samples(const std::vector<std::string>& inputs, const std::string& output);

// Writes beside `path`, then renames over it. Throws Error{bad_file}, Error{device} when the disk is full.
void write_file_atomically(const std::string& path, std::string_view content);

}  // namespace banyan::code
