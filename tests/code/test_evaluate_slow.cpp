#include <algorithm>
#include <doctest/doctest.h>
#include <filesystem>
#include <unistd.h>

#include "banyan/code/evaluate.hpp"
#include "banyan/code/score.hpp"
#include "code/proc.hpp"
#include "code/sandbox_fixture.hpp"

using namespace banyan;
using namespace banyan::code;

TEST_CASE("all 164 canonical solutions of HumanEval pass") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  const std::string path = std::string(BANYAN_SHARED_DIR) + "/data/humaneval/HumanEval.jsonl.gz";
  if (!std::filesystem::exists(path)) {
    MESSAGE("skipped: " << path << " is absent");
    return;
  }
  const ProblemSet set = load_problems(path, {.with_solutions = true});
  CHECK(set.errors.empty());
  REQUIRE(set.problems.size() == 164);
  std::vector<SampleRecord> samples;
  for (const CodeProblem& problem : set.problems) {
    SampleRecord record;
    record.task_id = problem.task_id;
    record.completion = problem.solutions.at(0);
    samples.push_back(record);
  }
  const EvalReport report = evaluate(*sandbox, set.problems, samples, {});
  double slowest_ms = 0;
  for (const SampleResult& result : report.results) {
    CAPTURE(result.task_id);
    CHECK(to_string(result.verdict) == "AC");
    slowest_ms = std::max(slowest_ms, result.time_ms);
  }
  MESSAGE("164 programs in " << report.seconds << " s; the slowest " << slowest_ms << " ms");
  // Leaving the answer out fails each of them: the check is really run.
  for (SampleRecord& sample : samples) sample.completion = "    pass\n";
  std::int64_t n_passed = 0;
  for (const SampleResult& result : evaluate(*sandbox, set.problems, samples, {}).results)
    n_passed += result.verdict == Verdict::accepted;
  CHECK(n_passed == 0);
}

TEST_CASE("a test that ends by itself a little late is run once more, and the second run counts") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  if (crowding() > 1.5) {
    MESSAGE("skipped: the machine is too busy to give a program its CPU time within its wall time");
    return;
  }
  RunLimits limits;
  limits.time_ms = 1500;
  const std::string no_input;
  const auto run = [&](const std::string& condition) {
    // Process numbers of a sandbox go up by one from test to test, so that the program can tell its runs apart.
    const std::string source =
        "import os, time\nif " + condition + ":\n  while time.process_time() < 1.7: pass\nprint('end')";
    return sandbox->run({ProgramKind::script, source, ""}, {&no_input, 1}, limits).front().status;
  };
  const RunStatus odd = run("os.getpid() % 2 == 1"), even = run("os.getpid() % 2 == 0");
  CHECK(odd == RunStatus::ok);  // late in the first run or in none
  CHECK(even == RunStatus::ok);
  CHECK(run("True") == RunStatus::time_limit);
}

TEST_CASE("BL-52: 5,000 x print(0) with 4 workers: descriptors and processes stay flat, all are scored") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  CodeProblem problem;
  problem.task_id = "zero";
  problem.tests = {{"", "0\n"}};
  std::vector<SampleRecord> samples;
  for (int i = 0; i < 5000; ++i) {
    SampleRecord record;
    record.task_id = "zero";
    record.sample_id = i;
    record.completion = "print(0)  # " + std::to_string(i);  // else the memory of verdicts would run only one
    samples.push_back(record);
  }
  EvalOptions options;
  options.n_workers = 4;
  options.limits.memory_bytes += getpid();  // a number of our own, to know our processes by
  const std::string mark = std::to_string(options.limits.memory_bytes);
  const int descriptors = open_descriptors();
  int most_descriptors = 0, most_processes = 0;
  const EvalReport report = evaluate(*sandbox, {&problem, 1}, samples, options, [&](const EvalProgress&) {
    most_descriptors = std::max(most_descriptors, open_descriptors());
    most_processes = std::max(most_processes, processes_with(mark));
  });
  CHECK(report.results.size() == 5000);
  CHECK(report.n_programs_run == 5000);
  CHECK(std::ranges::all_of(report.results, [](const SampleResult& r) { return r.verdict == Verdict::accepted; }));
  CHECK(most_descriptors <= descriptors + 4 * 16);
  CHECK(most_processes > 0);
  CHECK(most_processes <= 4 * 5);  // outer, init, driver, test, and one that is just forked
  CHECK(open_descriptors() == descriptors);
  CHECK(processes_with(mark) == 0);
  MESSAGE("5,000 programs in " << report.seconds << " s; at most " << most_descriptors << " descriptors and "
                               << most_processes << " processes");
}
