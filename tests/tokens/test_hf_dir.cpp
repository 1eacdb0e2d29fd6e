#include <algorithm>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <unistd.h>
#include <unordered_map>
#include <vector>

#include "banyan/tokenizer.hpp"
#include "tokens/gguf_vocab.hpp"
#include "tokens/sentencepiece_writer.hpp"

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
  refused("[]", "neither a byte-level nor a sentencepiece-like BPE");
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
  broken("/added_tokens/0/single_word", true, "single_word");
  // A short file must not make a large vocabulary.
  broken("/model/vocab/a", 4'000'000, "ids go from 0 to");
  root.erase("added_tokens");
  dir.write("tokenizer.json", root.dump());
  dir.write("tokenizer_config.json", R"({"eos_token": "<gone>"})");
  CHECK_THROWS_WITH_AS(read_tokenizer_dir(dir.path()), doctest::Contains("eos_token \"<gone>\""), Error);
}

TEST_CASE("tokenizer.json made from the shared vocabularies gives the published ids") {
  const std::string tail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const std::string head = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)";
  const std::map<std::string, json> pre_tokenizers = {
      {"gpt-2", kByteLevel},
      {"llama-bpe", sequence({split(head + R"(\p{N}{1,3})" + tail), kNoRegex})},
      {"qwen2", sequence({split(head + R"(\p{N})" + tail), kNoRegex})},
      {"deepseek-coder", sequence({split("[\r\n]"), split("\\s?\\p{L}+"), split("\\s?\\p{P}+"),
                                   split("[一-龥ࠀ-一가-퟿]+"), kDigits, kNoRegex})}};
  for (const auto& [name, pre] : pre_tokenizers) {
    CAPTURE(name);
    const auto path = shared_vocab_path(name);
    if (!path) {
      MESSAGE("skipped: no shared vocabulary");
      continue;
    }
    json root = tokenizer_json(read_gguf_vocab(*path), pre, true);
    if (name == "qwen2") root["normalizer"] = {{"type", "NFC"}};
    root["model"]["ignore_merges"] = name == "llama-bpe";
    const TempDir dir;
    dir.write("tokenizer.json", root.dump());
    const auto tokenizer = make_tokenizer(read_tokenizer_dir(dir.path()));
    CHECK(tokenizer->spec().pre == name);
    const auto inputs = read_inputs(*path);
    const auto outputs = read_outputs(*path);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      CAPTURE(inputs[i]);
      CHECK(tokenizer->encode(inputs[i], {.add_bos = false}) == outputs[i]);
    }
  }
}

// ---- sentencepiece-like files --------------------------------------------------------------------------------------

namespace {

// The list of merges that a vocabulary of scores stands for, as converters write it: each piece cut in two pieces, best
// score first, of one piece the longer left half first.
std::vector<std::string> merges_of_scores(const TokenizerSpec& spec) {
  std::unordered_map<std::string_view, std::size_t> ids;
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    if (spec.kinds[i] == TokenKind::normal) ids.emplace(spec.pieces[i], i);
  }
  std::vector<std::tuple<float, std::size_t, std::string>> found;
  for (const auto& [piece, id] : ids) {
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      if (!ids.contains(piece.substr(0, cut)) || !ids.contains(piece.substr(cut))) continue;
      found.emplace_back(-spec.scores[id], piece.size() - cut,
                         std::string(piece.substr(0, cut)) + ' ' + std::string(piece.substr(cut)));
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> merges;
  for (auto& [score, length, merge] : found) merges.push_back(std::move(merge));
  return merges;
}

const json kPrepend = {{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}};
const json kReplace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\xE2\x96\x81"}};

json metaspace(const std::string& scheme, bool split = false) {
  return {{"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"prepend_scheme", scheme}, {"split", split}};
}

// tokenizer.json of a sentencepiece vocabulary: byte tokens are plain entries of the vocabulary there.
json sentencepiece_json(TokenizerSpec spec) {
  for (auto& kind : spec.kinds) kind = kind == TokenKind::byte ? TokenKind::normal : kind;
  for (auto& kind : spec.kinds) kind = kind == TokenKind::unknown ? TokenKind::control : kind;
  json root = tokenizer_json(spec, nullptr, true);
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", {kPrepend, kReplace}}};
  root["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
  root["model"]["byte_fallback"] = true;
  root["model"]["fuse_unk"] = true;
  root["model"]["unk_token"] = "<unk>";
  return root;
}

}  // namespace

TEST_CASE("tokenizer.json, sentencepiece-like: the LLaMA vocabulary by its list of merges gives the published ids") {
  const auto path = shared_vocab_path("llama-spm");
  if (!path) {
    MESSAGE("skipped: no shared vocabulary");
    return;
  }
  TokenizerSpec from_gguf = read_gguf_vocab(*path);
  from_gguf.merges = merges_of_scores(from_gguf);
  const TempDir dir;
  dir.write("tokenizer.json", sentencepiece_json(from_gguf).dump());
  const auto tokenizer = make_tokenizer(read_tokenizer_dir(dir.path()));
  CHECK(tokenizer->spec().unk == 0);
  const auto inputs = read_inputs(*path);
  const auto outputs = read_outputs(*path);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CAPTURE(inputs[i]);
    const Ids ids = tokenizer->encode(inputs[i], {.add_bos = false});
    CHECK(ids == outputs[i]);
    CHECK(tokenizer->decode(ids) == inputs[i]);
  }
}

TEST_CASE("tokenizer.json, sentencepiece-like: both ways to write the rules for spaces; others are refused by name") {
  const TempDir dir;
  TokenizerSpec tiny = tiny_spm({"\xE2\x96\x81", "a", "b",
                                 "\xE2\x96\x81"
                                 "a"},
                                true);
  tiny.merges = {"\xE2\x96\x81 a"};
  const auto read = [&](const json& normalizer, const json& pre) {
    json root = sentencepiece_json(tiny);
    root["normalizer"] = normalizer;
    root["pre_tokenizer"] = pre;
    dir.write("tokenizer.json", root.dump());
    return make_tokenizer(read_tokenizer_dir(dir.path()));
  };
  const auto both = [](const json& a, const json& b) { return json{{"type", "Sequence"}, {"normalizers", {a, b}}}; };
  const EncodeOptions special{.parse_special = true};
  const TokenId mark = 259, a = 260, opened = 262;
  auto tokenizer = read(both(kPrepend, kReplace), nullptr);
  CHECK(tokenizer->encode("a<s> a", special) == Ids{opened, 1, mark, opened});
  CHECK(tokenizer->decode(tokenizer->encode("  a\xE4\xBD\xA0")) == "  a\xE4\xBD\xA0");
  CHECK(tokenizer->encode("\xE4\xBD\xA0") == Ids{mark, 3 + 0xE4, 3 + 0xBD, 3 + 0xA0});
  CHECK(read(kReplace, nullptr)->encode("a a") == Ids{a, opened});
  CHECK(read(nullptr, metaspace("always"))->encode(" a<s>a", special) == Ids{opened, 1, opened});
  CHECK(read(nullptr, metaspace("first"))->encode("a<s>a", special) == Ids{opened, 1, a});
  CHECK(read(nullptr, metaspace("never"))->encode("a a") == Ids{a, opened});

  const auto refused = [&](const json& normalizer, const json& pre, const char* name) {
    CHECK_THROWS_WITH_AS(read(normalizer, pre), doctest::Contains(name), Error);
  };
  refused(nullptr, metaspace("always", true), "\"split\":true");
  refused(nullptr, metaspace("sometimes"), "sometimes");
  refused(both(kReplace, {{"type", "NFKC"}}), nullptr, "NFKC");
  refused(both(kPrepend, kReplace), metaspace("always"), "Metaspace");
}

TEST_CASE("tokenizer.json: added tokens that take the white space beside them") {
  const TempDir dir;
  json root = tokenizer_json(tiny(), kByteLevel, false);
  root["added_tokens"][0]["lstrip"] = true;
  root["added_tokens"][1]["rstrip"] = true;
  dir.write("tokenizer.json", root.dump());
  const auto tokenizer = make_tokenizer(read_tokenizer_dir(dir.path()));
  const auto encode = [&](const char* text) { return tokenizer->encode(text, {.parse_special = true}); };
  CHECK(encode("a \n\xE3\x80\x80<s> a") == Ids{'a', 258, ' ', 'a'});
  CHECK(encode("a </s> \t\xC2\x85 a") == Ids{'a', ' ', 259, 'a'});
  CHECK(encode("</s>  <s>") == Ids{259, 258});
  CHECK(encode(" <s>") == Ids{258});
  CHECK(encode("a <end> a") == Ids{'a', ' ', 260, ' ', 'a'});
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
  CHECK(spec.eos == Ids{264, 2});  // templates write the configuration's
  const auto tokenizer = make_tokenizer(spec);
  CHECK(tokenizer->encode("a<|end|>", {.parse_special = true}) == Ids{260, 264});
  CHECK(tokenizer->encode("a<|plain|>") == Ids{260, 266});
}
