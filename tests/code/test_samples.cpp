#include <cmath>
#include <doctest/doctest.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "banyan/code/samples.hpp"
#include "banyan/code/score.hpp"
#include "code/temp_folder.hpp"

using namespace banyan;
using namespace banyan::code;

namespace {

SampleRecord sample(const std::string& task, std::int64_t id, const std::string& completion = "x") {
  SampleRecord record;
  record.task_id = task;
  record.sample_id = id;
  record.completion = completion;
  return record;
}

SampleResult result(const std::string& task, std::int64_t id, Verdict verdict, bool public_passed,
                    const std::string& group) {
  SampleResult r;
  r.task_id = task;
  r.sample_id = id;
  r.verdict = r.verdict_strict = verdict;
  r.n_tests = 2;
  r.tests_passed = verdict == Verdict::accepted ? 2 : public_passed;
  r.public_passed = public_passed;
  r.output_group = group;
  return r;
}

CodeProblem problem(const std::string& task, const std::string& difficulty = "") {
  CodeProblem p;
  p.task_id = task;
  p.difficulty = difficulty;
  return p;
}

}  // namespace

TEST_CASE("BL-53: pass@k without overflow, and never where k > n") {
  CHECK_FALSE(pass_at_k(2, 0, 5).has_value());
  CHECK_FALSE(pass_at_k(2, 1, 5).has_value());
  CHECK(*pass_at_k(5, 2, 1) == doctest::Approx(0.4));
  CHECK(*pass_at_k(5, 2, 3) == doctest::Approx(0.9));
  CHECK(*pass_at_k(200, 5, 100) == doctest::Approx(0.970308).epsilon(1e-6));
  CHECK(*pass_at_k(1'000'000, 1, 1000) == doctest::Approx(0.001));
  CHECK(*pass_at_k(5, 0, 5) == 0);
  CHECK(*pass_at_k(5, 5, 1) == 1);
  CHECK_FALSE(pass_at_k(5, 6, 1).has_value());
  CHECK_FALSE(pass_at_k(5, 1, 0).has_value());
}

TEST_CASE("pass@k equals counting all choices of k samples") {
  for (int n = 1; n <= 9; ++n)
    for (int c = 0; c <= n; ++c)
      for (int k = 1; k <= n; ++k) {
        int hits = 0, choices = 0;
        for (unsigned set = 0; set < (1u << n); ++set) {
          if (__builtin_popcount(set) != k) continue;
          ++choices;
          hits += (set & ((1u << c) - 1)) != 0;
        }
        CHECK(*pass_at_k(n, c, k) == doctest::Approx(static_cast<double>(hits) / choices).epsilon(1e-12));
      }
}

TEST_CASE("scores: means over problems, per difficulty and kind, absent where they cannot be computed") {
  std::vector<CodeProblem> problems = {problem("a", "easy"), problem("b", "hard"), problem("c", "hard"), problem("d")};
  const auto AC = Verdict::accepted, WA = Verdict::wrong_answer;
  std::vector<SampleResult> results = {result("a", 0, AC, true, "g"), result("a", 1, WA, true, "h"),
                                       result("b", 0, WA, false, "g"), result("b", 1, WA, true, "g"),
                                       result("c", 0, Verdict::unscored, false, "")};
  results[0].verdict_strict = WA;
  const std::vector<std::int64_t> ks = {1, 2, 5}, ns = {1};
  const auto groups = score(results, problems, ks, ns);
  REQUIRE(groups.size() == 4);
  const ScoreGroup& all = groups[0];
  CHECK(all.name == "all");
  CHECK(all.n_problems == 2);
  CHECK(all.n_samples == 4);
  CHECK(all.n_unscored == 1);
  CHECK(all.n_solved == 1);
  CHECK(*all.pass_at_k[0].value == doctest::Approx(0.25));
  CHECK(*all.pass_at_k[0].value_strict == 0);
  CHECK(*all.pass_at_k[1].value == doctest::Approx(0.5));
  CHECK_FALSE(all.pass_at_k[2].value.has_value());
  CHECK(*all.strict_accuracy == doctest::Approx(0.25));
  CHECK(*all.test_case_average == doctest::Approx((0.75 + 0.25) / 2));
  CHECK(groups[1].name == "difficulty:easy");
  CHECK(*groups[1].pass_at_k[0].value == doctest::Approx(0.5));

  // BL-52: nothing in the JSON but numbers and null.
  const auto json = nlohmann::json::parse(to_json(groups));
  CHECK(json["all"]["pass_at_k"]["5"].is_null());
  CHECK(json["difficulty"]["hard"]["pass_at_k"]["1"] == 0.0);
  CHECK(json["difficulty"]["hard"]["n_unscored"] == 1);
  const auto none = nlohmann::json::parse(to_json(score({}, problems, ks)));
  CHECK(none["all"]["pass_at_k"]["1"].is_null());
  CHECK(none["all"]["strict_accuracy"].is_null());
}

TEST_CASE("n@k: filter by public tests, one of each group of outputs, largest group first") {
  const std::vector<CodeProblem> problems = {problem("a")};
  const auto AC = Verdict::accepted, WA = Verdict::wrong_answer;
  const std::vector<SampleResult> results = {
      result("a", 0, WA, true, "big"),    result("a", 1, AC, true, "right"),  result("a", 2, WA, true, "big"),
      result("a", 3, AC, true, "right"),  result("a", 4, WA, true, "big"),    result("a", 5, WA, false, "crowd"),
      result("a", 6, WA, false, "crowd"), result("a", 7, WA, false, "crowd"), result("a", 8, WA, false, "crowd")};
  const std::vector<std::int64_t> ks = {1, 2, 4, 9, 10}, ns = {1, 2};
  const auto groups = score(results, problems, ks, ns);
  const auto value = [&](std::int64_t n, std::int64_t k) {
    for (const NAtK& entry : groups[0].n_at_k)
      if (entry.n == n && entry.k == k) return entry.value;
    return std::optional<double>(-1);
  };
  CHECK(*value(1, 1) == 0);
  CHECK(*value(1, 2) == 0);  // a tie: the group seen first
  CHECK(*value(2, 2) == 1);
  CHECK(*value(1, 9) == 0);
  CHECK(*value(2, 9) == 1);
  CHECK_FALSE(value(1, 10).has_value());
  CHECK(*value(2, 1) == -1);  // n > k is not reported
}

TEST_CASE("BL-55: every line is strict JSON and the text comes back") {
  SampleRecord record = sample("t\"1", 3, std::string("a\"b\\\n\r\t\0\x01 \xE2\x80\xA8 \xF0\x9F\x98\x80", 18));
  record.text = "half \xED\xA0\x80 a character \xE2\x82";
  record.cumulative_logprob = -std::numeric_limits<double>::infinity();
  record.extra_json = R"({"sampler": {"temperature": 0.8}})";
  record.seed = std::numeric_limits<std::uint64_t>::max();
  record.n_tokens = 5;
  const std::string line = to_json_line(record);
  CHECK(line.find('\n') == std::string::npos);
  const auto json = nlohmann::json::parse(line);
  CHECK(json["completion"].get<std::string>() == record.completion);
  CHECK(json["cumulative_logprob"].is_null());
  CHECK(json["text"].get<std::string>().find("\xEF\xBF\xBD") != std::string::npos);
  CHECK(json["sampler"]["temperature"] == 0.8);

  const TempFolder folder;
  const SampleFile back = read_samples(folder.write("s.jsonl", line + "\n"));
  REQUIRE(back.samples.size() == 1);
  CHECK(back.samples[0].completion == record.completion);
  CHECK(back.samples[0].seed == record.seed);
  CHECK(back.samples[0].key() == record.key());
  record.cumulative_logprob = std::nan("");
  CHECK(nlohmann::json::parse(to_json_line(record))["cumulative_logprob"].is_null());
  record.extra_json = "[1]";
  CHECK_THROWS_AS(to_json_line(record), Error);
}

// Found by fuzz_code_lines: a results file whose output_group was no UTF-8 ended the evaluation that resumed it.
TEST_CASE("names that are no UTF-8 in files of others are written as U+FFFD") {
  const TempFolder folder;
  const std::string bad = "a\xD1\xFF", good = "a\xEF\xBF\xBD\xEF\xBF\xBD";
  SampleResult verdict = result("t", 0, Verdict::accepted, true, bad);
  verdict.task_id = bad;
  CHECK(nlohmann::json::parse(to_json_line(verdict))["output_group"] == good);
  folder.write("r.jsonl",
               "{\"task_id\":\"" + bad + "\",\"sample_id\":0,\"verdict\":\"AC\",\"verdict_strict\":\"AC\"," +
                   "\"tests_passed\":1,\"n_tests\":1,\"time_ms\":1,\"public_passed\":null,\"output_group\":\"" + bad +
                   "\"}\n");
  for (const auto& [key, back] : read_results(folder.path("r.jsonl"))) CHECK_FALSE(to_json_line(back).empty());
  folder.write("s.jsonl", "{\"task_id\":\"" + bad + "\",\"completion\":\"" + bad + "\",\"finish_reason\":\"" + bad +
                              "\",\"model\":\"" + bad + "\",\"version\":\"" + bad + "\",\"text\":\"" + bad + "\"}\n");
  for (const SampleRecord& record : read_samples(folder.path("s.jsonl")).samples) {
    const auto line = nlohmann::json::parse(to_json_line(record));
    for (const char* key : {"task_id", "completion", "finish_reason", "model", "version", "text"})
      CHECK(line[key] == good);
  }
  folder.write("p/0/question.txt", bad);
  folder.write("p/0/metadata.json", "{\"difficulty\":\"" + bad + "\"}");
  const auto problems = load_problems(folder.path("p")).problems;
  const std::vector<SampleResult> results{result("0", 0, Verdict::accepted, true, "g")};
  const std::vector<std::int64_t> ks{1};
  CHECK(nlohmann::json::parse(to_json(score(results, problems, ks)))["difficulty"].contains(good));
}

TEST_CASE("a killed writer loses at most its last line, wherever it was cut") {
  const std::string first = to_json_line(sample("a", 0)), second = to_json_line(sample("a", 1, "y\ny"));
  for (std::size_t cut = 0; cut <= second.size() + 1; ++cut) {
    const TempFolder folder;
    const std::string path = folder.write("s.jsonl", (first + "\n" + second + "\n").substr(0, first.size() + 1 + cut));
    const auto done = done_samples(path);
    const bool whole = cut >= second.size();  // only the line end may be missing
    CHECK(done.size() == (whole ? 2 : 1));
    JsonLinesWriter writer(path, true);
    if (!whole) writer.append(second);
    writer.append(to_json_line(sample("a", 2)));
    const SampleFile file = read_samples(path);
    CHECK(file.errors.empty());
    CHECK(file.samples.size() == 3);
  }
}

TEST_CASE("a writer without resume starts anew; several threads do not mix lines") {
  const TempFolder folder;
  const std::string path = folder.write("s.jsonl", "old\n");
  {
    JsonLinesWriter writer(path, false);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, task = std::string(1, static_cast<char>('a' + t))] {
        for (int i = 0; i < 100; ++i) writer.append(to_json_line(sample(task, i, std::string(500, 'x'))));
      });
  }
  const SampleFile file = read_samples(path);
  CHECK(file.errors.empty());
  CHECK(file.samples.size() == 400);
  CHECK_THROWS_AS(JsonLinesWriter(folder.path("no/such/folder"), false), Error);
  CHECK(done_samples(folder.path("absent")).empty());
}

TEST_CASE("reading samples: numbers for human-eval's files, bad lines named by number") {
  const TempFolder folder;
  const SampleFile file = read_samples(folder.write("s.jsonl",
                                                    "{\"task_id\": \"a\", \"completion\": \"1\"}\n"
                                                    "{\"task_id\": \"b\", \"completion\": \"1\"}\n"
                                                    "{\"task_id\": \"a\", \"completion\": \"2\"}\n\n"
                                                    "{\"task_id\": \"a\"}\n"
                                                    "[]\n"
                                                    "{\"task_id\": \"a\", \"completion\": \"3\", \"sample_id\": -1}\n"
                                                    "{\"task_id\": \"a\", \"completion\": \"3\", \"sample_id\": 1}\n"
                                                    "torn"));
  REQUIRE(file.samples.size() == 3);
  CHECK(file.samples[2].sample_id == 1);
  REQUIRE(file.errors.size() == 5);
  const int lines[] = {5, 6, 7, 8, 9};
  for (int i = 0; i < 5; ++i)
    CHECK(std::string(file.errors[static_cast<std::size_t>(i)].what())
              .find(std::string(":") + std::to_string(lines[i])) != std::string::npos);
  CHECK_THROWS_AS(read_samples(folder.path("absent")), Error);
}

TEST_CASE("merge: whole or not at all; duplicates once, conflicts named") {
  const TempFolder folder;
  const auto line = [](const char* task, int id, const char* completion) {
    return to_json_line(sample(task, id, completion)) + "\n";
  };
  const std::string one = folder.write("1", line("a", 0, "x") + line("a", 1, "y"));
  const std::string two = folder.write("2", line("b", 0, "x") + line("a", 1, "y"));
  const std::string bad = folder.write("3", line("a", 0, "other"));
  const MergeReport report = merge_samples({one, two}, folder.path("all"));
  CHECK(report.n_samples == 3);
  CHECK(report.n_duplicates == 1);
  CHECK(folder.read("all") == line("a", 0, "x") + line("a", 1, "y") + line("b", 0, "x"));
  try {
    merge_samples({one, bad}, folder.path("all"));
    FAIL("a conflict was merged");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find(bad + ":1") != std::string::npos);
    CHECK(std::string(error.what()).find(one + ":1") != std::string::npos);
  }
  CHECK(folder.read("all") == line("a", 0, "x") + line("a", 1, "y") + line("b", 0, "x"));
  CHECK_THROWS_AS(merge_samples({folder.write("4", "torn")}, folder.path("all")), Error);
  CHECK_THROWS_AS(write_file_atomically(folder.path("no/such"), "x"), Error);
}
