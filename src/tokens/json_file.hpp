// Reading JSON files that come from elsewhere. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace banyan {

// Parses untrusted JSON: deeper than kMaxJsonDepth, or malformed, is Error{bad_file} naming `where`.
constexpr int kMaxJsonDepth = 64;
nlohmann::json parse_json(std::string_view text, const std::string& where);

}  // namespace banyan
