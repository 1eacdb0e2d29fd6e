// Small steps from the JSON files around a tokenizer to a TokenizerSpec, shared by their readers. Layer 1, internal,
// for .cpp files only. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "banyan/tokenizer.hpp"
#include "base/json.hpp"

namespace banyan {

// A member, or null where it is absent or `object` is no object.
const nlohmann::json& member(const nlohmann::json& object, const std::string& key);
std::string string_or(const nlohmann::json& value, std::string fallback = {});
bool bool_or(const nlohmann::json& value, bool fallback);
std::string type_of(const nlohmann::json& part);  // its "type"

std::string shown(const nlohmann::json& part);  // for messages: its text, cut where it is long

// Ids of a file that names so many tokens end here at the latest: some may be left out, but a short file must not make
// a large vocabulary.
std::int64_t end_of_ids(std::size_t n_named);
// Puts a piece at its id; ids that are left out on the way become unused pieces without a text. Throws Error{bad_file}
// for what is no id below `end`.
void put_piece(TokenizerSpec& spec, const nlohmann::json& id, std::int64_t end, std::string piece, TokenKind kind);
// An added token's object: "content" and flags. Throws Error{unsupported} for a flag that is not supported.
void put_added(TokenizerSpec& spec, const nlohmann::json& id, std::int64_t end, const nlohmann::json& token);
TokenId find_piece(const TokenizerSpec& spec, const std::string& piece);  // kNoToken: there is none

}  // namespace banyan
