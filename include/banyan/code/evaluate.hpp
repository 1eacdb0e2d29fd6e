// From samples to verdicts: runs every sample on the tests of its problem, in parallel, and writes one line for each.
// Layer 8; above problems, samples, sandbox and compare; knows no model.
//
// A wrong program is a result, never an error. Programs that occur several times are run once: verdicts are remembered
// by (program, tests, limits) for the length of a call. Blocking; the callback runs on the caller's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "banyan/code/problems.hpp"
#include "banyan/code/samples.hpp"
#include "banyan/code/sandbox.hpp"

namespace banyan::code {

// The verdict of a sample is that of its first test that is not AC.
enum class Verdict : std::uint8_t {
  accepted,       // AC
  wrong_answer,   // WA
  runtime_error,  // RE
  time_limit,     // TLE
  memory_limit,   // MLE
  output_limit,   // OLE
  compile_error,  // CE
  unscored,       // the problem has no tests
};

std::string_view to_string(Verdict verdict);  // "AC", …, "unscored"

struct SampleResult {
  std::string task_id;
  std::int64_t sample_id = 0;
  Verdict verdict = Verdict::unscored;         // comparator apps
  Verdict verdict_strict = Verdict::unscored;  // comparator strict
  std::int64_t tests_passed = 0;               // comparator apps
  std::int64_t n_tests = 0;
  double time_ms = 0;  // wall time of all tests that were run
  // For picking among samples without knowing the answers: whether the public tests pass (comparator apps; unknown
  // without public tests), and a name for all outputs together, equal for programs with equal outputs.
  std::optional<bool> public_passed;
  std::string output_group;

  SampleKey key() const { return {task_id, sample_id}; }
};

// One line of the results file, without its end.
std::string to_json_line(const SampleResult& result);

// The results that a file holds, the last of each sample. Lines that are torn, or no results, are passed over: their
// samples are run again. Empty if there is no file; throws Error{bad_file} when it cannot be read.
std::map<SampleKey, SampleResult> read_results(const std::string& path);

struct EvalOptions {
  std::string out;           // results file, JSON Lines; "" for none
  bool resume = false;       // keeps the results that are in `out`
  int n_workers = 0;         // programs run at the same time; 0: as many as processors
  std::int64_t time_ms = 0;  // of one test; 0: 3,000 for HumanEval and 4,000 for APPS, as published
  RunLimits limits{};        // time_ms of it is replaced by the above
  std::stop_token stop{};    // ends after the programs that are running
};

struct EvalProgress {
  std::int64_t n_done = 0, n_total = 0, n_accepted = 0;  // resumed ones included
  double seconds = 0;
};

struct EvalReport {
  std::vector<SampleResult> results;  // in the order of the samples; without those left out and those not reached
  std::vector<Error> errors;          // samples of unknown problems
  std::int64_t n_resumed = 0;
  std::int64_t n_programs_run = 0;  // the rest came from the memory of verdicts
  bool complete = true;             // false when stopped
  double seconds = 0;
};

// Throws Error{device} if the machine fails or its disk is full, Error{bad_file} if `out` cannot be opened; lines
// written before stay.
EvalReport evaluate(const Sandbox& sandbox, std::span<const CodeProblem> problems,
                    std::span<const SampleRecord> samples, const EvalOptions& options,
                    const std::function<void(const EvalProgress&)>& on_progress = {});

// The verdict of one completion, e.g. as reward of a search or to verify a reference solution.
SampleResult judge(const Sandbox& sandbox, const CodeProblem& problem, const std::string& completion,
                   const RunLimits& limits);

}  // namespace banyan::code
