#include "tokens/spec_json.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace banyan {

using nlohmann::json;

const json& member(const json& object, const std::string& key) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

std::string string_or(const json& value, std::string fallback) {
  return value.is_string() ? value.get<std::string>() : std::move(fallback);
}
bool bool_or(const json& value, bool fallback) { return value.is_boolean() ? value.get<bool>() : fallback; }

std::string type_of(const json& part) { return string_or(member(part, "type")); }

std::string shown(const json& part) {
  constexpr std::size_t kMax = 300;
  const std::string text = part.dump(-1, ' ', /*ensure_ascii=*/true);
  return text.size() <= kMax ? text : text.substr(0, kMax) + "…";
}

std::int64_t end_of_ids(std::size_t n_named) {
  constexpr std::size_t kMaxVocabSize = 1 << 22;  // 4 M pieces; the largest published vocabularies have 0.26 M
  return static_cast<std::int64_t>(std::min(2 * n_named + 1024, kMaxVocabSize));
}

void put_piece(TokenizerSpec& spec, const json& id, std::int64_t end, std::string piece, TokenKind kind) {
  if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= end) {
    throw Error(ErrorCode::bad_file, spec.where,
                fmt::format("token \"{}\" has the id {}; ids go from 0 to {}", piece, shown(id), end - 1));
  }
  const auto i = id.get<std::size_t>();
  if (i >= spec.pieces.size()) {
    spec.pieces.resize(i + 1);
    spec.kinds.resize(i + 1, TokenKind::unused);
    if (!spec.scores.empty()) spec.scores.resize(i + 1, 0.0F);
  }
  spec.pieces[i] = std::move(piece);
  spec.kinds[i] = kind;
}

void put_added(TokenizerSpec& spec, const json& id, std::int64_t end, const json& token) {
  const std::string content = string_or(member(token, "content"));
  if (bool_or(member(token, "single_word"), false)) {
    throw Error(ErrorCode::unsupported, spec.where,
                fmt::format("added token \"{}\" with single_word is not supported", content));
  }
  put_piece(spec, id, end, content,
            bool_or(member(token, "special"), false) ? TokenKind::control : TokenKind::user_defined);
  if (bool_or(member(token, "lstrip"), false)) spec.lstrip.push_back(id.get<TokenId>());
  if (bool_or(member(token, "rstrip"), false)) spec.rstrip.push_back(id.get<TokenId>());
}

TokenId find_piece(const TokenizerSpec& spec, const std::string& piece) {
  const auto it = std::find(spec.pieces.begin(), spec.pieces.end(), piece);
  return it == spec.pieces.end() ? kNoToken : static_cast<TokenId>(it - spec.pieces.begin());
}

}  // namespace banyan
