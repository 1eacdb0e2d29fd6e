// The problems that come with the project: every reference solution passes every test in the sandbox.
#include <doctest/doctest.h>
#include <set>

#include "banyan/code/evaluate.hpp"
#include "banyan/code/prompts.hpp"
#include "code/sandbox_fixture.hpp"

using namespace banyan;
using namespace banyan::code;

namespace {
const std::string kExamples = BANYAN_SOURCE_DIR "/examples/apps";
}

TEST_CASE("examples/apps: all problems load, of both kinds, with tests, public ones and solutions") {
  const ProblemSet set = load_problems(kExamples, {.with_solutions = true});
  for (const Error& e : set.errors) MESSAGE(e.what());
  CHECK(set.errors.empty());
  CHECK(set.problems.size() >= 12);
  std::set<ProblemKind> kinds;
  std::set<std::string> difficulties;
  for (const CodeProblem& p : set.problems) {
    CAPTURE(p.task_id);
    kinds.insert(p.kind);
    difficulties.insert(p.difficulty);
    CHECK(p.tests.size() >= 5);
    CHECK_FALSE(p.solutions.empty());
    CHECK((p.kind == ProblemKind::call_based) == !p.starter_code.empty());
    CHECK(p.public_tests.size() < p.tests.size());
    CHECK(p.public_tests.size() >= 2);  // those of metadata.json; a guess from the text would give one
    std::set<std::string> inputs;
    for (const TestCase& t : p.tests) inputs.insert(t.input);
    CHECK(inputs.size() == p.tests.size());
  }
  CHECK(kinds == std::set{ProblemKind::standard_input, ProblemKind::call_based});
  CHECK(difficulties == std::set<std::string>{"introductory", "interview", "competition"});
  CHECK(load_few_shot(kExamples + "/few_shot.json").size() >= 5);
}

TEST_CASE("examples/apps: every solution passes every test, an empty program none") {
  const Sandbox* sandbox = shared_sandbox();
  if (!sandbox) return;
  const ProblemSet set = load_problems(kExamples, {.with_solutions = true});
  std::vector<SampleRecord> samples;
  for (const CodeProblem& p : set.problems) {
    std::vector<std::string> programs{"pass\n"};
    programs.insert(programs.end(), p.solutions.begin(), p.solutions.end());
    for (std::size_t i = 0; i < programs.size(); ++i) {
      SampleRecord record;
      record.task_id = p.task_id;
      record.sample_id = static_cast<std::int64_t>(i);
      record.completion = programs[i];
      samples.push_back(record);
    }
  }
  const EvalReport report = evaluate(*sandbox, set.problems, samples, {});
  CHECK(report.results.size() == samples.size());
  for (const SampleResult& r : report.results) {
    CAPTURE(r.task_id);
    CAPTURE(r.sample_id);
    if (r.sample_id == 0) {
      CHECK(r.tests_passed == 0);
    } else {
      CHECK(to_string(r.verdict) == "AC");
      CHECK(to_string(r.verdict_strict) == "AC");
      CHECK(r.public_passed == true);
    }
  }
  MESSAGE(samples.size() << " programs in " << report.seconds << " s");
}
