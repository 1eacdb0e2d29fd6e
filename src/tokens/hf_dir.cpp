#include "tokens/hf_dir.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <unordered_map>

#include "banyan/read_file.hpp"
#include "banyan/tokenizer.hpp"
#include "base/json.hpp"
#include "tokens/pre_tokenizer.hpp"
#include "tokens/spm_tokenizer.hpp"

namespace banyan {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::int64_t kMaxVocabSize = 1 << 22;  // 4 M pieces; the largest published vocabularies have 0.26 M

[[noreturn]] void bad(const std::string& where, const std::string& message) {
  throw Error(ErrorCode::bad_file, where, message);
}
[[noreturn]] void unsupported(const std::string& where, const std::string& message) {
  throw Error(ErrorCode::unsupported, where, message);
}

// A member, or null where it is absent or `object` is no object.
const json& member(const json& object, const std::string& key) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

std::string string_or(const json& value, std::string fallback = {}) {
  return value.is_string() ? value.get<std::string>() : std::move(fallback);
}
bool bool_or(const json& value, bool fallback) { return value.is_boolean() ? value.get<bool>() : fallback; }

std::string type_of(const json& part) { return string_or(member(part, "type")); }

// A file of the directory; null where there is none.
json read_optional(const fs::path& path) {
  if (!fs::exists(path)) return nullptr;
  return parse_json(read_file(path.string()), path.string());
}

void put_piece(TokenizerSpec& spec, const json& id, std::string piece, TokenKind kind) {
  if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= kMaxVocabSize) {
    bad(spec.where,
        fmt::format("token \"{}\" has the id {}; ids go from 0 to {}", piece, id.dump(), kMaxVocabSize - 1));
  }
  const auto i = id.get<std::size_t>();
  if (i >= spec.pieces.size()) {
    // Ids that the file leaves out stay unused pieces without a text.
    spec.pieces.resize(i + 1);
    spec.kinds.resize(i + 1, TokenKind::unused);
    if (spec.model == TokenizerSpec::Model::spm) spec.scores.resize(i + 1, 0.0F);
  }
  spec.pieces[i] = std::move(piece);
  spec.kinds[i] = kind;
}

void put_added(TokenizerSpec& spec, const json& id, const json& token) {
  const std::string content = string_or(member(token, "content"));
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    if (bool_or(member(token, flag), false)) {
      unsupported(spec.where, fmt::format("added token \"{}\" with {} is not supported", content, flag));
    }
  }
  put_piece(spec, id, content, bool_or(member(token, "special"), false) ? TokenKind::control : TokenKind::user_defined);
}

// ---- tokenizer.json ------------------------------------------------------------------------------------------------

std::string regex_of_split(const json& part, const std::string& where) {
  const std::string regex = string_or(member(member(part, "pattern"), "Regex"));
  if (regex.empty() || string_or(member(part, "behavior")) != "Isolated" || bool_or(member(part, "invert"), false)) {
    unsupported(where, "pre_tokenizer " + part.dump());
  }
  return regex;
}

// The patterns of a pre_tokenizer, stage by stage, to be compared with those that are known. A byte level with its own
// pattern is GPT-2's.
std::vector<std::string> patterns_of(const json& pre, const std::string& where) {
  std::vector<json> parts;
  if (type_of(pre) == "Sequence" && member(pre, "pretokenizers").is_array()) {
    for (const json& part : pre["pretokenizers"]) parts.push_back(part);
  } else {
    parts.push_back(pre);
  }
  if (type_of(parts.empty() ? json() : parts.back()) != "ByteLevel") unsupported(where, "pre_tokenizer " + pre.dump());

  std::vector<std::string> patterns;
  for (const json& part : parts) {
    const std::string type = type_of(part);
    if (type == "ByteLevel") {
      if (bool_or(member(part, "add_prefix_space"), true)) unsupported(where, "ByteLevel with add_prefix_space");
      if (bool_or(member(part, "use_regex"), true))
        patterns.emplace_back(pre_tokenizer_rule("gpt-2", where).patterns[0]);
    } else if (type == "Digits" && bool_or(member(part, "individual_digits"), false)) {
      patterns.emplace_back(pre_tokenizer_rule("smollm", where).patterns[0]);
    } else if (type == "Split") {
      patterns.push_back(regex_of_split(part, where));
    } else {
      unsupported(where, "pre_tokenizer " + part.dump());
    }
  }
  return patterns;
}

std::string pre_tokenizer_name(const json& root, const std::string& where) {
  const std::vector<std::string> patterns = patterns_of(member(root, "pre_tokenizer"), where);
  const json& normalizer = member(root, "normalizer");
  const bool nfc = type_of(normalizer) == "NFC";
  const bool empty =
      normalizer.is_null() || (type_of(normalizer) == "Sequence" && member(normalizer, "normalizers").empty());
  if (!nfc && !empty) unsupported(where, "normalizer " + normalizer.dump());

  for (const PreTokenizerRule& rule : pre_tokenizer_rules()) {
    if (rule.nfc == nfc && std::equal(patterns.begin(), patterns.end(), rule.patterns.begin(), rule.patterns.end())) {
      return std::string(rule.names.front());
    }
  }
  unsupported(where, fmt::format("pre_tokenizer {} with normalizer {}", member(root, "pre_tokenizer").dump(),
                                 normalizer.dump()));
}

void read_merges(TokenizerSpec& spec, const json& merges) {
  if (!merges.is_array()) bad(spec.where, "model.merges is no array");
  spec.merges.reserve(merges.size());
  for (const json& merge : merges) {
    if (merge.is_string()) {
      spec.merges.push_back(merge.get<std::string>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      spec.merges.push_back(merge[0].get<std::string>() + ' ' + merge[1].get<std::string>());
    } else {
      bad(spec.where, fmt::format("merge {} is neither \"left right\" nor [left, right]", spec.merges.size()));
    }
  }
}

// BOS that the post-processor puts in front of a single text, or nothing.
std::string bos_of_post_processor(const json& post) {
  if (type_of(post) == "Sequence" && member(post, "processors").is_array()) {
    for (const json& part : post["processors"]) {
      if (std::string bos = bos_of_post_processor(part); !bos.empty()) return bos;
    }
    return {};
  }
  const json& single = member(post, "single");
  if (type_of(post) != "TemplateProcessing" || !single.is_array() || single.empty()) return {};
  return string_or(member(member(single[0], "SpecialToken"), "id"));
}

bool is_byte_level_bpe(const json& root) {
  const json& model = member(root, "model");
  // Old files leave the model's type out; only BPE has merges.
  const bool bpe = type_of(model) == "BPE" || (type_of(model).empty() && model.is_object() && model.contains("merges"));
  return bpe && member(root, "decoder").dump().find("\"ByteLevel\"") != std::string::npos;
}

TokenizerSpec read_tokenizer_json(const json& root, const std::string& where) {
  TokenizerSpec spec;
  spec.where = where;
  spec.pre = pre_tokenizer_name(root, where);
  const json& model = member(root, "model");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!string_or(member(model, key)).empty()) unsupported(where, fmt::format("model.{} {}", key, model[key].dump()));
  }
  if (member(model, "dropout").is_number() && model["dropout"] != 0) unsupported(where, "model.dropout");
  if (bool_or(member(model, "byte_fallback"), false)) unsupported(where, "model.byte_fallback in a byte-level BPE");
  const bool whole_words = bool_or(member(model, "ignore_merges"), false);
  if (whole_words != pre_tokenizer_rule(spec.pre, where).whole_words) {
    unsupported(where, fmt::format("model.ignore_merges = {} with the pre-tokenizer {}", whole_words, spec.pre));
  }
  const json& vocab = member(model, "vocab");
  if (!vocab.is_object()) bad(where, "model.vocab is no object");
  for (const auto& [piece, id] : vocab.items()) put_piece(spec, id, piece, TokenKind::normal);
  read_merges(spec, member(model, "merges"));
  return spec;
}

// ---- the files beside it -------------------------------------------------------------------------------------------

TokenId find_piece(const TokenizerSpec& spec, const std::string& piece) {
  const auto it = std::find(spec.pieces.begin(), spec.pieces.end(), piece);
  return it == spec.pieces.end() ? kNoToken : static_cast<TokenId>(it - spec.pieces.begin());
}

// The token that a configuration names under `key`, as a string or as an added token's object.
std::optional<TokenId> named_token(const TokenizerSpec& spec, const json& config, const std::string& key) {
  const json& value = member(config, key);
  const std::string text = string_or(value, string_or(member(value, "content")));
  if (text.empty()) return std::nullopt;
  const TokenId id = find_piece(spec, text);
  if (id == kNoToken) bad(spec.where, fmt::format("{} \"{}\" is not in the vocabulary", key, text));
  return id;
}

void add_eos(TokenizerSpec& spec, TokenId id) {
  if (std::find(spec.eos.begin(), spec.eos.end(), id) == spec.eos.end()) spec.eos.push_back(id);
}

void add_eos_ids(TokenizerSpec& spec, const std::string& config_path) {
  for (const TokenId id : read_eos_ids(config_path)) {
    if (static_cast<std::size_t>(id) >= spec.pieces.size()) {
      bad(config_path, fmt::format("eos_token_id {} is no token of the {} in the vocabulary", id, spec.pieces.size()));
    }
    add_eos(spec, id);
  }
}

void read_added_tokens(TokenizerSpec& spec, const json& tokenizer_json, const json& config, const json& added_tokens) {
  if (member(tokenizer_json, "added_tokens").is_array()) {
    for (const json& token : tokenizer_json["added_tokens"]) put_added(spec, member(token, "id"), token);
    return;
  }
  const auto number = [&](const std::string& id) {
    const bool digits = !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!digits) bad(spec.where, fmt::format("added token id \"{}\" is no number", id));
    return json(std::stoll(id));
  };
  // An id that tokenizer.model has already keeps its kind: <unk> is listed here too.
  const std::size_t n_own = spec.pieces.size();
  if (const json& decoder = member(config, "added_tokens_decoder"); decoder.is_object()) {
    for (const auto& [id, token] : decoder.items()) {
      if (number(id) >= n_own) put_added(spec, number(id), token);
    }
  } else if (added_tokens.is_object()) {
    for (const auto& [content, id] : added_tokens.items()) {
      if (id.is_number_integer() && id >= n_own) put_piece(spec, id, content, TokenKind::control);
    }
  }
}

std::string read_chat_template(const fs::path& dir, const json& config) {
  // A file of its own is the newer way and goes before the entry.
  if (const fs::path path = dir / "chat_template.jinja"; fs::exists(path)) return read_file(path.string());
  const json& value = member(config, "chat_template");
  if (!value.is_array()) return string_or(value);
  for (const json& entry : value) {
    if (string_or(member(entry, "name")) == "default") return string_or(member(entry, "template"));
  }
  return {};
}

}  // namespace

std::vector<TokenId> read_eos_ids(const std::string& path) {
  if (!fs::exists(path)) return {};
  const json config = read_json_object(path);
  const json& value = member(config, "eos_token_id");
  const json list = value.is_array() ? value : value.is_null() ? json::array() : json::array({value});
  std::vector<TokenId> ids;
  for (const json& id : list) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<TokenId>::max()}) {
      bad(path + ": key 'eos_token_id'", fmt::format("{} is no token id", id.dump()));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

TokenizerSpec read_tokenizer_dir(const std::string& dir_name) {
  const fs::path dir(dir_name);
  const fs::path json_path = dir / "tokenizer.json", model_path = dir / "tokenizer.model";
  const json root = read_optional(json_path);
  const json config = read_optional(dir / "tokenizer_config.json");
  const json special = read_optional(dir / "special_tokens_map.json");

  TokenizerSpec spec;
  if (is_byte_level_bpe(root)) {
    spec = read_tokenizer_json(root, json_path.string());
  } else if (fs::exists(model_path)) {
    spec = read_sentencepiece_file(model_path.string());
  } else if (!root.is_null()) {
    unsupported(json_path.string(),
                fmt::format("model \"{}\" that is not byte-level BPE, without a tokenizer.model beside it",
                            type_of(member(root, "model"))));
  } else {
    bad(dir_name, "holds neither tokenizer.json nor tokenizer.model");
  }
  const bool sentencepiece = spec.model == TokenizerSpec::Model::spm;
  read_added_tokens(spec, sentencepiece ? json() : root, config, read_optional(dir / "added_tokens.json"));

  for (const json* file : {&special, &config}) {  // the later one has the last word
    if (const auto id = named_token(spec, *file, "bos_token")) spec.bos = *id;
    if (const auto id = named_token(spec, *file, "unk_token")) spec.unk = *id;
    if (const auto id = named_token(spec, *file, "eos_token")) add_eos(spec, *id);
  }
  if (!sentencepiece) {
    const std::string in_front = bos_of_post_processor(member(root, "post_processor"));
    if (spec.bos == kNoToken && !in_front.empty()) spec.bos = find_piece(spec, in_front);
    spec.add_bos = !in_front.empty() && find_piece(spec, in_front) == spec.bos;
  }
  spec.add_bos = bool_or(member(config, "add_bos_token"), spec.add_bos) && spec.bos != kNoToken;
  for (const char* name : kConfigsWithEos) add_eos_ids(spec, (dir / name).string());
  spec.chat_template = read_chat_template(dir, config);
  return spec;
}

}  // namespace banyan
