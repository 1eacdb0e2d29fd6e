#include "tokens/hf_dir.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <optional>

#include "banyan/read_file.hpp"
#include "banyan/tokenizer.hpp"
#include "tokens/spec_json.hpp"
#include "tokens/spm_tokenizer.hpp"
#include "tokens/tokenizer_json.hpp"

namespace banyan {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

[[noreturn]] void bad(const std::string& where, const std::string& message) {
  throw Error(ErrorCode::bad_file, where, message);
}

// A file of the directory; null where there is none.
json read_optional(const fs::path& path) {
  if (!fs::exists(path)) return nullptr;
  return parse_json(read_file(path.string()), path.string());
}

// Where two files contradict each other, either may be the wrong one.
std::string both(const std::string& path, const TokenizerSpec& spec) { return path + " and " + spec.where; }

// The token that a file names under `key`, as a string or as an added token's object.
std::optional<TokenId> named_token(const TokenizerSpec& spec, const json& file, const fs::path& path,
                                   const std::string& key) {
  const json& value = member(file, key);
  const std::string text = string_or(value, string_or(member(value, "content")));
  if (text.empty()) return std::nullopt;
  const TokenId id = find_piece(spec, text);
  if (id == kNoToken) {
    bad(both(path.string(), spec), fmt::format("{} {} is not in the vocabulary", key, shown(value)));
  }
  return id;
}

void add_eos(TokenizerSpec& spec, TokenId id) {
  if (std::find(spec.eos.begin(), spec.eos.end(), id) == spec.eos.end()) spec.eos.push_back(id);
}

void put_eos_first(TokenizerSpec& spec, TokenId id) {
  std::erase(spec.eos, id);
  spec.eos.insert(spec.eos.begin(), id);
}

void add_eos_ids(TokenizerSpec& spec, const std::string& config_path) {
  for (const TokenId id : read_eos_ids(config_path)) {
    if (static_cast<std::size_t>(id) >= spec.pieces.size()) {
      bad(both(config_path, spec),
          fmt::format("eos_token_id {} is no token of the {} in the vocabulary", id, spec.pieces.size()));
    }
    add_eos(spec, id);
  }
}

// Added tokens of a tokenizer.model, which knows nothing of them.
void read_added_tokens(TokenizerSpec& spec, const json& config, const json& added_tokens) {
  const auto number = [&](const std::string& id) {
    const bool digits = !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!digits) bad(spec.where, fmt::format("added token id \"{}\" is no number", id));
    return json(std::stoll(id));
  };
  // An id that tokenizer.model has already keeps its kind: <unk> is listed here too.
  const std::size_t n_own = spec.pieces.size();
  const json& decoder = member(config, "added_tokens_decoder");
  const std::int64_t end = end_of_ids(n_own + decoder.size() + added_tokens.size());
  if (decoder.is_object()) {
    for (const auto& [id, token] : decoder.items()) {
      if (number(id) >= n_own) put_added(spec, number(id), end, token);
    }
  } else if (added_tokens.is_object()) {
    for (const auto& [content, id] : added_tokens.items()) {
      if (id.is_number_integer() && id >= n_own) put_piece(spec, id, end, content, TokenKind::control);
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
      bad(path + ": key 'eos_token_id'", fmt::format("{} is no token id", shown(id)));
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

  // A sentencepiece model is its publisher's own file; the tokenizer.json beside it was made from it.
  const JsonTokenizer kind = kind_of_tokenizer_json(root);
  TokenizerSpec spec;
  if (kind == JsonTokenizer::byte_level_bpe || (kind == JsonTokenizer::sentencepiece_bpe && !fs::exists(model_path))) {
    spec = read_tokenizer_json(root, json_path.string());
  } else if (fs::exists(model_path)) {
    spec = read_sentencepiece_file(model_path.string());
    read_added_tokens(spec, config, read_optional(dir / "added_tokens.json"));
  } else if (!root.is_null()) {
    throw Error(ErrorCode::unsupported, json_path.string(),
                fmt::format("model \"{}\" that is neither a byte-level nor a sentencepiece-like BPE, without a "
                            "tokenizer.model beside it",
                            type_of(member(root, "model"))));
  } else {
    bad(dir_name, "holds neither tokenizer.json nor tokenizer.model");
  }

  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {  // the later one has the last word
    const json& file = name == std::string_view("tokenizer_config.json") ? config : special;
    if (const auto id = named_token(spec, file, dir / name, "bos_token")) spec.bos = *id;
    if (const auto id = named_token(spec, file, dir / name, "unk_token")) spec.unk = *id;
    if (const auto id = named_token(spec, file, dir / name, "eos_token")) put_eos_first(spec, *id);
  }
  spec.add_bos = bool_or(member(config, "add_bos_token"), spec.add_bos) && spec.bos != kNoToken;
  for (const char* name : kConfigsWithEos) add_eos_ids(spec, (dir / name).string());
  spec.chat_template = read_chat_template(dir, config);
  return spec;
}

}  // namespace banyan
