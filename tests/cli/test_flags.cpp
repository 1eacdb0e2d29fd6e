// Flags, environment, config files, exit codes and messages: what a user gets wrong, and what he is told.
#include <doctest/doctest.h>

#include "cli/process.hpp"

using namespace banyan::test;

namespace {

const std::string kTiny = BANYAN_SOURCE_DIR "/models/tiny/tiny.gguf";

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The tiny model, the prompt "the", two tokens, and more.
std::vector<std::string> generate(const std::vector<std::string>& more) {
  std::vector<std::string> args{"generate", "-m", kTiny, "-p", "the", "--max-tokens", "2"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// Nothing on stdout, this exit code, and all of these in the message.
void check_refused(const std::vector<std::string>& args, int code, const std::vector<std::string>& parts) {
  std::string line;
  for (const auto& a : args) line += a + " ";
  CAPTURE(line);
  const Outcome o = run(args);
  CAPTURE(o.err);
  CHECK(o.code == code);
  CHECK(o.out.empty());
  CHECK(has(o.err, "banyan: "));
  for (const auto& part : parts) {
    CAPTURE(part);
    CHECK(has(o.err, part));
  }
}

}  // namespace

TEST_CASE("bad flags are usage errors that name the flag and the value") {
  check_refused({}, 2, {"subcommand"});
  check_refused({"grow"}, 2, {"grow"});
  check_refused({"code"}, 2, {"subcommand"});
  check_refused({"generate", "-p", "a"}, 2, {"--model"});
  check_refused({"generate", "-m", kTiny}, 2, {"-p or -f", "give a text"});
  check_refused({"tokenize", "-m", kTiny}, 2, {"-p or -f", "give a text"});
  check_refused(generate({"-f", "x"}), 2, {"-p and -f", "not both"});
  check_refused(generate({"--bogus", "1"}), 2, {"--bogus", "no flag of generate"});
  check_refused(generate({"--n", "0"}), 2, {"--n", "0 is out of range", "1 to 1000000"});
  check_refused(generate({"--n", "1000000000000"}), 2, {"--n", "1000000000000", "1000000"});
  check_refused(generate({"--n", "two"}), 2, {"--n", "'two'"});
  check_refused(generate({"--n", "1.5"}), 2, {"--n", "'1.5'"});
  check_refused(generate({"--seed", "99999999999999999999"}), 2, {"--seed", "99999999999999999999"});
  check_refused(generate({"--seed", "-2"}), 2, {"--seed", "-2"});
  check_refused(generate({"--threads", "-1"}), 2, {"--threads", "-1"});
  check_refused(generate({"--max-batch", "0"}), 2, {"--max-batch", "0"});
  check_refused(generate({"--max-rows", "0"}), 2, {"--max-rows", "0"});
  check_refused(generate({"--logprobs", "0"}), 2, {"--logprobs", "0"});
  check_refused(generate({"--compute", "f64"}), 2, {"--compute", "f64"});
  check_refused(generate({"--device", "tpu"}), 2, {"--device", "tpu"});
  check_refused(generate({"--device", "cuda", "--device-index", "1000"}), 2, {"device"});
  check_refused(generate({"--device", "cuda", "--compute", "f32"}), 2, {"compute"});
  check_refused(generate({"--chat-template", "oak"}), 2, {"--chat-template", "oak", "chatml"});
  check_refused({"convert", kTiny, "new", "--type", "Q3_K"}, 2, {"--type", "Q3_K", "q4_k"});
  check_refused({"convert", kTiny, "new", "--type", "q8_0"}, 2, {"q8_0", "a directory f32, f16 and bf16"});
  check_refused({"code", "eval", "x", "--problems", "y", "--resume"}, 2, {"--resume", "--out"});
  check_refused(generate({"--kv-type", "int3"}), 2, {"--kv-type", "int3"});
  check_refused(generate({"--kv-budget", "1"}), 2, {"--kv-budget", "1", "256 bytes"});
  check_refused(generate({"--kv-type", "fp8", "--kv-budget", "1"}), 2, {"--kv-budget", "1", "96 bytes"});
  check_refused(generate({"--kv-budget", "lots"}), 2, {"--kv-budget", "'lots'", "GiB"});
  for (const std::string share : {"0%", "100.5%", "-1%", "%", "half%", "nan%"}) {
    check_refused(generate({"--kv-budget", share}), 2, {"--kv-budget", "'" + share + "'", "100 %"});
  }
  CHECK(run(generate({"--kv-budget", "0.5%", "--seed", "1"})).code == 0);
  check_refused(generate({"--kv-budget", "100000GiB"}), 2, {"--kv-budget", "100000GiB", "bytes of memory in all"});
  check_refused(generate({"--stop", ""}), 2, {"--stop"});
  check_refused(generate({"--devices", "cpu,gpu1"}), 2, {"--devices", "'gpu1'"});
  check_refused(generate({"--devices", "cpu,-1"}), 2, {"--devices", "'-1'"});
  check_refused(generate({"--devices", "cpu,cpu", "--device", "cpu"}), 2, {"--devices", "--device-index"});
  check_refused(generate({"--devices", "cpu,cpu", "--tree", "t.html"}), 2, {"--tree", "2 devices"});
  check_refused(generate({"--tensor-parallel", "2"}), 2, {"--tensor-parallel", "--devices"});
  check_refused(generate({"--tensor-parallel-size=2"}), 2, {"--tensor-parallel", "--devices"});
  check_refused(generate({"--tree", "tree.png"}), 2, {"--tree", "tree.png", ".html"});
  check_refused({"plan", "x", "--heads-q", "3", "--heads-kv", "2"}, 2, {"--heads-kv", "2", "3"});
  check_refused({"code", "eval", "x", "--problems", "y", "-k", "0"}, 2, {"-k", "0"});
  check_refused(
      {"code", "sample", "-m", kTiny, "--problems", BANYAN_SOURCE_DIR "/examples/apps", "--out", "x", "--shard", "3/2"},
      2, {"--shard", "3/2"});
  check_refused({"code", "sample", "-m", kTiny, "--problems", BANYAN_SOURCE_DIR "/examples/apps", "--out", "x",
                 "--difficulty", "oak"},
                2, {"difficulty", "\"oak\""});
}

TEST_CASE("sampler values out of range are usage errors (BL-15)") {
  for (const auto& [flag, value] : std::vector<std::pair<std::string, std::string>>{{"temperature", "nan"},
                                                                                    {"temperature", "-1"},
                                                                                    {"temperature", "inf"},
                                                                                    {"top-k", "-2"},
                                                                                    {"top-p", "1.5"},
                                                                                    {"min-p", "-0.1"},
                                                                                    {"repetition-penalty", "0"},
                                                                                    {"presence-penalty", "nan"},
                                                                                    {"frequency-penalty", "1e9"}}) {
    std::string name = flag;
    if (flag != "top-k") {
      for (char& c : name) c = c == '-' ? '_' : c;
    }
    check_refused(generate({"--" + flag, value}), 2, {name, "out of range"});
  }
}

TEST_CASE("-n is refused and asks what was meant") {
  for (const auto& more : std::vector<std::vector<std::string>>{{"-n", "5"}, {"-n5"}, {"-n"}}) {
    check_refused(generate(more), 2, {"did you mean --max-tokens or --n?"});
  }
}

TEST_CASE("a flag that is none: what was meant, in every command") {
  const auto hints = [](const std::vector<std::string>& args, const std::string& flag, const std::string& hint) {
    check_refused(args, 2, {"banyan: " + flag + ": no flag of ", hint});
  };
  hints(generate({"--max_tokens", "8"}), "--max_tokens", "did you mean --max-tokens?");
  hints(generate({"--MAX_TOKENS=8"}), "--MAX_TOKENS", "did you mean --max-tokens?");
  hints(generate({"--max-new-tokens", "8"}), "--max-new-tokens", "did you mean --max-tokens?");
  hints(generate({"--temprature", "0"}), "--temprature", "did you mean --temperature?");
  hints(generate({"--temp", "0"}), "--temp", "did you mean --temperature?");
  hints(generate({"--tokens", "8"}), "--tokens", "did you mean --max-tokens?");
  hints(generate({"--output", "x"}), "--output", "did you mean --out?");
  hints(generate({"--print_config"}), "--print_config", "did you mean --print-config?");
  hints({"generate", "--models", "x"}, "--models", "did you mean --model?");
  hints({"code", "eval", "x", "--problem", "y"}, "--problem", "no flag of eval; did you mean --problems?");
  hints({"code", "eval", "x", "--problems", "y", "-n", "5"}, "-n", "did you mean --n-at-k?");
  hints({"code", "merge", "x", "--output", "y"}, "--output", "did you mean --out?");
  hints({"plan", "x", "--head_dim", "64"}, "--head_dim", "did you mean --head-dim?");
  hints({"tokenize", "--prompt", "x", "--nobos"}, "--nobos", "did you mean --no-bos?");
  hints({"inspect", "x", "--computes"}, "--computes", "did you mean --compute?");
  hints({"calibrate", "--thread", "1"}, "--thread", "did you mean --threads?");
  hints({"convert", "x", "y", "--types", "f32"}, "--types", "did you mean --type?");
  const Outcome far = run(generate({"--quux"}));
  CHECK(far.code == 2);
  CHECK_FALSE(has(far.err, "did you mean"));
  const TempFolder folder;
  check_refused(generate({"--config", folder.write("c", "max_tokens = 3\n")}), 3,
                {"c:1", "did you mean --max-tokens?"});
}

TEST_CASE("BL-39: negative counts are usage errors; -1 alone has a meaning") {
  for (const std::string flag : {"--max-tokens", "--n", "--max-batch", "--max-rows"}) {
    check_refused(generate({flag + "=-5"}), 2, {flag, "-5"});
  }
  CHECK(run(generate({"--seed", "1", "--top-k", "-1"})).code == 0);
}

TEST_CASE("a number is decimal: 010 is ten") {
  const Outcome o = run(generate({"--seed", "010"}));
  CHECK(has(o.out, "\"seed\":10,"));
}

TEST_CASE("files that cannot be read or written are named, exit 3") {
  const TempFolder folder;
  const std::string empty = folder.write("empty", ""), gone = folder.path("gone"), dir = folder.path();
  const std::string no_model = folder.write("m.gguf", "GGUF rubbish");
  for (const auto& [path, why] : std::vector<std::pair<std::string, std::string>>{
           {gone, "No such file"}, {empty, "empty"}, {no_model, "m.gguf"}, {dir, "config.json"}}) {
    check_refused({"generate", "-m", path, "-p", "a"}, 3, {path, why});
    check_refused({"inspect", path}, 3, {path, why});
  }
  check_refused({"generate", "-m", kTiny, "-f", gone}, 3, {gone});
  check_refused({"generate", "-m", kTiny, "-f", dir}, 3, {dir, "directory"});
  check_refused({"tokenize", "-m", kTiny, "-f", dir}, 3, {dir, "directory"});
  check_refused({"plan", dir}, 3, {dir, "directory"});
  check_refused({"plan", gone}, 3, {gone});
  check_refused({"plan", empty}, 3, {empty});
  check_refused({"code", "eval", dir, "--problems", BANYAN_SOURCE_DIR "/examples/apps"}, 3, {dir, "directory"});
  check_refused({"code", "eval", empty, "--problems", BANYAN_SOURCE_DIR "/examples/apps"}, 3, {empty, "no sample"});
  check_refused({"code", "merge", dir, "--out", folder.path("m")}, 3, {dir, "directory"});
  check_refused(generate({"--out", dir}), 3, {dir, "directory"});
  check_refused(generate({"--out", empty + "/x"}), 3, {empty});
  const auto sample = [&](const std::string& problems, const std::string& few_shot) {
    return std::vector<std::string>{"code",  "sample",         "-m",         kTiny,    "--problems", problems,
                                    "--out", folder.path("o"), "--few-shot", few_shot, "--seed",     "1"};
  };
  for (const auto& path : {gone, empty, dir}) check_refused(sample(path, empty), 3, {path});
  for (const auto& path : {gone, empty, dir})
    check_refused(sample(BANYAN_SOURCE_DIR "/examples/apps", path), 3, {path});
}

TEST_CASE("--out never replaces a file unasked") {
  const TempFolder folder;
  const std::string apps = BANYAN_SOURCE_DIR "/examples/apps";
  const std::string there = folder.write("there.jsonl", "{\"task_id\":\"x\",\"completion\":\"1\"}\n");
  const std::string before = folder.read("there.jsonl");
  const std::string way_on = "exists already; replace it (--force), or give another name";
  const std::string way_on_resumed = "exists already; go on with it (--resume), replace it (--force), or give another";
  const std::vector<std::string> sample{"code", "sample", "-m", "none", "--problems", apps, "--out", there},
      merge{"code", "merge", there, "--out", there};
  check_refused(generate({"--out", there}), 2, {there, way_on});
  check_refused(merge, 2, {there, way_on});
  check_refused(sample, 2, {there, way_on_resumed});
  check_refused({"code", "eval", there, "--problems", apps, "--out", there}, 2, {there, way_on_resumed});
  check_refused({"convert", kTiny, there, "--type", "f32"}, 2, {there, "exists already"});
  check_refused({"code", "eval", there, "--problems", apps, "--out", there, "--resume", "--force"}, 2,
                {"--resume", "--force"});
  CHECK(folder.read("there.jsonl") == before);

  const auto with = [](std::vector<std::string> args, const std::string& flag) {
    args.push_back(flag);
    return args;
  };
  check_refused(with(sample, "--resume"), 3, {"none"});  // the model's turn
  CHECK(folder.read("there.jsonl") == before);
  CHECK(run(with(merge, "--force")).code == 0);
  CHECK(run(generate({"--out", there, "--force"})).code == 0);
  CHECK(has(folder.read("there.jsonl"), "finish_reason"));
  CHECK(run(generate({"--out", "/dev/null"})).code == 0);
  CHECK(run(generate({"--out", folder.write("empty", "")})).code == 0);
}

TEST_CASE("the output's disk is full or closed: exit 1, and it says so") {
  for (const auto& args : std::vector<std::vector<std::string>>{
           generate({"--seed", "1"}), {"tokenize", "-m", kTiny, "-p", "the"}, {"inspect", kTiny}, {"--help"}}) {
    for (const std::string where : {"/dev/full", "-"}) {
      const Outcome o = run(Start{.args = args, .stdout_path = where});
      CAPTURE(args[0]);
      CHECK(o.code == 1);
      CHECK(has(o.err, "stdout: cannot be written"));
    }
  }
  const Outcome o = run(generate({"--out", "/dev/full"}));
  CHECK(o.code == 1);
  CHECK(has(o.err, "/dev/full: cannot be written: No space left"));
}

TEST_CASE("flag > environment > config file > default") {
  const TempFolder folder;
  const std::string config =
      folder.write("c", "# sizes\nmax-tokens = 3\n\ntemperature=0\nstop = [\"\\n\\n\", \"END\"]\n");
  const auto printed = [&](std::vector<std::string> more, std::map<std::string, std::string> env) {
    std::vector<std::string> args{"generate", "-m", kTiny, "-p", "the", "--print-config"};
    args.insert(args.end(), more.begin(), more.end());
    return run(Start{.args = args, .env = std::move(env)}).out;
  };
  CHECK(has(printed({}, {}), "max-tokens = 128\n"));
  const std::string from_file = printed({"--config", config}, {});
  CHECK(has(from_file, "max-tokens = 3\n"));
  CHECK(has(from_file, "temperature = 0\n"));
  CHECK(has(from_file, "stop = [\"\\n\\n\",\"END\"]\n"));
  CHECK(has(printed({"--config", config}, {{"BANYAN_MAX_TOKENS", "4"}}), "max-tokens = 4\n"));
  CHECK(has(printed({"--config", config, "--max-tokens", "5"}, {{"BANYAN_MAX_TOKENS", "4"}}), "max-tokens = 5\n"));
  CHECK(has(printed({}, {{"BANYAN_DETERMINISTIC", "1"}, {"BANYAN_KV_TYPE", "f16"}}), "kv-type = f16\n"));
  CHECK(has(printed({}, {{"BANYAN_DETERMINISTIC", "1"}}), "deterministic = true\n"));
  // Required flags may come from either; a value is checked wherever it comes from.
  const Outcome all_env = run(Start{.args = {"generate"}, .env = {{"BANYAN_MODEL", kTiny}, {"BANYAN_PROMPT", "the"}}});
  CHECK(all_env.code == 0);
  const Outcome bad = run(Start{.args = generate({}), .env = {{"BANYAN_N", "-1"}}});
  CHECK(bad.code == 2);
  CHECK(has(bad.err, "--n: -1"));
}

TEST_CASE("what --print-config prints gives the same flags to --config") {
  const TempFolder folder;
  const std::vector<std::string> flags{"--n",          "3",           "--seed",  "5",       "--stop",     "[a, b]",
                                       "--stop",       "\n\"x\"",     "--min-p", "0.05",    "--logprobs", "2",
                                       "--ignore-eos", "--kv-budget", "1MiB",    "--top-k", "-1"};
  std::vector<std::string> args{"generate", "-m", kTiny, "-p", " the\t\"any\" # and\n", "--print-config"};
  args.insert(args.end(), flags.begin(), flags.end());
  const Outcome first = run(args);
  REQUIRE(first.code == 0);
  CHECK(has(first.out, "stop = [\"[a, b]\",\"\\n\\\"x\\\"\"]\n"));
  const std::string config = folder.write("c", first.out);
  const Outcome second = run({"generate", "--config", config, "--print-config"});
  CHECK(second.err == "");
  CHECK(second.out == first.out);
  // Also by what it does, with the nested subcommands' own names.
  const Outcome direct = run(generate({"--seed", "5", "--n", "3"}));
  folder.write("d", run(generate({"--seed", "5", "--n", "3", "--print-config"})).out);
  CHECK(run({"generate", "--config", folder.path("d")}).out == direct.out);
  const Outcome nested = run({"code", "eval", "s.jsonl", "--problems", "p", "-k", "1,8", "--print-config"});
  CHECK(has(nested.out, "k = [\"1\",\"8\"]\n"));
  CHECK(has(nested.out, "samples = s.jsonl\n"));
  folder.write("e", nested.out);
  CHECK(run({"code", "eval", "--config", folder.path("e"), "--print-config"}).out == nested.out);
}

TEST_CASE("config files that cannot be used are refused, with the line") {
  const TempFolder folder;
  const auto refused = [&](const std::string& content, const std::vector<std::string>& parts) {
    check_refused(generate({"--config", folder.write("c", content)}), 3, parts);
  };
  refused("\nwidth = 3\n", {"c:2", "'width'", "generate"});
  refused("max-tokens\n", {"c:1", "'max-tokens'"});
  refused("stop = \"a\n", {"c:1", "JSON"});
  refused("n = 1\nn = 2\n", {"c:2", "'n'"});
  check_refused(generate({"--config", folder.path("gone")}), 3, {"gone"});
  check_refused(generate({"--config", folder.write("c", "n = 0\n")}), 2, {"--n", "0"});
}

TEST_CASE("help and version go to stdout, exit 0, with examples") {
  for (const auto& args : std::vector<std::vector<std::string>>{{"generate", "--help"},
                                                                {"code", "sample", "--help"},
                                                                {"code", "eval", "--help"},
                                                                {"code", "merge", "--help"},
                                                                {"plan", "--help"},
                                                                {"convert", "--help"},
                                                                {"inspect", "--help"},
                                                                {"tokenize", "--help"},
                                                                {"calibrate", "--help"}}) {
    const Outcome o = run(args);
    CHECK(o.code == 0);
    CHECK(o.err.empty());
    CHECK(has(o.out, "Example"));
  }
  CHECK(has(run({"--help"}).out, "--config"));
  CHECK(has(run({"plan", "--help"}).out, "nodes_per_level"));
  CHECK(has(run({"calibrate", "--help"}).out, "nothing else to do"));
  CHECK(run({"--version"}).code == 0);
}
