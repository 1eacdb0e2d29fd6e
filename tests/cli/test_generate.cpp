// `banyan generate`: its lines, seeds, prompts good and bad.
#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/bigram_model.hpp"
#include "cli/process.hpp"

using namespace banyan::test;
using nlohmann::json;

namespace {

const std::string kTiny = BANYAN_SOURCE_DIR "/models/tiny/tiny.gguf";

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Every line through a strict parser: no NaN, no raw control character, valid UTF-8.
std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  CHECK((text.empty() || text.back() == '\n'));
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

json first_line(const std::string& text) {
  const auto lines = lines_of(text);
  REQUIRE_FALSE(lines.empty());
  return lines[0];
}

std::vector<std::string> args_for(const std::string& model, const std::vector<std::string>& more) {
  std::vector<std::string> args{"generate", "-m", model, "--compute", "f32"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

struct Bigram : BigramModel {
  using BigramModel::BigramModel;
  TempFolder folder;
  std::string save(bool add_bos = true) const { return folder.write("bigram.gguf", gguf(add_bos)); }
};

}  // namespace

TEST_CASE("a line has the fields of the documentation; stdout has lines alone") {
  const Outcome o =
      run(args_for(kTiny, {"-p", "the any", "--n", "2", "--max-tokens", "3", "--seed", "7", "--logprobs", "4"}));
  REQUIRE(o.code == 0);
  CHECK(has(o.err, "tokens generated"));
  const auto lines = lines_of(o.out);
  REQUIRE(lines.size() == 2);
  std::set<int> samples;
  for (const json& line : lines) {
    CHECK(line["id"] == 0);
    samples.insert(line["sample_id"].get<int>());
    CHECK(line["prompt_token_ids"] == json{0, 43, 38, 51});
    CHECK(line["completion"].is_string());
    CHECK(line["finish_reason"] == "length");
    CHECK(line["seed"] == 7);
    CHECK(line["sampler"] == json{{"temperature", 1.0}, {"top_k", 0}, {"top_p", 1.0}, {"min_p", 0.0}});
    CHECK(line["model"] == "tiny");
    CHECK(line["version"].is_string());
    REQUIRE(line["token_ids"].size() == 3);
    REQUIRE(line["logprobs"].size() == 3);
    for (const json& position : line["logprobs"]) {
      REQUIRE(position.size() == 4);
      for (std::size_t i = 0; i < 4; ++i) {
        CHECK(position[i].size() == 2);
        CHECK(position[i][0].is_number_integer());
        CHECK(position[i][1].get<double>() <= (i == 0 ? 0 : position[i - 1][1].get<double>()));
      }
    }
  }
  CHECK(samples == std::set<int>{0, 1});
  CHECK_FALSE(first_line(run(args_for(kTiny, {"-p", "the", "--max-tokens", "1"})).out).contains("logprobs"));
}

TEST_CASE("the sum of the chosen tokens' logprobs is the cumulative one, greedily") {
  const json line =
      first_line(run(args_for(kTiny, {"-p", "the", "--max-tokens", "8", "--temperature", "0", "--logprobs", "1"})).out);
  double sum = 0;
  for (std::size_t i = 0; i < line["token_ids"].size(); ++i) {
    CHECK(line["logprobs"][i][0][0] == line["token_ids"][i]);
    sum += line["logprobs"][i][0][1].get<double>();
  }
  CHECK(line["cumulative_logprob"].get<double>() == doctest::Approx(sum));
}

TEST_CASE("BL-55: minus infinity is null; quotes, line ends, NUL, U+2028 and broken bytes go through a strict parser") {
  Bigram model(64);
  // All different: quote, line end, NUL, U+2028, a lone surrogate's bytes, backslash, escape, a plant of four bytes.
  const std::string text("\"\n\0\xE2\x80\xA8\xED\xA1\x81\\\x1B\xF0\x9F\x8C\xB4", 15);
  model.chain("a" + text);
  const Outcome o = run(args_for(model.save(), {"-p", "a", "--logprobs", "5", "--seed", "1"}));
  CAPTURE(o.err);
  REQUIRE(o.code == 0);
  const auto lines = lines_of(o.out);
  REQUIRE(lines.size() == 1);
  const json& line = lines[0];
  const std::string bad = "\xEF\xBF\xBD";
  CHECK(line["completion"] == std::string("\"\n\0\xE2\x80\xA8", 6) + bad + bad + bad + "\\\x1B\xF0\x9F\x8C\xB4");
  CHECK(line["finish_reason"] == "eos");
  CHECK(line["token_ids"].size() == text.size() + 1);
  CHECK(line["token_ids"].back() == BigramModel::kEos);
  CHECK(line["cumulative_logprob"] == 0.0);
  for (const json& position : line["logprobs"]) {
    REQUIRE(position.size() == 5);
    CHECK(position[0][1] == 0.0);
    for (std::size_t i = 1; i < 5; ++i) CHECK(position[i][1].is_null());
  }
}

TEST_CASE("BL-19: samples differ, do not depend on n, and runs without a seed record the one that replays them") {
  Bigram model(64);
  for (int last = 0; last < BigramModel::kVocab; ++last) {
    for (int next = 0; next < BigramModel::kVocab; ++next)
      model.set(last, next, next >= 'a' && next < 'q' ? 0.0F : -60.0F);
  }
  const std::string path = model.save();
  const auto texts = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args{"-p", "x", "--max-tokens", "8"};
    args.insert(args.end(), more.begin(), more.end());
    std::map<int, std::string> by_sample;
    std::int64_t seed = -1;
    for (const json& line : lines_of(run(args_for(path, args)).out)) {
      by_sample[line["sample_id"].get<int>()] = line["completion"].get<std::string>();
      seed = line["seed"].get<std::int64_t>();
    }
    return std::pair{by_sample, seed};
  };
  const auto sixteen = texts({"--n", "16", "--seed", "42"}).first, four = texts({"--n", "4", "--seed", "42"}).first;
  std::set<std::string> distinct;
  for (const auto& [sample, text] : sixteen) distinct.insert(text);
  CHECK(distinct.size() >= 15);
  REQUIRE(four.size() == 4);
  for (const auto& [sample, text] : four) CHECK(sixteen.at(sample) == text);
  const auto first = texts({"--n", "4"}), second = texts({"--n", "4", "--seed", "-1"});
  CHECK(first.second != second.second);
  CHECK(first.first != second.first);
  CHECK(texts({"--n", "4", "--seed", std::to_string(first.second)}).first == first.first);
}

TEST_CASE("BL-39: without eos and limit a sample ends at the context; the longest prompt and one token more") {
  Bigram model(64);  // all 258 tokens equally likely
  const std::string path = model.save(/*add_bos=*/false);
  const auto with_prompt = [&](int n) {
    return run(
        args_for(path, {"-p", std::string(static_cast<std::size_t>(n), 'a'), "--max-tokens", "-1", "--ignore-eos"}));
  };
  const Outcome ten = with_prompt(10), full = with_prompt(64), over = with_prompt(65);
  CHECK(ten.code == 0);
  CHECK(first_line(ten.out)["finish_reason"] == "context");
  CHECK(first_line(ten.out)["token_ids"].size() >= 54);
  CHECK(first_line(ten.out)["token_ids"].size() <= 55);
  CHECK(full.code == 0);
  CHECK(first_line(full.out)["finish_reason"] == "context");
  CHECK(over.code == 3);
  CHECK(has(over.err, "65"));
  CHECK(has(over.err, "64"));
  CHECK(first_line(over.out)["finish_reason"] == "error");
  for (const Outcome* o : {&ten, &full, &over}) CHECK(std::ranges::count(o->err, '\n') < 100);
}

TEST_CASE("BL-40: an empty prompt begins at BOS; without one it fails alone") {
  Bigram model(64);
  model.chain("abc");
  const TempFolder folder;
  const std::string three =
      folder.write("p.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\":\"\",\"id\":\"empty\"}\n{\"prompt\":\"b\"}\n");
  const std::string with_bos = model.save(true);
  Outcome o = run(args_for(with_bos, {"-p", "", "--max-tokens", "2"}));
  CHECK(o.code == 0);
  CHECK(first_line(o.out)["prompt_token_ids"] == json{BigramModel::kBos});
  CHECK(run(args_for(with_bos, {"-f", folder.write("empty.txt", ""), "--max-tokens", "2"})).code == 0);
  CHECK(run(args_for(with_bos, {"-f", three, "--max-tokens", "2"})).code == 0);

  const std::string without = model.save(false);
  o = run(args_for(without, {"-p", "", "--max-tokens", "2"}));
  CHECK(o.code == 3);
  CHECK(first_line(o.out)["finish_reason"] == "error");
  o = run(args_for(without, {"-f", three}));
  CHECK(o.code == 4);
  CHECK(has(o.err, "\"empty\""));
  std::map<std::string, json> by_id;
  for (const json& line : lines_of(o.out)) by_id[line["id"].dump()] = line;
  REQUIRE(by_id.size() == 3);
  CHECK(by_id["0"]["completion"] == "bc");
  CHECK(by_id["2"]["completion"] == "c");
  CHECK(by_id["\"empty\""]["finish_reason"] == "error");
}

TEST_CASE("prompts as JSON Lines: ids, bad lines, odd names; a text file that begins like JSON is a text") {
  const TempFolder folder;
  const std::string path = folder.write("ünï 日本 \"q'.jsonl",
                                        "{\"prompt\":\"the\"}\nnot json\n{\"prompt\":5}\n\n[1]\n"
                                        "{\"prompt\":\"any\",\"id\":{\"a\":[1]}}\n{\"prompt\":\"and\"}");
  Outcome o = run(args_for(kTiny, {"-f", path, "--max-tokens", "1", "--out", folder.path("öut/å.jsonl")}));
  CHECK(o.code == 4);
  CHECK(o.out.empty());
  CHECK(has(o.err, path + ":2:2: is not valid JSON: syntax error"));
  CHECK_FALSE(has(o.err, "line 1"));
  CHECK(has(o.err, path + ":3: "));
  CHECK(has(o.err, path + ":5: "));
  std::map<std::string, std::string> finish;
  for (const json& line : lines_of(folder.read("öut/å.jsonl"))) finish[line["id"].dump()] = line["finish_reason"];
  CHECK(
      finish ==
      std::map<std::string, std::string>{
          {"0", "length"}, {"1", "error"}, {"2", "error"}, {"3", "error"}, {"{\"a\":[1]}", "length"}, {"5", "length"}});
  CHECK(run(args_for(kTiny, {"-f", folder.write("none.jsonl", "x\n"), "--max-tokens", "1"})).code == 3);
  CHECK(run(args_for(kTiny, {"-f", folder.write("empty.jsonl", "\n"), "--max-tokens", "1"})).code == 3);

  Bigram model(64);
  model.chain("{ab");
  o = run(args_for(model.save(), {"-f", folder.write("brace.txt", "{ {")}));
  CHECK(o.code == 0);
  CHECK(first_line(o.out)["completion"] == "ab");
}

TEST_CASE("prompts with NUL, and prompts that the vocabulary cannot spell") {
  const TempFolder folder;
  Bigram model(64);
  model.chain("xyz");
  const Outcome o = run(args_for(model.save(), {"-f", folder.write("nul.txt", std::string("a\0x", 3))}));
  CHECK(o.code == 0);
  CHECK(first_line(o.out)["prompt_token_ids"] == json{BigramModel::kBos, 'a', 0, 'x'});
  CHECK(first_line(o.out)["completion"] == "yz");
  const Outcome bad = run(args_for(kTiny, {"-p", "日"}));
  CHECK(bad.code == 3);
  CHECK(has(bad.err, "0xE6"));
}

TEST_CASE("a prompt of megabytes is refused by its length, in one short line") {
  const TempFolder folder;
  Bigram model(64);
  const std::string path = folder.write("big.txt", std::string(4'000'000, 'a'));
  const Outcome o = run(args_for(model.save(), {"-f", path, "--n", "64"}));
  CHECK(o.code == 3);
  CHECK(has(o.err, "4000001"));
  CHECK(o.out.size() < 1000);
}

TEST_CASE("--stop, --ignore-eos, --max-tokens 0") {
  Bigram model(64);
  model.chain("abc[d]e");
  const std::string path = model.save();
  const auto first = [&](const std::vector<std::string>& more) { return first_line(run(args_for(path, more)).out); };
  CHECK(first({"-p", "a"})["completion"] == "bc[d]e");
  json line = first({"-p", "a", "--stop", "zz", "--stop", "[d]"});
  CHECK(line["completion"] == "bc");
  CHECK(line["finish_reason"] == "stop");
  CHECK(first({"-p", "a", "--ignore-eos", "--max-tokens", "20"})["token_ids"].size() == 20);
  line = first({"-p", "a", "--max-tokens", "0"});
  CHECK(line["token_ids"].empty());
  CHECK(line["finish_reason"] == "length");
}

TEST_CASE("--chat and --parse-special") {
  Bigram model(256);
  model.chain("\nyes");
  const std::string path = model.save();
  const auto first = [&](const std::vector<std::string>& more) { return first_line(run(args_for(path, more)).out); };
  const auto count = [](const json& ids, int id) { return std::ranges::count(ids.get<std::vector<int>>(), id); };
  json line = first({"-p", "hi", "--chat"});
  CHECK(line["completion"] == "yes");
  CHECK(count(line["prompt_token_ids"], BigramModel::kEos) == 1);
  CHECK(count(line["prompt_token_ids"], BigramModel::kBos) == 2);  // one of each turn
  const std::string spelled = "a<|im_end|>b";
  CHECK(count(first({"-p", spelled})["prompt_token_ids"], BigramModel::kEos) == 0);
  CHECK(first({"-p", spelled, "--parse-special"})["prompt_token_ids"] ==
        json{BigramModel::kBos, 'a', BigramModel::kEos, 'b'});
  const Outcome none = run(args_for(kTiny, {"-p", "the", "--chat"}));
  CHECK(none.code == 3);
  CHECK(has(none.err, "chat template"));
}

TEST_CASE("conversations: \"messages\" of a line, in the model's template or a named one") {
  Bigram model(256);
  model.chain("\nyes");
  const std::string path = model.save();
  const TempFolder folder;
  const std::string turns = R"([{"role":"system","content":"s"},{"role":"user","content":"a"},)"
                            R"({"role":"assistant","content":"b"},{"role":"user","content":"hi"}])";
  const std::string file = folder.write(
      "chat.jsonl",
      "{\"messages\":" + turns + ",\"id\":\"many\"}\n" + R"({"messages":[{"role":"user","content":"hi"}]})" +
          "\n{\"prompt\":\"hi\"}\n" + R"({"messages":[{"role":"tool","content":"x"}]})" +
          "\n{\"messages\":[]}\n{\"messages\":[{\"role\":\"user\"}]}\n{\"messages\":[],\"prompt\":\"x\"}\n");
  const Outcome o = run(args_for(path, {"-f", file}));
  CHECK(o.code == 4);
  std::map<std::string, json> by_id;
  for (const json& line : lines_of(o.out)) by_id[line["id"].dump()] = line;
  REQUIRE(by_id.size() == 7);
  const auto ids = [](const std::string& text) {
    json all = json::array();
    for (const char c : text) all.push_back(c == '<' ? BigramModel::kBos : c == '>' ? BigramModel::kEos : c);
    return all;
  };
  // Its BOS is the mark that opens a turn.
  CHECK(by_id["\"many\""]["prompt_token_ids"] ==
        ids("<system\ns>\n<user\na>\n<assistant\nb>\n<user\nhi>\n<assistant\n"));
  CHECK(by_id["\"many\""]["completion"] == "yes");
  CHECK(by_id["1"]["prompt_token_ids"] == ids("<user\nhi>\n<assistant\n"));
  CHECK(by_id["2"]["prompt_token_ids"] == ids("<hi"));
  for (const char* bad : {"3", "4", "5", "6"}) CHECK(by_id[bad]["finish_reason"] == "error");
  CHECK(has(by_id["3"]["error"], "role \"tool\""));
  CHECK(has(by_id["4"]["error"], "chat.jsonl:5: "));
  CHECK(has(by_id["5"]["error"], "message 0 has no text under \"content\""));
  CHECK(has(by_id["6"]["error"], "both"));

  // Zephyr's marks are plain text for this vocabulary, and BOS is the tokenizer's.
  const json zephyr =
      first_line(run(args_for(path, {"-p", "hi", "--chat-template", "zephyr", "--max-tokens", "1"})).out);
  const std::vector<int> zephyr_ids = zephyr["prompt_token_ids"];
  std::string spelled;
  for (const int id : zephyr_ids)
    spelled += id == BigramModel::kBos   ? "[bos]"
               : id == BigramModel::kEos ? "[eos]"
                                         : std::string(1, static_cast<char>(id));
  CHECK(spelled == "[bos]<|user|>\nhi[eos]\n<|assistant|>\n");
  const Outcome unknown = run(args_for("no such model", {"-p", "hi", "--chat-template", "vicuna"}));
  CHECK(unknown.code == 2);
  CHECK(has(unknown.err, "--chat-template: vicuna"));
  CHECK(has(unknown.err, "chatml"));
}

TEST_CASE("--eos-id ends a text, too; an answer ends where its template says") {
  Bigram model(256);
  model.chain("abcde");
  const std::string path = model.save();
  const json line = first_line(run(args_for(path, {"-p", "a", "--eos-id", "100", "--eos-id", "7"})).out);
  CHECK(line["completion"] == "bc");
  CHECK(line["finish_reason"] == "eos");
  CHECK(line["token_ids"] == json{'b', 'c', 'd'});
  CHECK(first_line(
            run(args_for(path, {"-p", "a", "--eos-id", "100", "--ignore-eos", "--max-tokens", "4"})).out)["token_ids"]
            .size() == 4);
  CHECK(run(args_for(path, {"-p", "a", "--eos-id", "258"})).code == 2);
  CHECK(run(args_for(path, {"-p", "a", "--eos-id", "-3"})).code == 2);
}

TEST_CASE("two thousand prompts of one prefix: one forest, every prompt answered once, broken lines reported") {
  Bigram model(64);
  model.chain("q\n");
  const std::string path = model.save();
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 2000; ++i) {
    const std::string text = "the shared prefix of all " + std::to_string(i % 1900) + " q";
    lines += i % 500 == 77 ? "{\"prompt\": \"" + text + "\n" : json{{"prompt", text}, {"id", i}}.dump() + "\n";
  }
  const Outcome o = run(args_for(
      path, {"-f", folder.write("many.jsonl", lines), "--out", folder.path("out.jsonl"), "--max-batch", "64"}));
  CHECK(o.code == 4);
  CHECK(has(o.err, "many.jsonl:78:"));
  CHECK(has(o.err, "1996 prompts of "));
  std::set<int> done;
  int n_errors = 0;
  for (const json& line : lines_of(folder.read("out.jsonl"))) {
    if (line["finish_reason"] == "error") {
      ++n_errors;
      continue;
    }
    CHECK(line["completion"] == "\n");
    CHECK(done.insert(line["id"].get<int>()).second);
    CHECK(line["prompt_token_ids"].size() ==
          std::string("<the shared prefix of all  q").size() + std::to_string(line["id"].get<int>() % 1900).size());
  }
  CHECK(n_errors == 4);
  CHECK(done.size() == 1996);
}

TEST_CASE("the seed is said where it was drawn, once the run begins") {
  const auto said = [](const std::vector<std::string>& more) {
    std::vector<std::string> args{"--max-tokens", "1"};
    args.insert(args.end(), more.begin(), more.end());
    return has(run(args_for(kTiny, args)).err, "seed ");
  };
  CHECK(said({"-p", "the"}));
  CHECK_FALSE(said({"-p", "the", "--seed", "3"}));
  CHECK_FALSE(said({"-p", "日"}));
  CHECK_FALSE(said({"-p", "the", "--kv-budget", "1"}));
  CHECK_FALSE(said({"-f", "no such file"}));
  CHECK_FALSE(has(run(args_for("no such model", {"-p", "the"})).err, "seed "));
}

TEST_CASE("--tree writes each kind of picture") {
  const TempFolder folder;
  const auto drawn = [&](const std::string& name) {
    const Outcome o = run(args_for(kTiny, {"-p", "the", "--n", "3", "--max-tokens", "4", "--seed", "1", "--ignore-eos",
                                           "--tree", folder.path(name)}));
    CHECK(o.code == 0);
    return folder.read(name);
  };
  CHECK(json::parse(drawn("t.json"))["nodes"].size() == 4);
  CHECK(drawn("t.dot").starts_with("digraph"));
  CHECK(has(drawn("t.html"), "<html"));
}

TEST_CASE("one row, one sample at a time, a pool of few tokens, many threads: the same samples") {
  const auto tokens = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args{"-p", "the any and", "--n", "6", "--max-tokens", "6", "--seed", "3"};
    args.insert(args.end(), more.begin(), more.end());
    std::map<int, json> by_sample;
    for (const json& line : lines_of(run(args_for(kTiny, args)).out)) {
      by_sample[line["sample_id"].get<int>()] = line["token_ids"];
    }
    return by_sample;
  };
  const auto usual = tokens({"--deterministic"});
  REQUIRE(usual.size() == 6);
  CHECK(tokens({"--deterministic", "--max-rows", "1"}) == usual);
  CHECK(tokens({"--deterministic", "--max-batch", "1"}) == usual);
  CHECK(tokens({"--deterministic", "--kv-budget", "8KiB"}) == usual);  // 32 tokens
  CHECK(tokens({"--deterministic", "--threads", "64"}) == usual);
  const Outcome small = run(args_for(kTiny, {"-p", "the any and", "--max-tokens", "6", "--kv-budget", "512"}));
  CHECK(small.code == 3);  // two tokens of room
  CHECK(first_line(small.out)["finish_reason"] == "error");
}

TEST_CASE(
    "several devices give the lines of one, in one file or on stdout; a pool too small for a prompt is its error") {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 9; ++i)
    lines += json{{"prompt", i % 3 == 0 ? "the any" : "the any and"}, {"id", i}}.dump() + "\n";
  const std::string file = folder.write("p.jsonl", lines);
  const auto sorted = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args{"-f", file, "--n", "5", "--max-tokens", "6", "--seed", "3", "--deterministic"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome o = run(args_for(kTiny, args));
    CHECK(o.code == 0);
    std::multiset<std::string> found;
    for (const json& line : lines_of(o.out.empty() ? folder.read("out.jsonl") : o.out)) found.insert(line.dump());
    return found;
  };
  const auto one = sorted({});
  CHECK(one.size() == 45);
  CHECK(sorted({"--devices", "cpu"}) == one);
  CHECK(sorted({"--devices", "cpu,cpu", "--max-batch", "3"}) == one);
  CHECK(sorted({"--devices", "cpu,cpu,cpu,cpu", "-t", "1", "--out", folder.path("out.jsonl")}) == one);
  const Outcome small =
      run(args_for(kTiny, {"-p", "the any and", "--max-tokens", "6", "--kv-budget", "512", "--devices", "cpu,cpu"}));
  CHECK(small.code == 3);
  CHECK(lines_of(small.out).size() == 1);
}

TEST_CASE("SIGINT: exit 130, whole lines") {
  Bigram model(4096);
  const std::string path = model.save();
  const TempFolder folder;
  const std::string out = folder.path("out.jsonl");
  Process p(Start{
      .args = args_for(path, {"-p", "a", "--n", "100000", "--max-tokens", "8", "--max-batch", "8", "--out", out})});
  for (int i = 0; i < 1000 && folder.read("out.jsonl").empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  p.kill(SIGINT);
  CHECK(p.wait().code == 130);
  CHECK(lines_of(folder.read("out.jsonl")).size() > 0);
}
