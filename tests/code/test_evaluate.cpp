#include <doctest/doctest.h>
#include <map>
#include <nlohmann/json.hpp>

#include "banyan/code/evaluate.hpp"
#include "banyan/code/score.hpp"
#include "code/sandbox_fixture.hpp"
#include "code/temp_folder.hpp"

using namespace banyan;
using namespace banyan::code;

namespace {

std::vector<SampleRecord> samples_of(const std::string& task, const std::vector<std::string>& completions) {
  std::vector<SampleRecord> samples;
  for (const std::string& completion : completions) {
    SampleRecord record;
    record.task_id = task;
    record.sample_id = static_cast<std::int64_t>(samples.size());
    record.completion = completion;
    samples.push_back(record);
  }
  return samples;
}

CodeProblem sum_problem() {
  CodeProblem problem;
  problem.task_id = "sum";
  problem.tests = {{"1 2\n", "3\n"}, {"10 20\n", "30\n"}, {"5 5\n", "10\n"}};
  problem.public_tests = {0};
  return problem;
}

}  // namespace

TEST_CASE("every verdict of a script, with its tests counted and grouped") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  const std::vector<CodeProblem> problems = {sum_problem()};
  const std::vector<std::string> programs = {
      "print(sum(map(int, input().split())))",           // AC
      "a, b = map(int, input().split())\nprint(a + b)",  // AC, same outputs
      "print('%.2f' % sum(map(int, input().split())))",  // AC, strict WA
      "print(3)",                                        // WA, one test
      "print(1/0)",                                      // RE
      "while True: pass",                                // TLE
      "x = bytearray(8 << 30)",                          // MLE
      "print('x' * (17 << 20))",                         // OLE
      "def (",                                           // CE
  };
  const TempFolder folder;
  EvalOptions options;
  options.out = folder.path("results.jsonl");
  options.time_ms = 500;
  options.limits.max_timeouts = 1;
  std::int64_t n_seen = 0;
  const EvalReport report = evaluate(*sandbox, problems, samples_of("sum", programs), options,
                                     [&](const EvalProgress& progress) { n_seen = progress.n_done; });
  const char* const expected[] = {"AC", "AC", "AC", "WA", "RE", "TLE", "MLE", "OLE", "CE"};
  REQUIRE(report.results.size() == programs.size());
  for (std::size_t i = 0; i < programs.size(); ++i) {
    CAPTURE(programs[i]);
    CHECK(to_string(report.results[i].verdict) == expected[i]);
    CHECK(report.results[i].n_tests == 3);
  }
  CHECK(report.results[2].verdict_strict == Verdict::wrong_answer);
  CHECK(report.results[3].tests_passed == 1);
  CHECK(report.results[3].public_passed == true);
  CHECK(report.results[4].public_passed == false);
  CHECK(report.results[0].output_group == report.results[1].output_group);
  CHECK(report.results[0].output_group != report.results[3].output_group);
  CHECK(report.complete);
  CHECK(n_seen == 9);

  std::istringstream lines(folder.read("results.jsonl"));
  int n_lines = 0;
  for (std::string line; std::getline(lines, line); ++n_lines) {
    const auto json = nlohmann::json::parse(line);
    for (const char* key : {"task_id", "sample_id", "verdict", "verdict_strict", "tests_passed", "n_tests", "time_ms"})
      CHECK(json.contains(key));
  }
  CHECK(n_lines == 9);
}

TEST_CASE("call-based problems, and BL-48: an expected integer of 5,000 digits") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  const TempFolder folder;
  folder.write("0/question.txt", "Square it.");
  const std::string seven(2500, '7');
  folder.write("0/input_output.json",
               R"({"fn_name": "f", "inputs": [[3], [)" + seven + R"(]], "outputs": [[9], [)" + "0" + R"(]]})");
  // The right square is computed by the sandbox itself, as text.
  const std::string input = seven;
  const std::string square =
      sandbox->run({ProgramKind::script, "print(int(input()) ** 2)", ""}, {&input, 1}, {})[0].output;
  CHECK(square.size() == 5001);
  folder.write("0/input_output.json", R"({"fn_name": "f", "inputs": [[3], [)" + seven + R"(]], "outputs": [[9], [)" +
                                          square.substr(0, 5000) + R"(]]})");
  const ProblemSet set = load_problems(folder.path());
  REQUIRE(set.errors.empty());
  const RunLimits limits;
  CHECK(judge(*sandbox, set.problems[0], "def f(x): return x * x", limits).verdict == Verdict::accepted);
  const SampleResult off = judge(*sandbox, set.problems[0], "def f(x): return x * x + (x > 9)", limits);
  CHECK(off.verdict == Verdict::wrong_answer);
  CHECK(off.tests_passed == 1);
}

TEST_CASE("BL-52: only compile errors, and no tests at all") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  CodeProblem empty;
  empty.task_id = "empty";
  const std::vector<CodeProblem> problems = {sum_problem(), empty};
  auto samples = samples_of("sum", {"def (", "def (", "def ( "});
  for (SampleRecord& sample : samples_of("empty", {"print(0)"})) samples.push_back(sample);
  const EvalReport report = evaluate(*sandbox, problems, samples, {});
  CHECK(report.results[0].verdict == Verdict::compile_error);
  CHECK(report.results[3].verdict == Verdict::unscored);
  CHECK(report.n_programs_run == 3);  // two of the four are the same
  const std::vector<std::int64_t> ks = {1};
  const auto groups = score(report.results, problems, ks);
  CHECK(*groups[0].pass_at_k[0].value == 0);
  CHECK(*groups[0].strict_accuracy == 0);
  CHECK(groups[0].n_unscored == 1);
  CHECK(groups[0].n_problems == 1);
  const std::string json = to_json(groups);
  CHECK(json.find("nan") == std::string::npos);
  CHECK(json.find("NaN") == std::string::npos);
}

TEST_CASE("resume keeps what is whole, runs the rest, and doubles nothing") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  const std::vector<CodeProblem> problems = {sum_problem()};
  const auto samples = samples_of("sum", {"print(3)", "print(30)", "print(10)", "print(4)"});
  const TempFolder folder;
  EvalOptions options;
  options.out = folder.path("r.jsonl");
  options.n_workers = 1;
  evaluate(*sandbox, problems, samples, options);
  const std::string whole = folder.read("r.jsonl");
  const std::size_t second_line_end = whole.find('\n', whole.find('\n') + 1);
  folder.write("r.jsonl", whole.substr(0, second_line_end - 20));  // the second line is torn
  options.resume = true;
  const EvalReport report = evaluate(*sandbox, problems, samples, options);
  CHECK(report.n_resumed == 1);
  CHECK(report.n_programs_run == 3);
  CHECK(report.results.size() == 4);
  std::map<std::int64_t, int> seen;
  std::istringstream lines(folder.read("r.jsonl"));
  for (std::string line; std::getline(lines, line);)
    ++seen[nlohmann::json::parse(line)["sample_id"].get<std::int64_t>()];
  CHECK(seen == std::map<std::int64_t, int>{{0, 1}, {1, 1}, {2, 1}, {3, 1}});
  CHECK(evaluate(*sandbox, problems, samples, options).n_resumed == 4);
}

TEST_CASE("samples of unknown problems are named, a stop ends early, a full disk is an error") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  const std::vector<CodeProblem> problems = {sum_problem()};
  auto samples = samples_of("sum", {"print(3)"});
  samples.push_back(samples_of("who", {"x"})[0]);
  const EvalReport report = evaluate(*sandbox, problems, samples, {});
  CHECK(report.results.size() == 1);
  REQUIRE(report.errors.size() == 1);
  CHECK(std::string(report.errors[0].what()).find("who") != std::string::npos);

  std::stop_source stop;
  stop.request_stop();
  EvalOptions options;
  options.stop = stop.get_token();
  const EvalReport stopped = evaluate(*sandbox, problems, samples, options);
  CHECK_FALSE(stopped.complete);
  CHECK(stopped.results.empty());

  EvalOptions full;
  full.out = "/dev/full";
  CHECK_THROWS_AS(evaluate(*sandbox, problems, samples, full), Error);
}

TEST_CASE("the six example samples of HumanEval: fail, timeout, fail, pass, pass, pass") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  const std::string folder = std::string(BANYAN_SHARED_DIR) + "/data/humaneval/";
  if (!std::filesystem::exists(folder + "example_problem.jsonl")) {
    MESSAGE("skipped: " << folder << " is absent");
    return;
  }
  const ProblemSet set = load_problems(folder + "example_problem.jsonl");
  const SampleFile file = read_samples(folder + "example_samples.jsonl");
  REQUIRE(file.samples.size() == 6);
  EvalOptions options;
  options.time_ms = 1000;
  const EvalReport report = evaluate(*sandbox, set.problems, file.samples, options);
  const Verdict expected[] = {Verdict::runtime_error, Verdict::time_limit, Verdict::runtime_error,
                              Verdict::accepted,      Verdict::accepted,   Verdict::accepted};
  for (std::size_t i = 0; i < 6; ++i) CHECK(to_string(report.results[i].verdict) == to_string(expected[i]));
  const std::vector<std::int64_t> ks = {1, 10};
  const auto groups = score(report.results, set.problems, ks);
  CHECK(*groups[0].pass_at_k[0].value == doctest::Approx(0.5));
  CHECK_FALSE(groups[0].pass_at_k[1].value.has_value());
}
