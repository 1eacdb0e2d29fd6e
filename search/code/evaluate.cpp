#include "banyan/code/evaluate.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <fmt/format.h>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_map>

#include "banyan/code/compare.hpp"

namespace banyan::code {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Verdict verdict_of(RunStatus status) {
  switch (status) {
    case RunStatus::ok: return Verdict::accepted;
    case RunStatus::failed_assert: return Verdict::wrong_answer;
    case RunStatus::runtime_error: return Verdict::runtime_error;
    case RunStatus::time_limit:
    case RunStatus::not_run: return Verdict::time_limit;
    case RunStatus::memory_limit: return Verdict::memory_limit;
    case RunStatus::output_limit: return Verdict::output_limit;
    case RunStatus::compile_error: return Verdict::compile_error;
  }
  return Verdict::runtime_error;
}

// 64-bit FNV-1a over what the programs did; only ever compared within one problem.
class OutputHash {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) add_byte(static_cast<unsigned char>(c));
    add_byte(0xFF);  // in no UTF-8 text, so that ("a", "b") is not ("ab", "")
  }
  std::string hex() const { return fmt::format("{:016x}", value_); }

 private:
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3ULL; }
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

std::string_view right_trimmed(std::string_view text) { return text.substr(0, text.find_last_not_of(" \t\r\n") + 1); }

Program program_of(const CodeProblem& problem, const std::string& completion) {
  switch (problem.kind) {
    case ProblemKind::standard_input: return {ProgramKind::script, completion, ""};
    case ProblemKind::call_based: return {ProgramKind::call, completion, problem.entry_point};
    case ProblemKind::humaneval:
      return {
          ProgramKind::check,
          fmt::format("{}{}\n{}\ncheck({})\n", problem.question, completion, problem.test_source, problem.entry_point),
          ""};
  }
  return {};
}

SampleResult judge_humaneval(const Sandbox& sandbox, const CodeProblem& problem, const std::string& completion,
                             const RunLimits& limits) {
  std::random_device random;
  const std::string mark = fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
  const RunResult run = sandbox.run(program_of(problem, completion), {&mark, 1}, limits).front();
  SampleResult result;
  result.n_tests = 1;
  result.verdict = run.status == RunStatus::ok && run.output != mark ? Verdict::runtime_error : verdict_of(run.status);
  result.verdict_strict = result.verdict;
  result.tests_passed = result.verdict == Verdict::accepted;
  result.time_ms = run.wall_ms;
  result.output_group = to_string(result.verdict);
  return result;
}

SampleResult judge_by_tests(const Sandbox& sandbox, const CodeProblem& problem, const std::string& completion,
                            const RunLimits& limits) {
  SampleResult result;
  result.n_tests = static_cast<std::int64_t>(problem.tests.size());
  if (problem.tests.empty()) return result;
  std::vector<std::string> inputs;
  inputs.reserve(problem.tests.size());
  for (const TestCase& test : problem.tests) inputs.push_back(test.input);
  const std::vector<RunResult> runs = sandbox.run(program_of(problem, completion), inputs, limits);

  const auto same = problem.kind == ProblemKind::call_based ? same_result : same_output;
  std::vector<bool> passed(runs.size(), false);
  OutputHash outputs;
  result.verdict = result.verdict_strict = Verdict::accepted;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Verdict apps = verdict_of(runs[i].status), strict = apps;
    if (runs[i].status == RunStatus::ok) {
      if (!same(Comparator::apps, problem.tests[i].expected, runs[i].output)) apps = Verdict::wrong_answer;
      if (!same(Comparator::strict, problem.tests[i].expected, runs[i].output)) strict = Verdict::wrong_answer;
    }
    passed[i] = apps == Verdict::accepted;
    result.tests_passed += passed[i];
    if (result.verdict == Verdict::accepted) result.verdict = apps;
    if (result.verdict_strict == Verdict::accepted) result.verdict_strict = strict;
    result.time_ms += runs[i].wall_ms;
    outputs.add(runs[i].status == RunStatus::ok ? right_trimmed(runs[i].output) : to_string(apps));
  }
  if (!problem.public_tests.empty())
    result.public_passed = std::ranges::all_of(problem.public_tests, [&](std::size_t i) { return passed[i]; });
  result.output_group = outputs.hex();
  return result;
}

// Verdicts of this call by problem and program. A program that is being run is waited for, not run again.
class VerdictMemory {
 public:
  // `run` is called at most once for each key, on the thread of the first that asks.
  SampleResult get(std::size_t problem, const std::string& completion, const auto& run) {
    std::promise<SampleResult> promise;
    std::shared_future<SampleResult> future;
    {
      const std::lock_guard lock(mutex_);
      const auto [entry, is_new] = verdicts_.try_emplace(std::to_string(problem) + ":" + completion);
      if (!is_new)
        future = entry->second;
      else
        entry->second = promise.get_future().share();
    }
    if (future.valid()) return future.get();
    try {
      const SampleResult result = run();
      promise.set_value(result);
      return result;
    } catch (...) {
      promise.set_exception(std::current_exception());
      throw;
    }
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_future<SampleResult>> verdicts_;
};

struct Job {
  std::size_t sample, problem;
};

// Takes jobs in order until none is left, a worker fails or a stop is asked for; tells the caller of each result.
class Workers {
 public:
  Workers(int n_workers, const std::vector<Job>& jobs, std::stop_token stop,
          std::function<SampleResult(const Job&)> work, std::function<void(const Job&, SampleResult)> done)
      : jobs_(jobs), stop_(std::move(stop)), work_(std::move(work)), done_(std::move(done)) {
    const auto n = std::min<std::size_t>(static_cast<std::size_t>(n_workers), jobs.size());
    n_running_ = n;
    for (std::size_t i = 0; i < n; ++i) threads_.emplace_back([this] { loop(); });
  }

  ~Workers() { failed_ = true; }  // when the callback throws, no further program is begun

  // Until all have ended; `tick` runs on this thread at least five times a second. Rethrows what a worker threw.
  void wait(const std::function<void()>& tick) {
    std::unique_lock lock(mutex_);
    while (n_running_ > 0) {
      ended_.wait_for(lock, std::chrono::milliseconds(200));
      lock.unlock();
      tick();
      lock.lock();
    }
    lock.unlock();
    threads_.clear();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void loop() {
    try {
      while (!stop_.stop_requested() && !failed_) {
        const std::size_t i = next_++;
        if (i >= jobs_.size()) break;
        done_(jobs_[i], work_(jobs_[i]));
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      failed_ = true;
    }
    const std::lock_guard lock(mutex_);
    --n_running_;
    ended_.notify_one();
  }

  const std::vector<Job>& jobs_;
  std::stop_token stop_;
  std::function<SampleResult(const Job&)> work_;
  std::function<void(const Job&, SampleResult)> done_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t n_running_ = 0;
  std::exception_ptr failure_;
  std::vector<std::jthread> threads_;
};

RunLimits limits_for(const CodeProblem& problem, const EvalOptions& options) {
  RunLimits limits = options.limits;
  limits.time_ms = options.time_ms > 0 ? options.time_ms : problem.kind == ProblemKind::humaneval ? 3000 : 4000;
  return limits;
}

}  // namespace

SampleResult judge(const Sandbox& sandbox, const CodeProblem& problem, const std::string& completion,
                   const RunLimits& limits) {
  SampleResult result = problem.kind == ProblemKind::humaneval ? judge_humaneval(sandbox, problem, completion, limits)
                                                               : judge_by_tests(sandbox, problem, completion, limits);
  result.task_id = problem.task_id;
  return result;
}

EvalReport evaluate(const Sandbox& sandbox, std::span<const CodeProblem> problems,
                    std::span<const SampleRecord> samples, const EvalOptions& options,
                    const std::function<void(const EvalProgress&)>& on_progress) {
  const auto start = Clock::now();
  EvalReport report;
  std::unordered_map<std::string, std::size_t> problem_of;
  for (std::size_t i = 0; i < problems.size(); ++i) problem_of[problems[i].task_id] = i;

  std::vector<std::optional<SampleResult>> results(samples.size());
  std::map<SampleKey, SampleResult> resumed;
  if (options.resume && !options.out.empty()) resumed = read_results(options.out);
  std::vector<Job> jobs;
  std::atomic<std::int64_t> n_done{0}, n_accepted{0}, n_programs_run{0};
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (const auto old = resumed.find(samples[i].key()); old != resumed.end()) {
      results[i] = old->second;
      ++n_done;
      n_accepted += old->second.verdict == Verdict::accepted;
    } else if (const auto found = problem_of.find(samples[i].task_id); found != problem_of.end()) {
      jobs.push_back({i, found->second});
    } else {
      report.errors.push_back(Error(ErrorCode::bad_input, samples[i].task_id,
                                    fmt::format("sample {} belongs to no loaded problem", samples[i].sample_id)));
    }
  }
  report.n_resumed = n_done;

  std::optional<JsonLinesWriter> writer;
  if (!options.out.empty()) writer.emplace(options.out, options.resume);
  VerdictMemory memory;
  const auto work = [&](const Job& job) {
    const CodeProblem& problem = problems[job.problem];
    const std::string& completion = samples[job.sample].completion;
    return memory.get(job.problem, completion, [&] {
      ++n_programs_run;
      return judge(sandbox, problem, completion, limits_for(problem, options));
    });
  };
  const auto done = [&](const Job& job, SampleResult result) {
    result.sample_id = samples[job.sample].sample_id;
    if (writer) writer->append(to_json_line(result));
    ++n_done;
    n_accepted += result.verdict == Verdict::accepted;
    results[job.sample] = std::move(result);
  };
  const int n_workers =
      options.n_workers > 0 ? options.n_workers : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto n_total = static_cast<std::int64_t>(jobs.size()) + report.n_resumed;
  const auto tick = [&] {
    if (on_progress) on_progress({n_done, n_total, n_accepted, seconds_since(start)});
  };
  Workers(n_workers, jobs, options.stop, work, done).wait(tick);
  tick();

  for (auto& result : results)
    if (result) report.results.push_back(std::move(*result));
  report.complete = n_done == n_total;
  report.n_programs_run = n_programs_run;
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace banyan::code
