// The character that stands for a space in the pieces of sentencepiece vocabularies. Pure functions.
#pragma once

#include <string>
#include <string_view>

namespace banyan {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

std::string escape_spaces(std::string_view text);     // marks for spaces
std::string unescape_spaces(std::string_view piece);  // spaces for marks

}  // namespace banyan
