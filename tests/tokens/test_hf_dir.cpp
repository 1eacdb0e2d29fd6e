#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <unistd.h>
#include <vector>

#include "banyan/tokenizer.hpp"
#include "tokens/gguf_vocab.hpp"
#include "tokens/sentencepiece_proto.hpp"

using namespace banyan;
using namespace banyan::test;
using nlohmann::json;

namespace {

using Ids = std::vector<TokenId>;

// A directory of its own, removed at the end.
class TempDir {
 public:
  TempDir() : path_(std::filesystem::temp_directory_path() / ("banyan_test_hf_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  void remove(const std::string& name) const { std::filesystem::remove(path_ / name); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

const json kByteLevel = {
    {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
const json kNoRegex = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
const json kDigits = {{"type", "Digits"}, {"individual_digits", true}};

json split(const std::string& regex) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
}
json sequence(std::vector<json> parts) { return {{"type", "Sequence"}, {"pretokenizers", std::move(parts)}}; }

// tokenizer.json of a spec, as Hugging Face writes it. Merges as strings, or as pairs (the newer way).
json tokenizer_json(const TokenizerSpec& spec, const json& pre, bool merges_as_pairs) {
  json vocab = json::object(), added = json::array(), merges = json::array();
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    if (spec.kinds[i] == TokenKind::normal)
      vocab[spec.pieces[i]] = i;
    else
      added.push_back({{"id", i}, {"content", spec.pieces[i]}, {"special", spec.kinds[i] == TokenKind::control}});
  }
  for (const std::string& merge : spec.merges) {
    const auto space = merge.find(' ');
    if (merges_as_pairs)
      merges.push_back(json::array({merge.substr(0, space), merge.substr(space + 1)}));
    else
      merges.push_back(merge);
  }
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", pre},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"unk_token", nullptr}, {"vocab", vocab}, {"merges", merges}}}};
}

TokenizerSpec tiny() { return tiny_bpe({"a b", "ab ab"}, {"<s>", "</s>", "<end>"}); }

}  // namespace

TEST_CASE("tokenizer.json: pieces, merges in both forms, special ids from all files, the chat template") {
  const TempDir dir;
  for (const bool pairs : {false, true}) {
    dir.write("tokenizer.json", tokenizer_json(tiny(), kByteLevel, pairs).dump());
    const TokenizerSpec spec = read_tokenizer_dir(dir.path());
    CHECK(spec.pre == "gpt-2");
    CHECK(spec.pieces == tiny().pieces);
    CHECK(spec.kinds == tiny().kinds);
    CHECK(spec.merges == tiny().merges);
    CHECK(spec.bos == kNoToken);
    CHECK(spec.eos.empty());
    CHECK_FALSE(spec.add_bos);
    CHECK(make_tokenizer(spec)->encode("abab b") == Ids{257, ' ', 'b'});
  }
  dir.write("special_tokens_map.json",
            R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "unk_token": "<end>"})");
  dir.write("generation_config.json", R"({"eos_token_id": [259, 260]})");
  dir.write("config.json", R"({"eos_token_id": 97, "bos_token_id": 1})");
  dir.write("tokenizer_config.json", R"({"add_bos_token": true, "chat_template": "one"})");
  TokenizerSpec spec = read_tokenizer_dir(dir.path());
  CHECK(spec.bos == 258);
  CHECK(spec.unk == 260);
  CHECK(spec.eos == Ids{259, 260, 97});
  CHECK(spec.add_bos);
  CHECK(spec.chat_template == "one");
  dir.write("tokenizer_config.json",
            R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "two"}]})");
  spec = read_tokenizer_dir(dir.path());
  CHECK(spec.chat_template == "two");
  CHECK_FALSE(spec.add_bos);
  dir.write("chat_template.jinja", "three");
  CHECK(read_tokenizer_dir(dir.path()).chat_template == "three");

  dir.write("generation_config.json", R"({"eos_token_id": 9999})");
  CHECK_THROWS_WITH_AS(read_tokenizer_dir(dir.path()), doctest::Contains("eos_token_id 9999"), Error);
}

TEST_CASE("tokenizer.json: BOS of the post-processor, unless the configuration says otherwise") {
  const TempDir dir;
  json root = tokenizer_json(tiny(), kByteLevel, false);
  const json bos_first = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}}}}}}};
  root["post_processor"] = {{"type", "Sequence"}, {"processors", {kByteLevel, bos_first}}};
  dir.write("tokenizer.json", root.dump());
  TokenizerSpec spec = read_tokenizer_dir(dir.path());
  CHECK(spec.bos == 258);
  CHECK(spec.add_bos);
  dir.write("tokenizer_config.json", R"({"add_bos_token": false, "bos_token": "<s>"})");
  spec = read_tokenizer_dir(dir.path());
  CHECK(spec.bos == 258);
  CHECK_FALSE(spec.add_bos);
}

TEST_CASE("tokenizer.json: pre-tokenizers are recognised by what they do, and refused by what they are") {
  const TempDir dir;
  const auto read = [&](const json& pre, const json& normalizer = nullptr, bool ignore_merges = false) {
    json root = tokenizer_json(tiny(), pre, false);
    root["normalizer"] = normalizer;
    root["model"]["ignore_merges"] = ignore_merges;
    dir.write("tokenizer.json", root.dump());
    return read_tokenizer_dir(dir.path()).pre;
  };
  const std::string tail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string head = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
  CHECK(read(kByteLevel) == "gpt-2");
  CHECK(read(sequence({kDigits, kByteLevel})) == "smollm");
  CHECK(read(sequence({split(head + R"(\p{N}{1,3})" + tail), kNoRegex}), nullptr, true) == "llama-bpe");
  CHECK(read(sequence({split(head + R"(\p{N})" + tail), kNoRegex}), {{"type", "NFC"}}) == "qwen2");
  CHECK(read(sequence({split("[\r\n]"), split("\\s?\\p{L}+"), split("\\s?\\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"),
                       kDigits, kNoRegex}),
             {{"type", "Sequence"}, {"normalizers", json::array()}}) == "deepseek-coder");

  const auto refused = [&](const json& pre, const char* name, const json& normalizer = nullptr,
                           bool ignore_merges = false) {
    CHECK_THROWS_WITH_AS(read(pre, normalizer, ignore_merges), doctest::Contains(name), Error);
  };
  refused({{"type", "Metaspace"}}, "Metaspace");
  refused(nullptr, "pre_tokenizer null");
  refused({{"type", "ByteLevel"}, {"add_prefix_space", true}}, "add_prefix_space");
  refused(sequence({split("x+"), kNoRegex}), "x+");
  refused(sequence({kDigits, kDigits, kByteLevel}), "Digits");
  refused(kByteLevel, "NFKC", {{"type", "NFKC"}});
  refused(kByteLevel, "NFC", {{"type", "NFC"}});
  refused(kByteLevel, "ignore_merges", nullptr, true);
}

TEST_CASE("tokenizer.json: what contradicts itself or is meant to hurt is a typed error") {
  const TempDir dir;
  const auto refused = [&](const std::string& text, const char* message) {
    dir.write("tokenizer.json", text);
    CHECK_THROWS_WITH_AS(read_tokenizer_dir(dir.path()), doctest::Contains(message), Error);
  };
  CHECK_THROWS_WITH_AS(read_tokenizer_dir(dir.path()), doctest::Contains("neither tokenizer.json nor tokenizer.model"),
                       Error);
  refused("", "parse error");
  refused(std::string(1'000'000, '['), "nested deeper");
  refused("[]", "not byte-level BPE");
  refused(R"({"model": {"type": "Unigram"}})", "\"Unigram\"");
  json root = tokenizer_json(tiny(), kByteLevel, false);
  const auto broken = [&](const char* pointer, const json& value, const char* message) {
    json copy = root;
    copy[json::json_pointer(pointer)] = value;
    refused(copy.dump(), message);
  };
  broken("/model/vocab", 3, "vocab is no object");
  broken("/model/vocab/a", -1, "id -1");
  broken("/model/vocab/a", 1LL << 40, "id 1099511627776");
  broken("/model/vocab/a", 1.5, "id 1.5");
  broken("/model/merges", nullptr, "merges is no array");
  broken("/model/merges/0", {"a", "b", "c"}, "merge 0");
  broken("/model/continuing_subword_prefix", "##", "continuing_subword_prefix");
  broken("/model/byte_fallback", true, "byte_fallback");
  broken("/added_tokens/0/rstrip", true, "rstrip");
  root.erase("added_tokens");
  dir.write("tokenizer.json", root.dump());
  dir.write("tokenizer_config.json", R"({"eos_token": "<gone>"})");
  CHECK_THROWS_WITH_AS(read_tokenizer_dir(dir.path()), doctest::Contains("eos_token \"<gone>\""), Error);
}

TEST_CASE("tokenizer.json made from the GPT-2 vocabulary gives the published ids") {
  const auto path = shared_vocab_path("gpt-2");
  if (!path) {
    MESSAGE("skipped: no shared vocabulary");
    return;
  }
  const TempDir dir;
  dir.write("tokenizer.json", tokenizer_json(read_gguf_vocab(*path), kByteLevel, true).dump());
  const auto tokenizer = make_tokenizer(read_tokenizer_dir(dir.path()));
  const auto inputs = read_inputs(*path);
  const auto outputs = read_outputs(*path);
  for (std::size_t i = 0; i < inputs.size(); ++i) CHECK(tokenizer->encode(inputs[i]) == outputs[i]);
}

TEST_CASE("tokenizer.model: added tokens and BOS come from the files beside it") {
  const TempDir dir;
  const std::string mark = "\xE2\x96\x81";
  dir.write("tokenizer.model", write_sentencepiece_model(tiny_spm({mark, "a", "<", "|", ">"}, true)));
  // A tokenizer.json that is not byte level gives way to the model file.
  dir.write("tokenizer.json", R"({"model": {"type": "BPE", "byte_fallback": true}, "decoder": {"type": "Sequence"}})");
  dir.write("tokenizer_config.json", R"({"add_bos_token": false, "eos_token": "<|end|>", "added_tokens_decoder": {
      "0": {"content": "<unk>", "special": true}, "264": {"content": "<|end|>", "special": true},
      "266": {"content": "<|plain|>", "special": false}}})");
  const TokenizerSpec spec = read_tokenizer_dir(dir.path());
  CHECK(spec.model == TokenizerSpec::Model::spm);
  CHECK_FALSE(spec.add_bos);
  CHECK_FALSE(spec.add_space_prefix);
  CHECK(spec.unk == 0);
  CHECK(spec.kinds[0] == TokenKind::unknown);
  CHECK(spec.kinds[265] == TokenKind::unused);
  CHECK(spec.eos == Ids{2, 264});
  const auto tokenizer = make_tokenizer(spec);
  CHECK(tokenizer->encode("a<|end|>", {.parse_special = true}) == Ids{260, 264});
  CHECK(tokenizer->encode("a<|plain|>") == Ids{260, 266});
}
