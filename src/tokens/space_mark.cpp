#include "tokens/space_mark.hpp"

namespace banyan {

namespace {

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string replaced;
  replaced.reserve(text.size());
  for (std::size_t at; (at = text.find(from)) != std::string_view::npos;) {
    replaced += text.substr(0, at);
    replaced += to;
    text.remove_prefix(at + from.size());
  }
  return replaced += text;
}

}  // namespace

std::string escape_spaces(std::string_view text) { return replace_all(text, " ", kSpaceMark); }
std::string unescape_spaces(std::string_view piece) { return replace_all(piece, kSpaceMark, " "); }

}  // namespace banyan
