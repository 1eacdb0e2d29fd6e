// `banyan code sample`: nothing is lost or doubled by kill, resume, shards, a small pool or broken problems.
#include <algorithm>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/bigram_model.hpp"
#include "cli/process.hpp"

using namespace banyan::test;
using nlohmann::json;

namespace {

using Key = std::pair<std::string, int>;

// Lines, sorted. A torn last line is one too.
std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::ranges::sort(lines);
  return lines;
}

std::multiset<Key> keys(const std::string& text) {
  std::multiset<Key> found;
  for (const auto& line : sorted_lines(text)) {
    const json j = json::parse(line);
    found.insert({j["task_id"].get<std::string>(), j["sample_id"].get<int>()});
  }
  return found;
}

// A model whose samples differ, and problems for it.
struct Run {
  TempFolder folder;
  std::string model, problems;
  int n_problems = 0, n = 0;

  Run(int problem_count, int samples, int context = 512) : problems(folder.path("problems")), n(samples) {
    BigramModel m(context);
    m.randomise(/*length=*/25);
    model = folder.write("m.gguf", m.gguf(true));
    for (int i = 0; i < problem_count; ++i) add_problem("Write the number " + std::to_string(i) + ".");
  }
  static std::string name_of(int problem) { return "000" + std::to_string(problem); }  // fewer than ten
  void add_problem(const std::string& question) {
    const std::string name = name_of(n_problems++);
    folder.write("problems/" + name + "/question.txt", question);
    folder.write("problems/" + name + "/input_output.json", R"({"inputs": ["1"], "outputs": ["1"]})");
  }
  std::vector<std::string> args(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> a{"code",  "sample",          "-m",        model, "--problems",   problems,
                               "--n",   std::to_string(n), "--seed",    "11",  "--max-tokens", "60",
                               "--out", folder.path(out),  "--compute", "f32"};
    a.insert(a.end(), more.begin(), more.end());
    return a;
  }
  std::multiset<Key> all_keys() const {
    std::multiset<Key> all;
    for (int p = 0; p < n_problems; ++p) {
      for (int s = 0; s < n; ++s) all.insert({name_of(p), s});
    }
    return all;
  }
};

}  // namespace

TEST_CASE("kill -9 at any moment: a resumed run has the same samples, bit for bit with --deterministic") {
  const Run r(6, 40);
  const std::vector<std::string> mode{"--deterministic", "--max-batch", "8"};
  REQUIRE(run(r.args("whole.jsonl", mode)).code == 0);
  const auto whole = sorted_lines(r.folder.read("whole.jsonl"));
  CHECK(keys(r.folder.read("whole.jsonl")) == r.all_keys());
  auto resumed = mode;
  resumed.push_back("--resume");
  int n_killed = 0;
  for (const std::size_t n_lines : {0, 1, 30, 120, 200}) {
    CAPTURE(n_lines);
    const std::string name = "cut" + std::to_string(n_lines) + ".jsonl";
    {
      Process p(Start{.args = r.args(name, mode)});
      while (p.running() && sorted_lines(r.folder.read(name)).size() < n_lines) std::this_thread::yield();
      n_killed += p.running() ? 1 : 0;
      p.kill(SIGKILL);
      p.wait();
    }
    CHECK(run(r.args(name, resumed)).code == 0);
    CHECK(sorted_lines(r.folder.read(name)) == whole);
  }
  CHECK(n_killed >= 3);
  MESSAGE(n_killed << " of 5 runs were killed before their end");
}

TEST_CASE("a torn last line is drawn again; a run killed twice too; a run without --seed goes on with its own") {
  const Run r(3, 20);
  REQUIRE(run(r.args("whole.jsonl", {"--deterministic"})).code == 0);
  const std::string text = r.folder.read("whole.jsonl");
  const auto whole = sorted_lines(text);
  for (const std::size_t cut : {text.size() - 1, text.size() - 2, text.size() / 2, std::size_t{1}}) {
    r.folder.write("torn.jsonl", text.substr(0, cut));
    CHECK(run(r.args("torn.jsonl", {"--deterministic", "--resume"})).code == 0);
    CHECK(sorted_lines(r.folder.read("torn.jsonl")) == whole);
  }
  CHECK(run(r.args("torn.jsonl", {"--deterministic", "--resume"})).code == 0);  // nothing is left to do
  CHECK(sorted_lines(r.folder.read("torn.jsonl")) == whole);

  r.folder.write("torn.jsonl", text.substr(0, text.size() / 2));
  auto unseeded = r.args("torn.jsonl", {"--deterministic", "--resume"});
  unseeded.erase(std::ranges::find(unseeded, "--seed"), std::ranges::find(unseeded, "--seed") + 2);
  CHECK(run(unseeded).code == 0);
  CHECK(sorted_lines(r.folder.read("torn.jsonl")) == whole);
}

TEST_CASE("shards joined are the whole") {
  const Run r(5, 12);
  REQUIRE(run(r.args("whole.jsonl", {"--deterministic"})).code == 0);
  for (const std::string i : {"1", "2"}) {
    CHECK(run(r.args("shard" + i + ".jsonl", {"--deterministic", "--shard", i + "/2"})).code == 0);
  }
  CHECK(run({"code", "merge", r.folder.path("shard1.jsonl"), r.folder.path("shard2.jsonl"), "--out",
             r.folder.path("merged.jsonl")})
            .code == 0);
  CHECK(sorted_lines(r.folder.read("merged.jsonl")) == sorted_lines(r.folder.read("whole.jsonl")));
}

TEST_CASE("two devices write one file: the samples of one device") {
  const Run r(5, 12);
  REQUIRE(run(r.args("whole.jsonl", {"--deterministic"})).code == 0);
  const auto whole = sorted_lines(r.folder.read("whole.jsonl"));
  const Outcome two = run(r.args("two.jsonl", {"--deterministic", "--devices", "cpu,cpu", "--max-batch", "7"}));
  CHECK(two.code == 0);
  CHECK(two.err.find("60 samples of 5 problems") != std::string::npos);
  CHECK(sorted_lines(r.folder.read("two.jsonl")) == whole);
  // A torn file goes on with three, and with fewer problems than devices.
  const std::string text = r.folder.read("two.jsonl");
  r.folder.write("torn.jsonl", text.substr(0, text.size() / 3));
  CHECK(run(r.args("torn.jsonl", {"--deterministic", "--devices", "cpu,cpu,cpu", "--resume"})).code == 0);
  CHECK(sorted_lines(r.folder.read("torn.jsonl")) == whole);
  const Run one(1, 30);
  REQUIRE(run(one.args("whole.jsonl", {"--deterministic"})).code == 0);
  REQUIRE(run(one.args("two.jsonl", {"--deterministic", "--devices", "cpu,cpu"})).code == 0);
  CHECK(sorted_lines(one.folder.read("two.jsonl")) == sorted_lines(one.folder.read("whole.jsonl")));
}

TEST_CASE("--shard auto: what Slurm or Open MPI say; a file of its own for each process") {
  const Run r(5, 4);
  REQUIRE(run(r.args("whole.jsonl", {"--deterministic"})).code == 0);
  const auto shard = [&](std::map<std::string, std::string> env) {
    return run(Start{.args = r.args("s.jsonl", {"--deterministic", "--shard", "auto"}), .env = std::move(env)});
  };
  CHECK(shard({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}).code == 0);
  CHECK(shard({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_NTASKS", "9"}}).code == 0);
  CHECK(run({"code", "merge", r.folder.path("s.1-of-2.jsonl"), r.folder.path("s.2-of-2.jsonl"), "--out",
             r.folder.path("merged.jsonl")})
            .code == 0);
  CHECK(sorted_lines(r.folder.read("merged.jsonl")) == sorted_lines(r.folder.read("whole.jsonl")));
  const auto refused = [&](std::map<std::string, std::string> env, const std::vector<std::string>& parts) {
    const Outcome o = shard(std::move(env));
    CHECK(o.code == 2);
    for (const std::string& part : parts) {
      CAPTURE(part);
      CHECK(o.err.find(part) != std::string::npos);
    }
  };
  refused({}, {"--shard auto", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"});
  refused({{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "2"}}, {"SLURM_PROCID is '2'", "SLURM_NTASKS is '2'"});
  refused({{"SLURM_PROCID", "x"}, {"SLURM_NTASKS", "2"}}, {"'x'"});
  refused({{"OMPI_COMM_WORLD_RANK", "0"}}, {"OMPI_COMM_WORLD_SIZE is not set"});
  refused({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}},
          {"Slurm says 1/2, Open MPI 2/2"});
}

TEST_CASE("a pool too small for all still gives every sample, the same ones") {
  const Run r(4, 16);
  REQUIRE(run(r.args("whole.jsonl", {"--deterministic"})).code == 0);
  // 32 bytes a token: room for 300 tokens, where a problem's prompt and one sample take up to about 150.
  CHECK(run(r.args("small.jsonl", {"--deterministic", "--kv-budget", "9600"})).code == 0);
  CHECK(sorted_lines(r.folder.read("small.jsonl")) == sorted_lines(r.folder.read("whole.jsonl")));
}

TEST_CASE("a broken problem, and one longer than the context, fail alone: exit 4, the others are done") {
  Run r(3, 5, /*context=*/256);
  r.add_problem(std::string(1000, 'x'));
  auto expected = r.all_keys();
  std::erase_if(expected, [](const Key& k) { return k.first == "0003"; });
  r.folder.write("problems/0009/question.txt", "");
  r.folder.write("problems/0010/question.txt", "A question");
  r.folder.write("problems/0010/input_output.json", "{\"inputs\": [}");
  const Outcome o = run(r.args("out.jsonl"));
  CHECK(o.code == 4);
  for (const std::string part : {"0003", "0009", "0010", "input_output.json", "256"}) {
    CAPTURE(part);
    CHECK(o.err.find(part) != std::string::npos);
  }
  CHECK(keys(r.folder.read("out.jsonl")) == expected);
}

TEST_CASE("a problem that the vocabulary cannot spell fails alone") {
  const TempFolder folder;
  folder.write("p/0000/question.txt", "x");
  const Outcome o = run({"code", "sample", "-m", BANYAN_SOURCE_DIR "/models/tiny/tiny.gguf", "--problems",
                         folder.path("p"), "--out", folder.path("o.jsonl"), "--n", "2", "--seed", "1"});
  CHECK(o.code == 4);
  CHECK(o.err.find("0000, sample 1: ") != std::string::npos);
  CHECK(o.err.find("0x51") != std::string::npos);
}

TEST_CASE("SIGINT: exit 130, whole lines, and --resume goes on; a line has the fields of the documentation") {
  const Run r(4, 500);
  for (const std::string devices : {"cpu", "cpu,cpu"}) {
    CAPTURE(devices);
    const std::string name = devices + ".jsonl";
    Process p(Start{.args = r.args(name, {"--max-batch", "8", "--devices", devices})});
    while (p.running() && r.folder.read(name).empty()) std::this_thread::yield();
    p.kill(SIGINT);
    CHECK(p.wait().code == 130);
    CHECK(keys(r.folder.read(name)).size() < r.all_keys().size());
    CHECK(json::parse(r.folder.read(devices + ".run.json"))["n_generated"] > 0);
  }
  CHECK(run(r.args("cpu.jsonl", {"--resume", "--devices", "cpu,cpu"})).code == 0);
  CHECK(keys(r.folder.read("cpu.jsonl")) == r.all_keys());
  const json line = json::parse(sorted_lines(r.folder.read("cpu.jsonl"))[0]);
  for (const char* key : {"task_id", "sample_id", "completion", "text", "n_tokens", "finish_reason",
                          "cumulative_logprob", "seed", "model", "version", "sampler"}) {
    CAPTURE(key);
    CHECK(line.contains(key));
  }
  CHECK(line["seed"] == 11);
}

TEST_CASE("calibrate, then plan: predicted times") {
  const TempFolder folder;
  const std::string constants = folder.path("deep/er/cost.json");
  const Outcome o = run({"calibrate", "--heads-q", "2", "--heads-kv", "1", "--head-dim", "16", "--out", constants});
  CHECK(o.code == 0);
  folder.write("t.json",
               R"({"trees": [{"name": "two", "heads": ["gqa32/8"], "nodes": [[-1, 64, 0], [0, 8, 1], [0, 8, 1]]}]})");
  const Outcome plan = run({"plan", folder.path("t.json"), "--summary", "--cost-model", constants});
  CAPTURE(plan.err);
  CHECK(plan.code == 0);
  CHECK(plan.out.find("us predicted") != std::string::npos);
  CHECK(plan.out.find("2 query heads, 1 KV heads, 16 elements") != std::string::npos);
}
