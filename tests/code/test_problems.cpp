#include <doctest/doctest.h>
#include <string>
#include <zlib.h>

#include "banyan/code/extract.hpp"
#include "banyan/code/problems.hpp"
#include "banyan/code/prompts.hpp"
#include "code/temp_folder.hpp"

using namespace banyan;
using namespace banyan::code;

namespace {

std::string message_of(const auto& action) {
  try {
    action();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

const char* const kHumanEvalLine =
    R"({"task_id": "test/0", "prompt": "def f():\n", "canonical_solution": "    return 1", "test": "def check(c): assert c() == 1", "entry_point": "f"})";

}  // namespace

TEST_CASE("an APPS directory: both kinds, text kept as it was") {
  const TempFolder folder;
  const std::string big(5000, '7');
  folder.write("0001/question.txt", "Add.\r\n-----Examples-----\r\nInput\r\n1 2\r\n\r\nOutput\r\n3\r\n");
  folder.write("0001/input_output.json",
               R"({"inputs": ["9 9\n", "1 2\n", ["4", "5"]], "outputs": ["18\n", "3\n", ")" + big + R"("]})");
  folder.write("0001/solutions.json", R"json(["print(sum(map(int, input().split())))"])json");
  folder.write("0001/metadata.json", R"({"difficulty": "introductory", "url": "u"})");
  folder.write("0000/question.txt", "Call me.");
  folder.write("0000/starter_code.py", "def f(a, b):\n\t");
  folder.write("0000/input_output.json", R"({"fn_name": "f", "inputs": [[)" + big +
                                             R"(, 1.50], [[1], "x"]], "outputs": [[)" + big + R"(], [2]]})");
  folder.write("0000/metadata.json", R"({"difficulty": "interview", "public_tests": [1]})");
  folder.write("notes/readme.txt", "no problem");
  folder.write("0002/question.txt", "No tests.");

  const ProblemSet set = load_problems(folder.path(), {.with_solutions = true});
  CHECK(set.errors.empty());
  REQUIRE(set.problems.size() == 3);
  const CodeProblem &call = set.problems[0], &script = set.problems[1], &none = set.problems[2];
  CHECK(call.task_id == "0000");
  CHECK(call.kind == ProblemKind::call_based);
  CHECK(call.entry_point == "f");
  CHECK(call.starter_code == "def f(a, b):\n\t");
  CHECK(call.tests[0].input == "[" + big + ", 1.50]");
  CHECK(call.tests[0].expected == "[" + big + "]");
  CHECK(call.public_tests == std::vector<std::size_t>{1});
  CHECK(script.kind == ProblemKind::standard_input);
  CHECK(script.tests[2].input == "4\n5\n");
  CHECK(script.tests[2].expected == big);
  CHECK(script.public_tests == std::vector<std::size_t>{1});  // the one that stands in the question
  CHECK(script.solutions.size() == 1);
  CHECK(script.difficulty == "introductory");
  CHECK(none.tests.empty());

  CHECK(load_problems(folder.path(), {.difficulty = "interview"}).problems.size() == 1);
  CHECK(load_problems(folder.path(), {.limit = 2}).problems.size() == 2);
  CHECK(load_problems(folder.path(), {.with_tests = false}).problems[1].tests.empty());
  CHECK(load_problems(folder.path("0001")).problems[0].task_id == "0001");
  CHECK(message_of([&] { load_problems(folder.path(), {.difficulty = "hard"}); }).find("\"hard\"") !=
        std::string::npos);
}

TEST_CASE("a bad problem is named with file and key, and the others are loaded") {
  const std::string good = R"({"inputs": ["1"], "outputs": ["1"]})";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{", "input_output.json"},
      {R"({"outputs": []})", "\"inputs\" is missing"},
      {R"({"inputs": "x", "outputs": []})", "\"inputs\" is not a list"},
      {R"({"inputs": ["1", "2"], "outputs": ["1"]})", "2 entries and \"outputs\" 1"},
      {R"({"inputs": [{}], "outputs": ["1"]})", "\"inputs\" holds something"},
      {R"({"fn_name": 3, "inputs": [], "outputs": []})", "\"fn_name\" is not a string"},
      {R"({"fn_name": "f", "inputs": [1], "outputs": [1]})", "no list of arguments"},
  };
  for (const auto& [content, message] : bad) {
    const TempFolder folder;
    folder.write("0/question.txt", "q");
    folder.write("0/input_output.json", content);
    folder.write("1/question.txt", "q");
    folder.write("1/input_output.json", good);
    const ProblemSet set = load_problems(folder.path());
    CHECK(set.problems.size() == 1);
    REQUIRE(set.errors.size() == 1);
    const std::string what = set.errors[0].what();
    CAPTURE(what);
    CHECK(what.find(message) != std::string::npos);
    CHECK(what.find(folder.path("0")) != std::string::npos);
  }
  const TempFolder folder;
  folder.write("0/other.txt", "q");
  CHECK(message_of([&] { load_problems(folder.path()); }).find("question.txt") != std::string::npos);
  CHECK(message_of([&] { load_problems(folder.path("absent")); }).find("absent") != std::string::npos);
  const TempFolder empty;
  CHECK(message_of([&] { load_problems(empty.path()); }).find("numbered folder") != std::string::npos);
}

TEST_CASE("a HumanEval file, plain and gzipped; bad lines are named") {
  const TempFolder folder;
  const std::string line = kHumanEvalLine;
  const std::string text = line + "\n{\"task_id\": \"test/1\"}\nno json\n" + line + "\n";
  const std::string plain = folder.write("h.jsonl", text), packed = folder.path("h.bin");
  gzFile file = gzopen(packed.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
  for (const std::string& path : {plain, packed}) {
    const ProblemSet set = load_problems(path, {.with_solutions = true});
    REQUIRE(set.problems.size() == 1);
    CHECK(set.problems[0].kind == ProblemKind::humaneval);
    CHECK(set.problems[0].solutions[0] == "    return 1");
    REQUIRE(set.errors.size() == 3);
    CHECK(std::string(set.errors[0].what()).find(path + ":2") != std::string::npos);
    CHECK(std::string(set.errors[0].what()).find("\"prompt\" is missing") != std::string::npos);
    CHECK(std::string(set.errors[1].what()).find(path + ":3") != std::string::npos);
    CHECK(std::string(set.errors[2].what()).find("was there before") != std::string::npos);
  }
  std::string bytes = folder.read("h.bin");
  folder.write("cut.gz", bytes.substr(0, bytes.size() - 12));
  CHECK(message_of([&] { load_problems(folder.path("cut.gz")); }).find("cannot be unpacked") != std::string::npos);
  folder.write("empty", "");
  CHECK(message_of([&] { load_problems(folder.path("empty")); }).find("is empty") != std::string::npos);
  CHECK(message_of([&] { load_problems(folder.write("bad", "x\n")); }).find("bad:1") != std::string::npos);
}

TEST_CASE("prompts: the published layout in two pieces, with no white space at the end") {
  CodeProblem problem;
  problem.question = "Print y.\n";
  CHECK(make_prompt(PromptStyle::apps, {}, problem).problem ==
        "\nQUESTION:\nPrint y.\n\nUse Standard Input format\nANSWER:");
  problem.kind = ProblemKind::call_based;
  problem.starter_code = "def f():";
  const std::vector<FewShot> shots = {{"Q1", "", "print(1)\n", ProblemKind::standard_input},
                                      {"Q2", "def g():", "def g(): pass", ProblemKind::call_based}};
  const PromptText prompt = make_prompt(PromptStyle::apps, shots, problem);
  CHECK(prompt.root ==
        "\nQUESTION:\nQ1\nUse Standard Input format\nANSWER:\nprint(1)\n"
        "\nQUESTION:\nQ2\ndef g():\nUse Call-Based format\nANSWER:\ndef g(): pass\n");
  CHECK(prompt.problem == "\nQUESTION:\nPrint y.\n\ndef f():\nUse Call-Based format\nANSWER:");
  problem.question = "def f():\n    \"\"\"doc\"\"\"\n";
  problem.kind = ProblemKind::humaneval;
  CHECK(make_prompt(PromptStyle::humaneval, {}, problem).problem == "def f():\n    \"\"\"doc\"\"\"");
  CHECK(message_of([] { prompt_style("x"); }).find("apps, humaneval, chat") != std::string::npos);
}

TEST_CASE("chat prompts: the examples are the root, the last question and the answer's mark the problem") {
  CodeProblem problem;
  problem.question = "What?";
  const std::vector<FewShot> shots = {{"Q1", "", "print(1)", ProblemKind::standard_input}};
  const PromptText prompt = make_prompt(PromptStyle::chat, shots, problem, "chatml");
  CHECK(prompt.root.find("Q1") != std::string::npos);
  CHECK(prompt.root.find("```python\nprint(1)\n```") != std::string::npos);
  CHECK(prompt.root.find("What?") == std::string::npos);
  CHECK(prompt.problem.find("What?") != std::string::npos);
  CHECK(prompt.problem.find("assistant") != std::string::npos);
}

TEST_CASE("few-shot files: our list and the published form; errors name file and key") {
  const TempFolder folder;
  const auto ours = load_few_shot(folder.write(
      "a.json",
      R"([{"question": "q", "answer": "a"}, {"question": "p", "answer": "b", "kind": "call", "starter_code": "s"}])"));
  REQUIRE(ours.size() == 2);
  CHECK(ours[1].kind == ProblemKind::call_based);
  CHECK(ours[1].starter_code == "s");
  const std::string shared = std::string(BANYAN_SHARED_DIR) + "/data/apps/apps_few_shot_prompts.json";
  if (std::filesystem::exists(shared)) {
    const auto published = load_few_shot(shared);
    REQUIRE(published.size() == 2);
    CHECK(published[0].answer.starts_with("x = int(input())"));
    CHECK(published[1].kind == ProblemKind::call_based);
    CHECK(published[1].question.find("BST's") != std::string::npos);
  } else {
    MESSAGE("skipped: " << shared << " is absent");
  }
  const auto fails = [&](const char* content, const char* part) {
    const std::string message = message_of([&] { load_few_shot(folder.write("b.json", content)); });
    CAPTURE(message);
    CHECK(message.find(part) != std::string::npos);
    CHECK(message.find("b.json") != std::string::npos);
  };
  fails("[{\"question\": \"q\"}]", "\"answer\" is missing");
  fails("[{\"question\": \"q\", \"answer\": \"a\", \"kind\": \"x\"}]", "\"kind\" is \"x\"");
  fails("[]", "no example");
  fails("3", "neither a list");
  fails("{\"problem_type1\": \"q\"}", "solution_type1");
}

TEST_CASE("extract: the fenced block, or the text") {
  const auto take = [](const std::string& text, ExtractMode mode = ExtractMode::automatic,
                       ProblemKind kind = ProblemKind::standard_input) { return extract_program(text, mode, kind); };
  CHECK(take("Here:\n```python\nprint(1)\n```\nDone") == "print(1)\n");
  CHECK(take("```\nprint(1)\n```") == "print(1)\n");
  CHECK(take("```text\n3\n```\n```py\nprint(2)\n```") == "print(2)\n");
  CHECK(take("```python\nprint(1)") == "print(1)");
  CHECK(take("print(1)\n```\nThis prints") == "print(1)\n");
  CHECK(take("print(1)\n") == "print(1)\n");
  CHECK(take("\n x = 1\n y = 2\n") == "x = 1\ny = 2\n");
  CHECK(take(" x = 1\nif x:\n  y = 2\n") == "x = 1\nif x:\n  y = 2\n");
  CHECK(take("    return 1\n", ExtractMode::automatic, ProblemKind::humaneval) == "    return 1\n");
  CHECK(take("print(1)", ExtractMode::fence) == "");
  CHECK(take("a\n```\nb\n```", ExtractMode::raw) == "a\n```\nb\n```");
  CHECK(take("") == "");
  CHECK(extract_mode("fence") == ExtractMode::fence);
  CHECK(message_of([] { extract_mode("x"); }).find("auto, raw, fence") != std::string::npos);
}
