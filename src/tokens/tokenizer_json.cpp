#include "tokens/tokenizer_json.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include "tokens/pre_tokenizer.hpp"
#include "tokens/space_mark.hpp"
#include "tokens/spec_json.hpp"

namespace banyan {

namespace {

using nlohmann::json;

[[noreturn]] void bad(const std::string& where, const std::string& message) {
  throw Error(ErrorCode::bad_file, where, message);
}
[[noreturn]] void unsupported(const std::string& where, const std::string& message) {
  throw Error(ErrorCode::unsupported, where, message + " is not supported");
}

// The parts of a "Sequence", which has them under `key`; any other part alone; nothing for null.
std::vector<json> parts_of(const json& part, const std::string& key) {
  if (part.is_null()) return {};
  const json& list = member(part, key);
  if (type_of(part) != "Sequence" || !list.is_array()) return {part};
  return list.get<std::vector<json>>();
}

// ---- byte level ----------------------------------------------------------------------------------------------------

std::string regex_of_split(const json& part, const std::string& where) {
  const std::string regex = string_or(member(member(part, "pattern"), "Regex"));
  if (regex.empty() || string_or(member(part, "behavior")) != "Isolated" || bool_or(member(part, "invert"), false)) {
    unsupported(where, "pre_tokenizer " + shown(part));
  }
  return regex;
}

// The patterns of a pre_tokenizer, stage by stage, to be compared with those that are known. A byte level with its own
// pattern is GPT-2's.
std::vector<std::string> patterns_of(const json& pre, const std::string& where) {
  const std::vector<json> parts = parts_of(pre, "pretokenizers");
  if (type_of(parts.empty() ? json() : parts.back()) != "ByteLevel") unsupported(where, "pre_tokenizer " + shown(pre));

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
      unsupported(where, "pre_tokenizer " + shown(part));
    }
  }
  return patterns;
}

std::string pre_tokenizer_name(const json& root, const std::string& where) {
  const std::vector<std::string> patterns = patterns_of(member(root, "pre_tokenizer"), where);
  const json& normalizer = member(root, "normalizer");
  const std::vector<json> normalizers = parts_of(normalizer, "normalizers");
  const bool nfc = normalizers.size() == 1 && type_of(normalizers[0]) == "NFC";
  if (!nfc && !normalizers.empty()) unsupported(where, "normalizer " + shown(normalizer));

  for (const PreTokenizerRule& rule : pre_tokenizer_rules()) {
    if (rule.nfc == nfc && std::equal(patterns.begin(), patterns.end(), rule.patterns.begin(), rule.patterns.end())) {
      return std::string(rule.names.front());
    }
  }
  unsupported(where, fmt::format("pre_tokenizer {} with normalizer {}", shown(member(root, "pre_tokenizer")),
                                 shown(normalizer)));
}

void read_byte_level(TokenizerSpec& spec, const json& root) {
  spec.pre = pre_tokenizer_name(root, spec.where);
  const json& model = member(root, "model");
  if (bool_or(member(model, "byte_fallback"), false)) {
    unsupported(spec.where, "model.byte_fallback in a byte-level BPE");
  }
  const bool whole_words = bool_or(member(model, "ignore_merges"), false);
  if (whole_words != pre_tokenizer_rule(spec.pre, spec.where).whole_words) {
    unsupported(spec.where, fmt::format("model.ignore_merges = {} with the pre-tokenizer {}", whole_words, spec.pre));
  }
}

// ---- sentencepiece-like --------------------------------------------------------------------------------------------

bool replaces_spaces(const json& part) {
  return type_of(part) == "Replace" && string_or(member(member(part, "pattern"), "String")) == " " &&
         string_or(member(part, "content")) == kSpaceMark;
}

// The rules for spaces. Older files write them as normalizers, newer ones as a pre-tokenizer "Metaspace".
void read_space_rules(TokenizerSpec& spec, const json& root) {
  spec.add_space_prefix = false;
  std::vector<json> normalizers = parts_of(member(root, "normalizer"), "normalizers");
  const json& pre = member(root, "pre_tokenizer");
  if (!normalizers.empty() && type_of(normalizers[0]) == "Prepend" &&
      string_or(member(normalizers[0], "prepend")) == kSpaceMark) {
    spec.add_space_prefix = true;
    normalizers.erase(normalizers.begin());
  }
  if (pre.is_null() && normalizers.size() == 1 && replaces_spaces(normalizers[0])) return;
  if (!member(root, "normalizer").is_null()) {
    unsupported(spec.where, fmt::format("normalizer {} with pre_tokenizer {} in a BPE of characters",
                                        shown(member(root, "normalizer")), shown(pre)));
  }
  const std::string scheme = string_or(member(pre, "prepend_scheme"));
  const bool known = scheme == "always" || scheme == "first" || scheme == "never";
  if (type_of(pre) != "Metaspace" || string_or(member(pre, "replacement")) != kSpaceMark || !known ||
      bool_or(member(pre, "split"), true)) {
    unsupported(spec.where, fmt::format("pre_tokenizer {} in a BPE of characters", shown(pre)));
  }
  spec.add_space_prefix = scheme != "never";
  spec.prefix_each_part = scheme == "always";
  spec.prefix_before_space = false;
}

bool is_byte_piece(const std::string& piece) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return piece.size() == 6 && piece.starts_with("<0x") && is_hex(piece[3]) && is_hex(piece[4]) && piece[5] == '>';
}

void read_sentencepiece_like(TokenizerSpec& spec, const json& root) {
  spec.model = TokenizerSpec::Model::spm;
  read_space_rules(spec, root);
  const json& model = member(root, "model");
  if (bool_or(member(model, "ignore_merges"), false)) {
    unsupported(spec.where, "model.ignore_merges in a BPE of characters");
  }
  if (bool_or(member(model, "byte_fallback"), false)) {
    for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
      if (is_byte_piece(spec.pieces[i])) spec.kinds[i] = TokenKind::byte;
    }
  } else if (!bool_or(member(model, "fuse_unk"), false)) {
    unsupported(spec.where, "model.fuse_unk = false without byte_fallback");
  }
}

// ---- both ----------------------------------------------------------------------------------------------------------

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

}  // namespace

JsonTokenizer kind_of_tokenizer_json(const json& root) {
  const json& model = member(root, "model");
  // Old files leave the model's type out; only BPE has merges.
  const bool bpe = type_of(model) == "BPE" || (type_of(model).empty() && model.is_object() && model.contains("merges"));
  if (!bpe) return JsonTokenizer::other;
  const auto names = [](const json& part, const char* type) {
    return part.dump(-1, ' ', false, json::error_handler_t::replace).find(type) != std::string::npos;
  };
  if (names(member(root, "decoder"), "\"ByteLevel\"")) return JsonTokenizer::byte_level_bpe;
  const bool marks =
      names(member(root, "normalizer"), "\"Replace\"") || names(member(root, "pre_tokenizer"), "\"Metaspace\"");
  return marks ? JsonTokenizer::sentencepiece_bpe : JsonTokenizer::other;
}

TokenizerSpec read_tokenizer_json(const json& root, const std::string& where) {
  TokenizerSpec spec;
  spec.where = where;
  const json& model = member(root, "model");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!string_or(member(model, key)).empty()) unsupported(where, fmt::format("model.{} {}", key, shown(model[key])));
  }
  if (member(model, "dropout").is_number() && model["dropout"] != 0) unsupported(where, "model.dropout");
  const json& vocab = member(model, "vocab");
  if (!vocab.is_object()) bad(where, "model.vocab is no object");
  const json& added = member(root, "added_tokens");
  const std::int64_t end = end_of_ids(vocab.size() + added.size());
  for (const auto& [piece, id] : vocab.items()) put_piece(spec, id, end, piece, TokenKind::normal);
  read_merges(spec, member(model, "merges"));
  const bool byte_level = kind_of_tokenizer_json(root) == JsonTokenizer::byte_level_bpe;
  if (byte_level) {
    read_byte_level(spec, root);
  } else {
    read_sentencepiece_like(spec, root);
  }
  if (added.is_array()) {
    for (const json& token : added) put_added(spec, member(token, "id"), end, token);
  }
  if (const std::string unknown = string_or(member(model, "unk_token")); !byte_level && !unknown.empty()) {
    spec.unk = find_piece(spec, unknown);
    if (spec.unk == kNoToken) bad(where, fmt::format("model.unk_token \"{}\" is not in the vocabulary", unknown));
    spec.kinds[static_cast<std::size_t>(spec.unk)] = TokenKind::unknown;
  }
  if (const std::string in_front = bos_of_post_processor(member(root, "post_processor")); !in_front.empty()) {
    spec.bos = find_piece(spec, in_front);
    spec.add_bos = spec.bos != kNoToken;
  }
  return spec;
}

}  // namespace banyan
