// plan, inspect, tokenize, and the small commands around code samples that need no model.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/process.hpp"

using namespace banyan::test;
using nlohmann::json;

namespace {

const std::string kTiny = BANYAN_SOURCE_DIR "/models/tiny/tiny.gguf";
const std::string kConstants = R"({"call_us": 2, "bytes_per_us": 5000, "flops_per_us": 50000, "machine": "made up"})";

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("tokenize prints ids and pieces") {
  const TempFolder folder;
  Outcome o = run({"tokenize", "-m", kTiny, "-p", "the any"});
  CHECK(o.code == 0);
  CHECK(o.out == "{\"ids\":[0,43,38,51],\"pieces\":[\"<|bos|>\",\"the\",\"Ġ\",\"any\"]}\n");
  CHECK(json::parse(run({"tokenize", "-m", kTiny, "-f", folder.write("t", "the any"), "--no-bos"}).out)["ids"] ==
        json{43, 38, 51});
  CHECK(json::parse(run({"tokenize", "-m", kTiny, "-p", "<|eos|>", "--parse-special"}).out)["ids"] == json{0, 1});
  CHECK(json::parse(run({"tokenize", "-m", kTiny, "-p", ""}).out)["ids"] == json{0});
  CHECK(json::parse(run({"tokenize", "-m", BANYAN_SOURCE_DIR "/models/tiny/hf", "-p", "the"}).out)["ids"] ==
        json{0, 43});
  o = run({"tokenize", "-m", kTiny, "-p", "日"});
  CHECK(o.code == 3);
  CHECK(has(o.err, "0xE6"));
}

TEST_CASE("inspect describes both forms of the tiny model") {
  for (const std::string& model : {kTiny, std::string(BANYAN_SOURCE_DIR "/models/tiny/hf")}) {
    const Outcome o = run({"inspect", model});
    CHECK(o.code == 0);
    CHECK(has(o.out, "2 layers"));
    CHECK(has(o.out, "64 pieces"));
    CHECK(has(o.out, "x the weights"));
  }
}

TEST_CASE("convert: the result has the same tokens; a type that cannot be written is refused") {
  const TempFolder folder;
  for (const std::string& model : {kTiny, std::string(BANYAN_SOURCE_DIR "/models/tiny/hf")}) {
    const std::string out = folder.path(model == kTiny ? "directory" : "new.gguf");
    Outcome o = run({"convert", model, out, "--type", "F16"});
    CHECK(o.code == 0);
    CHECK(has(o.out, "f16"));
    CHECK(has(o.out, "largest error"));
    CHECK(has(o.err, "written to"));
    CHECK(json::parse(run({"tokenize", "-m", out, "-p", "the any"}).out)["ids"] == json{0, 43, 38, 51});
    CHECK(has(run({"inspect", out}).out, "16 f16"));
    CHECK(run({"convert", model, out, "--type", "F32"}).code == 2);  // it is there
  }
}

TEST_CASE("convert keeps the model's name, from form to form") {
  const TempFolder folder;
  REQUIRE(run({"convert", kTiny, folder.path("directory"), "--type", "f32"}).code == 0);
  REQUIRE(run({"convert", folder.path("directory"), folder.path("back.gguf"), "--type", "F32"}).code == 0);
  for (const std::string& model : {kTiny, folder.path("directory"), folder.path("back.gguf")}) {
    CHECK(has(run({"inspect", model}).out, "\nname          tiny"));
  }
}

TEST_CASE("plan: all bench trees, with both ways; predicted times where there are constants") {
  const TempFolder folder;
  const std::string constants = folder.write("cost.json", kConstants);
  for (const std::string name : {"trees", "ragged"}) {
    const std::string path = std::string(BANYAN_SHARED_DIR) + "/bench/" + name + ".json";
    if (!std::filesystem::exists(path)) {
      MESSAGE("skipped: " << path << " is absent");
      continue;
    }
    std::ifstream file(path);
    const std::size_t n = json::parse(file)["trees"].size();
    const Outcome o = run({"plan", path, "--summary", "--cost-model", constants});
    CHECK(o.code == 0);
    CHECK(count(o.out, "tree ") == n);
    CHECK(count(o.out, "\nshared ") == n);
    CHECK(count(o.out, "\nunshared ") == n);
    CHECK(count(o.out, "us predicted") == 2 * n);
    CHECK(has(o.out, "made up"));
    const Outcome unknown = run({"plan", path, "--tree", "oak"});
    CHECK(unknown.code == 2);
    CHECK(has(unknown.err, "\"oak\""));
  }
}

TEST_CASE("plan: the examples, and a file of another form") {
  const TempFolder folder;
  const Outcome o = run({"plan", BANYAN_SOURCE_DIR "/examples/trees.json", "--tree", "few-shot", "--summary"});
  CHECK(o.code == 0);
  CHECK(has(o.out, "tree few-shot: 137 nodes, 128 rows"));
  for (const std::string bad : {"no json", "{}", R"({"trees": [{"name": "t"}]})"}) {
    const Outcome refused = run({"plan", folder.write("t.json", bad)});
    CHECK(refused.code == 3);
    CHECK(has(refused.err, "t.json: "));
    CHECK(has(refused.err, "\"nodes_per_level\": [1, 8]"));
  }
}

TEST_CASE("plan without constants says how to get them; with broken ones it refuses") {
  const std::string path = std::string(BANYAN_SHARED_DIR) + "/bench/trees.json";
  if (!std::filesystem::exists(path)) {
    MESSAGE("skipped: " << path << " is absent");
    return;
  }
  const TempFolder folder;
  const std::vector<std::string> args{"plan", path, "--tree", "spec-tree", "--cost-model"};
  const auto with = [&](const std::string& constants) {
    auto all = args;
    all.push_back(constants);
    return run(all);
  };
  const Outcome none = with(folder.path("none"));
  CHECK(none.code == 0);
  CHECK(has(none.err, "banyan calibrate"));
  CHECK_FALSE(has(none.out, "predicted"));
  CHECK(count(none.out, "\n") > 43);  // a listing of 43 rows
  for (const std::string bad : {"", "[]", "{}", "{\"call_us\": -1}"}) CHECK(with(folder.write("bad", bad)).code == 3);
  CHECK(with(folder.path()).code == 3);
}

TEST_CASE("code merge joins what agrees and refuses what does not") {
  const TempFolder folder;
  const auto line = [](const std::string& task, int sample, const std::string& text) {
    return json{{"task_id", task}, {"sample_id", sample}, {"completion", text}}.dump() + "\n";
  };
  const std::string a = folder.write("a", line("x", 0, "1") + line("x", 1, "2"));
  const std::string b = folder.write("b", line("x", 1, "2") + line("y", 0, "3"));
  const std::string c = folder.write("c", line("x", 1, "other"));
  Outcome o = run({"code", "merge", a, b, "--out", folder.path("new/m")});
  CHECK(o.code == 0);
  CHECK(o.out.empty());
  CHECK(folder.read("new/m") == line("x", 0, "1") + line("x", 1, "2") + line("y", 0, "3"));
  o = run({"code", "merge", a, c, "--out", folder.path("n")});
  CHECK(o.code == 3);
  CHECK(has(o.err, a + ":2"));
  CHECK(has(o.err, c + ":1"));
  CHECK_FALSE(std::filesystem::exists(folder.path("n")));
  CHECK(run({"code", "merge", a, folder.write("d", "rubbish\n"), "--out", folder.path("n")}).code == 3);
}

TEST_CASE("code eval: unknown problems and malformed samples are left out, named, and the others are scored") {
  const TempFolder folder;
  const auto problem = [&](const std::string& name, const std::string& tests) {
    folder.write("p/" + name + "/question.txt", "Say hello.");
    folder.write("p/" + name + "/input_output.json", tests);
  };
  problem("0000", R"({"inputs": [""], "outputs": ["hello\n"]})");
  problem("0001", R"({"inputs": [""], "outputs": )");
  folder.write(
      "s.jsonl",
      "{\"task_id\":\"0000\",\"completion\":\"print('hello')\"}\n{\"task_id\":\"0000\",\"completion\":\"def (\"}\n"
      "rubbish\n{\"task_id\":\"0000\"}\n{\"task_id\":\"none\",\"completion\":\"\"}\n{\"task_id\":\"0001\","
      "\"completion\":\"\"}\n");
  const std::vector<std::string> args{"code",  "eval",  folder.path("s.jsonl"),    "--problems", folder.path("p"), "-k",
                                      "1,2,3", "--out", folder.path("out/r.jsonl")};
  const Outcome o = run(args);
  if (has(o.err, "bubblewrap") && o.code == 3) {
    MESSAGE("skipped: " << o.err);
    return;
  }
  CAPTURE(o.err);
  CHECK(o.code == 4);
  for (const std::string part : {"0001", "input_output.json", "s.jsonl:3", "s.jsonl:4", "completion", "none"}) {
    CAPTURE(part);
    CHECK(has(o.err, part));
  }
  std::istringstream lines(folder.read("out/r.jsonl"));
  std::map<int, std::string> verdicts;
  for (std::string line; std::getline(lines, line);) {
    const json j = json::parse(line);
    for (const char* key :
         {"task_id", "sample_id", "verdict", "verdict_strict", "tests_passed", "n_tests", "time_ms"}) {
      CHECK(j.contains(key));
    }
    verdicts[j["sample_id"].get<int>()] = j["verdict"].get<std::string>();
  }
  CHECK(verdicts == std::map<int, std::string>{{0, "AC"}, {1, "CE"}});
  const json all = json::parse(folder.read("out/r.summary.json"))["all"];
  CHECK(all["pass_at_k"]["1"] == 0.5);
  CHECK(all["pass_at_k"]["2"] == 1.0);
  CHECK(all["pass_at_k"]["3"].is_null());

  // A wrong program alone is a result; a resumed run scores nothing again, and mends a torn line.
  folder.write("t.jsonl", "{\"task_id\":\"0000\",\"sample_id\":7,\"completion\":\"print(1)\"}\n");
  auto again = args;
  again[2] = folder.path("t.jsonl");
  folder.write("p/0001/input_output.json", R"({"inputs": [], "outputs": []})");
  again.push_back("--force");
  CHECK(run(again).code == 0);
  const std::string once = folder.read("out/r.jsonl");
  folder.write("out/r.jsonl", once + "{\"task_id\":\"0000\",\"samp");
  again.back() = "--resume";
  CHECK(run(again).code == 0);
  CHECK(folder.read("out/r.jsonl") == once);
}
