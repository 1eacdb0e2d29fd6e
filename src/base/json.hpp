// JSON from untrusted files: nlohmann's parser behind typed errors and a depth limit. Layer 0, internal, for .cpp files
// only (nlohmann's header is slow to compile). Knows no file form. Pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "banyan/error.hpp"

namespace banyan {

// Throws Error{bad_file} naming `where` for text that is no JSON or nests deeper than 64. Of a key that stands in an
// object twice, the last counts.
nlohmann::json parse_json(std::string_view text, const std::string& where);

// The same for what must be an object, and in which no key may stand twice.
nlohmann::json parse_json_object(std::string_view text, const std::string& where);
nlohmann::json read_json_object(const std::string& path);

// A member of an object, or nothing where it is absent or null. A value of another type throws Error{bad_file}
// "where: key 'name'".
std::optional<std::int64_t> find_int(const nlohmann::json& object, const char* key, const std::string& where);
std::optional<double> find_float(const nlohmann::json& object, const char* key, const std::string& where);
std::optional<bool> find_bool(const nlohmann::json& object, const char* key, const std::string& where);
std::optional<std::string> find_string(const nlohmann::json& object, const char* key, const std::string& where);

}  // namespace banyan
