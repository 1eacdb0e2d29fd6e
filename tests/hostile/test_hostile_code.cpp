// What the coding harness reads: problems (HumanEval's lines, plain and gzipped; APPS folders), samples, results,
// few-shot examples; and what a sampled program answers.
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <zlib.h>

#include "banyan/code/compare.hpp"
#include "banyan/code/evaluate.hpp"
#include "banyan/code/extract.hpp"
#include "banyan/code/problems.hpp"
#include "banyan/code/prompts.hpp"
#include "banyan/code/samples.hpp"
#include "banyan/read_file.hpp"
#include "cli/prompt_file.hpp"
#include "hostile/hostile.hpp"

using namespace banyan;
using namespace banyan::code;
using namespace banyan::test;
namespace fs = std::filesystem;

namespace {

const std::string kWork = BANYAN_BINARY_DIR "/tests/hostile_code";

void write(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// A large file, written in pieces: one allocation of its size would end the test.
class BigFile {
 public:
  explicit BigFile(const std::string& path) {
    fs::create_directories(fs::path(path).parent_path());
    out_.open(path, std::ios::binary);
  }
  BigFile& add(const std::string& text) {
    out_ << text;
    return *this;
  }
  BigFile& repeat(const std::string& piece, std::size_t n_bytes) {
    std::string block;
    while (block.size() < (1 << 16)) block += piece;
    for (std::size_t n = 0; n < n_bytes; n += block.size()) out_ << block;
    return *this;
  }

 private:
  std::ofstream out_;
};

std::string gzipped(const std::string& text) {
  const std::string path = kWork + "/packed.gz";
  fs::create_directories(kWork);
  const gzFile file = gzopen(path.c_str(), "wb9");
  REQUIRE(gzwrite(file, text.data(), static_cast<unsigned>(text.size())) == static_cast<int>(text.size()));
  gzclose(file);
  return read_file(path);
}

// Every problem is read whatever another one holds; the first error is thrown for the check of errors.
void read_problems(const std::string& path) {
  const ProblemSet set = load_problems(path, {.with_solutions = true});
  for (const CodeProblem& problem : set.problems) {
    for (const PromptStyle style : {PromptStyle::apps, PromptStyle::humaneval}) make_prompt(style, {}, problem);
    for (const TestCase& test : problem.tests) {
      same_output(Comparator::apps, test.expected, test.input);
      if (problem.kind == ProblemKind::call_based) same_result(Comparator::apps, test.expected, test.input);
    }
  }
  if (!set.errors.empty()) throw Error(set.errors.front());
}

void read_sample_file(const std::string& path) {
  const SampleFile file = read_samples(path);
  for (const SampleRecord& record : file.samples) {
    to_json_line(record);
    extract_program(record.completion, ExtractMode::automatic, ProblemKind::standard_input);
  }
  done_samples(path);
  if (!file.errors.empty()) throw Error(file.errors.front());
}

std::string humaneval_lines() {
  std::string text;
  for (int i = 0; i < 5; ++i) {
    text += "{\"task_id\": \"test/" + std::to_string(i) +
            R"(", "prompt": "def f(x: int) -> str:\n    \"\"\" caf\u00e9 \ud83d\ude00 \"\"\"\n", "entry_point": "f", )"
            R"("canonical_solution": "    return str(x)\n", "test": "def check(c):\n    assert c(1) == '1'\n"})" +
            (i % 2 == 0 ? "\n" : "\r\n\n");
  }
  return text;
}

HostileCase humaneval() {
  return {"problems.jsonl", kWork + "/humaneval", humaneval_lines(), 0, read_problems, /*cuts_fail=*/false};
}

HostileCase humaneval_gzipped() {
  return {"problems.jsonl.gz", kWork + "/humaneval", gzipped(humaneval_lines()), 0, read_problems};
}

// One file of a problem folder whose other files are good. A folder that lost its tests or programs counts as refused.
HostileCase apps(const std::string& kind, const std::string& name, std::string bytes) {
  const std::string root = kWork + "/" + kind, folder = root + "/0007";
  write(folder + "/question.txt", "Add.\n\nInput\n1 2\n\nOutput\n3\n");
  write(folder + "/metadata.json", R"({"difficulty": "interview"})");
  write(folder + "/input_output.json", R"({"inputs": ["1 2\n", "3 4"], "outputs": ["3\n", "7"]})");
  write(folder + "/solutions.json", R"json(["print(sum(map(int, input().split())))"])json");
  return {name, folder, std::move(bytes), 0, [root, folder](const std::string&) {
            read_problems(root);
            const CodeProblem problem = load_problems(root, {.with_solutions = true}).problems.at(0);
            if (problem.tests.empty() || problem.solutions.empty())
              throw Error(ErrorCode::bad_file, folder, "lacks a part");
          }};
}

HostileCase script_tests() {
  return apps("script", "input_output.json",
              R"({"inputs": ["1 2\n", ["4", "5"], "1e999 \u0000\ud800"], "outputs": ["3\n", ["9", 9], "x"], "more": )"
              R"([null, true, {"a": -1.5e-3}, []]})");
}

HostileCase call_tests() {
  return apps("call", "input_output.json",
              R"({"fn_name": "add", "inputs": [[1, 2.50], ["a", {"b": [null]}], [123456789012345678901234567890, 1]], )"
              R"("outputs": [[3.5], "ab", [NaN]]})");
}

HostileCase metadata() {
  return apps("metadata", "metadata.json",
              R"({"difficulty": "introductory", "url": "u", "public_tests": [0, 1], "more": {"a": [1, -2.5e3]}})");
}

HostileCase solutions() {
  return apps("solutions", "solutions.json",
              R"json(["print(sum(map(int, input().split())))", "import sys\nprint(3)\t#\u00e9"])json");
}

HostileCase samples() {
  std::string text;
  for (int i = 0; i < 6; ++i) {
    SampleRecord record;
    record.task_id = "test/" + std::to_string(i / 2);
    record.sample_id = i % 2;
    record.completion = "```python\nprint(\"\xC3\xA9\\\")\n```\n";
    record.text = "so:\n" + record.completion;
    record.n_tokens = 12;
    record.cumulative_logprob = -3.25;
    record.seed = ~std::uint64_t{0};
    record.finish_reason = "stop";
    record.extra_json = R"({"sampler": {"temperature": 0.8, "stop": ["a", null]}})";
    text += to_json_line(record) + "\n";
  }
  text += "{\"task_id\": \"test/9\", \"completion\": \"\"}\n";
  return {"samples.jsonl", kWork + "/samples", text, 0, read_sample_file, /*cuts_fail=*/false};
}

HostileCase results() {
  std::string text;
  constexpr std::size_t n_results = 6;
  for (std::size_t i = 0; i < n_results; ++i) {
    SampleResult result;
    result.task_id = "test/1";
    result.sample_id = static_cast<std::int64_t>(i);
    result.tests_passed = 1;
    result.n_tests = 2;
    result.verdict = static_cast<Verdict>(i);
    result.time_ms = 12.345;
    if (i % 2 == 0) result.public_passed = i % 4 == 0;
    result.output_group = "0123456789abcdef";
    text += to_json_line(result) + "\n";
  }
  const auto read = [](const std::string& path) {
    for (const auto& [key, result] : read_results(path)) to_json_line(result);
    if (read_results(path).size() < n_results) throw Error(ErrorCode::bad_file, path, "lines are passed over");
  };
  return {"results.jsonl", kWork + "/results", text, 0, read};
}

HostileCase few_shot() {
  const std::string list =
      R"json([{"question": "q\n", "answer": "print(1)"}, {"question": "p", "answer": "b", "kind": "call", "starter_code": "s"}])json";
  return {"few_shot.json", kWork + "/few_shot", list, 0,
          [](const std::string& path) { make_prompt(PromptStyle::apps, load_few_shot(path), {}); }};
}

// What a program printed, held against what is expected, and as that which is expected.
HostileCase answer() {
  const std::string expected = R"({"a": [1, 2.50, true, null], "b": {"c": "x\u00e9\ud83d\ude00"}, "d": [[], {}]})";
  const auto read = [expected](const std::string& path) {
    const std::string got = read_file(path);
    for (const Comparator comparator : {Comparator::apps, Comparator::strict}) {
      same_output(comparator, expected, got);
      if (same_result(comparator, expected, got)) same_result(comparator, got, expected);
    }
    if (!same_result(Comparator::apps, expected, got)) throw Error(ErrorCode::bad_input, path, "is another answer");
  };
  return {"answer.json", kWork + "/answer", expected, 0, read};
}

void check_both(const HostileCase& c) {
  check_cut(c);
  check_mutations(c);
}

}  // namespace

TEST_CASE("hostile HumanEval file, plain: cut at every 64th byte, 10,000 mutations") { check_both(humaneval()); }
TEST_CASE("hostile HumanEval file, gzipped: cut at every 64th byte, 10,000 mutations") {
  check_both(humaneval_gzipped());
}
TEST_CASE("hostile APPS tests of scripts and of calls: cut at every 64th byte, 10,000 mutations") {
  check_both(script_tests());
  check_both(call_tests());
}
TEST_CASE("hostile APPS metadata and solutions: cut at every 64th byte, 10,000 mutations") {
  check_both(metadata());
  check_both(solutions());
}
TEST_CASE("hostile samples: cut at every 64th byte, 10,000 mutations") { check_both(samples()); }
TEST_CASE("hostile results: cut at every 64th byte, 10,000 mutations") { check_both(results()); }
TEST_CASE("hostile few-shot examples: cut at every 64th byte, 10,000 mutations") { check_both(few_shot()); }
TEST_CASE("hostile answers of programs: cut at every 64th byte, 10,000 mutations") { check_both(answer()); }

TEST_CASE("gzip bombs are refused at a bound, and cost no memory") {
  // Members of 32 MiB, one behind the other: two gigabytes in two megabytes, or less.
  const auto bomb = [](const std::string& piece) {
    std::string text;
    text.reserve(std::size_t{32} << 20);
    while (text.size() + piece.size() <= std::size_t{32} << 20) text += piece;
    return gzipped(text);
  };
  const std::string line = "{\"task_id\": \"" + std::string(1000, 'a') + "\", \"prompt\": 3}\n";
  for (const std::string& piece : {std::string(1 << 16, '\0'), std::string("\n"), std::string("["), line}) {
    const std::string member = bomb(piece), name = "bomb.gz";
    BigFile(kWork + "/bomb/" + name).repeat(member, 64 * member.size());
    const HostileCase c{name, kWork + "/bomb", "", 0, read_problems};
    CAPTURE(piece.substr(0, 10));
    check_refused_there(c);
    CHECK_THROWS_WITH_AS(load_problems(kWork + "/bomb/" + name), doctest::Contains("33554432 bytes, unpacked"), Error);
  }
}

TEST_CASE("lines of a hundred megabytes are errors with their number, and the lines around them are read") {
  const std::string path = kWork + "/long/samples.jsonl", good = "{\"task_id\":\"a\",\"completion\":\"";
  for (const std::string piece : {"x", "[", "\\u0041", "0,"}) {
    CAPTURE(piece);
    BigFile(path).add(good + "1\"}\n" + good).repeat(piece, 100'000'000).add("\"}\n" + good + "2\"}\n");
    const HostileCase c{"samples.jsonl", kWork + "/long", "", 0, read_sample_file};
    check_refused_there(c);
    const SampleFile file = read_samples(path);
    CHECK(file.samples.size() == 2);
    REQUIRE(file.errors.size() == 1);
    CHECK(std::string(file.errors[0].what()).find("samples.jsonl:2: has 100") != std::string::npos);
    CHECK(done_samples(path).size() == 2);
    CHECK(read_results(path).empty());
    JsonLinesWriter(path, /*resume=*/true).append("{}");
    CHECK(read_samples(path).n_errors == 2);
  }
  fs::remove(path);
}

TEST_CASE("three hundred thousand broken lines: the first thousand errors are kept, all are counted") {
  const std::string path = kWork + "/broken/lines.jsonl";
  BigFile(path).repeat("x\n", 600'000);
  const auto check_errors = [](const std::vector<Error>& errors, std::int64_t n_errors) {
    CHECK(errors.size() == 1000);
    CHECK(n_errors >= 300'000);
    throw Error(errors.front());
  };
  check_refused_there({"lines.jsonl", kWork + "/broken", "", 0, [&](const std::string& p) {
                         const SampleFile file = read_samples(p);
                         check_errors(file.errors, file.n_errors);
                       }});
  check_refused_there({"lines.jsonl", kWork + "/broken", "", 0, read_problems});
  fs::remove(path);
}

TEST_CASE("APPS parts that are no files, too large, or wrong only at their end cost no memory") {
  const std::string root = kWork + "/parts", folder = root + "/0001";
  const auto refused = [&](const std::string& name) {
    check_refused_there({name, folder, "", 0, [&](const std::string&) { read_problems(root); }});
    fs::remove(folder + "/" + name);
  };
  const auto good_question = [&] { write(folder + "/question.txt", "q"); };
  fs::remove_all(root);
  fs::create_directories(folder);

  BigFile(folder + "/question.txt").repeat("q\r\n", 5 << 20);
  refused("question.txt");
  for (const std::string target : {"/dev/zero", "question.txt", "."}) {
    fs::create_symlink(target, folder + "/question.txt");
    refused("question.txt");
  }
  REQUIRE(mkfifo((folder + "/question.txt").c_str(), 0600) == 0);
  refused("question.txt");
  write(folder + "/question.txt", " \n");
  refused("question.txt");

  for (const auto& [start, piece, end] :
       std::vector<std::array<std::string, 3>>{{"{\"inputs\":[", "\"1\",", "3],\"outputs\":[]}"},
                                               {"{\"inputs\":[[", "1,", "1],{}],\"outputs\":[]}"},
                                               {"{\"fn_name\":\"f\",\"inputs\":[[", "1,", "1]],\"outputs\":[]}"},
                                               {"{\"x\":[", "[],", "0"},
                                               {"", "[", ""},
                                               {"{", "\"a\":{},", "\"b\":1}"}}) {
    good_question();
    BigFile(folder + "/input_output.json").add(start).repeat(piece, 8'000'000).add(end);
    refused("input_output.json");
    BigFile(folder + "/solutions.json").add(start).repeat(piece, 8'000'000).add(end);
    refused("solutions.json");
  }
  BigFile(folder + "/input_output.json").add("{\"inputs\":[\"").repeat("x", 100'000'000).add("\"],\"outputs\":[]}");
  refused("input_output.json");
  good_question();
  BigFile(folder + "/metadata.json").add("{\"public_tests\":[0").repeat(",0", 3 << 20).add("]}");
  refused("metadata.json");
}

TEST_CASE("numbers, names and bytes at the edges are errors naming file, line, key and value") {
  const auto with = [](const std::string& members) {
    return HostileCase{"samples.jsonl", kWork + "/edges", "{\"task_id\":\"a\",\"completion\":\"\"," + members + "}\n",
                       0, read_sample_file};
  };
  for (const std::string id : {"-1", "1.5", "1e3", "9223372036854775808", "\"0\"", "null", "NaN", "[0]"}) {
    CAPTURE(id);
    const HostileCase c = with("\"sample_id\":" + id);
    check_refused(c);
    write(kWork + "/edges/samples.jsonl", c.bytes);
    CHECK_THROWS_WITH_AS(read_sample_file(kWork + "/edges/samples.jsonl"),
                         doctest::Contains((":1: \"sample_id\" is " + id).c_str()), Error);
  }
  check_refused(with("\"sample_id\":" + std::string(1 << 20, '7')));
  check_refused(with("\"x\":" + std::string(1 << 20, '[')));
  for (const std::string name : {"", "a\\u0000b", "f()", "f; import os", "a b"}) {
    CAPTURE(name);
    check_refused(apps("names", "input_output.json", "{\"fn_name\":\"" + name + "\",\"inputs\":[],\"outputs\":[]}"));
    check_refused({"problems.jsonl", kWork + "/names_of_lines",
                   R"({"task_id":"a","prompt":"","test":"","entry_point":")" + name + "\"}", 0, read_problems});
  }
  check_refused(apps("names", "input_output.json",
                     "{\"fn_name\":\"" + std::string(1 << 20, 'f') + "\",\"inputs\":[],\"outputs\":[]}"));
  // Ill-formed bytes are taken, as U+FFFD, so that a sample still finds its problem.
  write(kWork + "/edges/samples.jsonl", "{\"task_id\":\"\xFF\",\"completion\":\"\xC3\"}\n");
  CHECK(read_samples(kWork + "/edges/samples.jsonl").samples.at(0).task_id == "\xEF\xBF\xBD");
}

TEST_CASE("answers and prompts of many small values cost no memory beside their text") {
  for (const auto& [start, piece] : std::vector<std::array<std::string, 2>>{
           {"[", "0,"}, {"[", "[],"}, {"{", "\"a\":{},"}, {"", "\n"}, {"", "x\n"}}) {
    const std::string path = kWork + "/many/answer.json";
    BigFile(path).add(start).repeat(piece, 15 << 20).add("0");
    check_refused_there({"answer.json", kWork + "/many", "", 0, [](const std::string& p) {
                           const std::string got = read_file(p);
                           for (const Comparator comparator : {Comparator::apps, Comparator::strict}) {
                             CHECK_FALSE(same_result(comparator, "[2]", got));
                             CHECK_FALSE(same_output(comparator, "2", got));
                             CHECK(same_output(comparator, got, got));
                           }
                           throw Error(ErrorCode::bad_input, p, "is another answer");
                         }});
    fs::remove(path);
  }
  for (const std::string value : {"[0", "[[]", "{\"a\":[0"}) {
    std::string line = "{\"prompt\":\"x\",\"id\":" + value;
    while (line.size() < 7'000'000) line += ",0";
    write(kWork + "/many/prompts.jsonl", line);
    check_refused_there({"prompts.jsonl", kWork + "/many", "", 0, [](const std::string& path) {
                           const std::string content = read_file(path);
                           cli::read_prompt_lines(
                               path, content, [](std::int64_t, cli::PromptLine) {},
                               [](std::int64_t, const Error& error) { throw Error(error); });
                         }});
  }
}
