// Tokenizer files of a Hugging Face directory, and files of prompts.
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "banyan/read_file.hpp"
#include "banyan/tokenizer.hpp"
#include "cli/prompt_file.hpp"
#include "hostile/hostile.hpp"
#include "tokens/gguf_vocab.hpp"
#include "tokens/sentencepiece_writer.hpp"

using namespace banyan;
using namespace banyan::test;
using nlohmann::json;

namespace {

const std::string kWork = BANYAN_BINARY_DIR "/tests/hostile_tokens";
const std::string kMark = "\xE2\x96\x81";

void write(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// What a user does with a tokenizer. A damaged vocabulary may lack a byte of a text: that is no fault of the file.
void use(const Tokenizer& tokenizer) {
  for (const std::string text : {"", " the any  and\n42 ", "a<s>b<|eos|> c</s>", "\xE4\xBD\xA0\xFF\xCC\x81"}) {
    for (const bool special : {false, true}) {
      try {
        const auto ids = tokenizer.encode(text, {.parse_special = special});
        tokenizer.decode(ids, true, special);
      } catch (const Error& e) {
        REQUIRE(e.code() == ErrorCode::bad_input);
      }
    }
  }
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) tokenizer.token_bytes(id, id % 2 == 0, true);
  try {
    const std::string name = chat_template_name(tokenizer.spec().chat_template);
    render_chat(name, std::vector<ChatTurn>{{"user", "x"}}, chat_tokens(tokenizer.spec()));
  } catch (const Error& e) {
    REQUIRE(e.code() == ErrorCode::unsupported);
  }
}

// One file of a directory whose other files are good.
HostileCase in_directory(const std::string& name, const std::string& directory, std::string bytes) {
  return {.name = name, .directory = directory, .bytes = std::move(bytes), .read = [directory](const std::string&) {
            use(*make_tokenizer(read_tokenizer_dir(directory)));
          }};
}

HostileCase byte_level_json() {
  const std::string good = BANYAN_SOURCE_DIR "/models/tiny/hf/";
  const std::string directory = kWork + "/byte_level";
  write(directory + "/tokenizer_config.json", read_file(good + "tokenizer_config.json"));
  return in_directory("tokenizer.json", directory, read_file(good + "tokenizer.json"));
}

HostileCase config_json() {
  const std::string directory = kWork + "/config";
  write(directory + "/tokenizer.json", read_file(BANYAN_SOURCE_DIR "/models/tiny/hf/tokenizer.json"));
  const json config = {{"bos_token", {{"content", "<|bos|>"}, {"lstrip", false}}},
                       {"eos_token", "<|eos|>"},
                       {"add_bos_token", true},
                       {"chat_template",
                        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
                        "'<|im_end|>' + '\n'}}{% endfor %}{{ '<|im_start|>assistant\n' }}"}};
  HostileCase c = in_directory("tokenizer_config.json", directory, config.dump(1));
  return c;
}

HostileCase generation_config() {
  const std::string directory = kWork + "/generation";
  write(directory + "/tokenizer.json", read_file(BANYAN_SOURCE_DIR "/models/tiny/hf/tokenizer.json"));
  const json config = {{"bos_token_id", 0}, {"eos_token_id", {1, 2, 40}}, {"do_sample", true}, {"temperature", 0.6}};
  return in_directory("generation_config.json", directory, config.dump(1));
}

TokenizerSpec sentencepiece_spec() {
  TokenizerSpec spec = tiny_spm({kMark, "t", "h", "e", "a", "n", "y", "d", kMark + "t", "he", kMark + "the", "\xC3\xA9",
                                 "an", "and", kMark + "and", "<add>"},
                                true);
  spec.kinds.back() = TokenKind::user_defined;
  return spec;
}

HostileCase sentencepiece_json() {
  const TokenizerSpec spec = sentencepiece_spec();
  json vocab = json::object();
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) vocab[spec.pieces[i]] = i;
  const json added = {{{"id", 0}, {"content", "<unk>"}, {"special", true}},
                      {{"id", 1}, {"content", "<s>"}, {"special", true}, {"rstrip", true}},
                      {{"id", 2}, {"content", "</s>"}, {"special", true}, {"lstrip", true}}};
  json merges = json::array();  // braces around two texts would be an object
  for (const std::string merge : {"h e", "\xE2\x96\x81 t", "\xE2\x96\x81t he", "a n", "an d", "\xE2\x96\x81 and"}) {
    merges.push_back(json::array({merge.substr(0, merge.find(' ')), merge.substr(merge.find(' ') + 1)}));
  }
  const json root = {
      {"added_tokens", added},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", kMark}},
          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMark}}}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}}}},
      {"decoder", {{"type", "ByteFallback"}}},
      {"model",
       {{"type", "BPE"}, {"unk_token", "<unk>"}, {"byte_fallback", true}, {"vocab", vocab}, {"merges", merges}}}};
  return in_directory("tokenizer.json", kWork + "/sentencepiece_json", root.dump());
}

HostileCase sentencepiece_model() {
  return in_directory("tokenizer.model", kWork + "/sentencepiece", write_sentencepiece_model(sentencepiece_spec()));
}

// All lines are read, whatever one of them holds; the first error is thrown for the check of errors.
void read_prompts(const std::string& path) {
  std::optional<Error> first;
  std::int64_t n_lines = 0;
  const std::string content = read_file(path);
  cli::holds_prompt_lines(path, content);
  cli::read_prompt_lines(
      path, content,
      [&](std::int64_t index, cli::PromptLine line) {
        REQUIRE(index == n_lines++);
        line.id.dump();
      },
      [&](std::int64_t index, const Error& error) {
        REQUIRE(index == n_lines++);
        if (!first) first = error;
      });
  if (first) throw Error(*first);
}

HostileCase prompts() {
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    lines +=
        json{{"id", i % 3 == 0 ? json{{"a", {1, 2.5}}} : json(i)}, {"prompt", "the \xE4\xBD\xA0 \"any\"\n\t"}}.dump();
    lines += "\n";
    lines += json{{"messages", {{{"role", "system"}, {"content", "s"}}, {{"role", "user"}, {"content", "u"}}}}}.dump();
    lines += i % 2 == 0 ? "\n" : "\r\n\n";
  }
  return {.name = "prompts.jsonl",
          .directory = kWork + "/prompts",
          .bytes = lines,
          .read = read_prompts,
          .cuts_fail = false};
}

}  // namespace

TEST_CASE("hostile tokenizer.json, byte level: cut at every 64th byte") { check_cut(byte_level_json()); }
TEST_CASE("hostile tokenizer.json, byte level: 10,000 mutations") { check_mutations(byte_level_json()); }
TEST_CASE("hostile tokenizer.json, sentencepiece-like: cut at every 64th byte") { check_cut(sentencepiece_json()); }
TEST_CASE("hostile tokenizer.json, sentencepiece-like: 10,000 mutations") { check_mutations(sentencepiece_json()); }
TEST_CASE("hostile tokenizer_config.json: cut at every 64th byte") { check_cut(config_json()); }
TEST_CASE("hostile tokenizer_config.json: 10,000 mutations") { check_mutations(config_json()); }
TEST_CASE("hostile generation_config.json: cut at every 64th byte") { check_cut(generation_config()); }
TEST_CASE("hostile generation_config.json: 10,000 mutations") { check_mutations(generation_config()); }
TEST_CASE("hostile tokenizer.model: cut at every 64th byte") {
  HostileCase c = sentencepiece_model();
  c.cuts_fail = false;  // a file that ends between two pieces is a smaller vocabulary
  check_cut(c);
}
TEST_CASE("hostile tokenizer.model: 10,000 mutations") { check_mutations(sentencepiece_model()); }
TEST_CASE("hostile JSON Lines: cut at every 64th byte") { check_cut(prompts()); }
TEST_CASE("hostile JSON Lines: 10,000 mutations") { check_mutations(prompts()); }

TEST_CASE("a prompt line of a hundred thousand brackets is an error, in every place") {
  const std::string path = kWork + "/prompts/deep.jsonl", open(100'000, '['), shut(100'000, ']');
  for (const std::string line : {open, open + shut, "{\"prompt\":\"x\",\"id\":" + open + shut + "}",
                                 "{\"messages\":" + open + shut + "}", "{\"id\":" + open}) {
    write(path, "{\"prompt\":\"a\"}\n" + line + "\n{\"prompt\":\"b\"}\n");
    CHECK_THROWS_WITH_AS(read_prompts(path), doctest::Contains("deep.jsonl:2: "), Error);
  }
}
