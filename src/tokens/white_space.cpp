#include "tokens/white_space.hpp"

#include <utf8proc.h>

#include "tokens/utf8.hpp"

namespace banyan {

namespace {

bool is_white_space(utf8proc_int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP ||
         c == 0x85 || (c >= '\t' && c <= '\r');
}

// Length of the character at the front if it is white space, else 0.
std::size_t space_length(std::string_view text, std::string_view more) {
  if (text.empty()) return 0;
  const Utf8Part part = utf8_front(text);
  if (!part.valid) return 0;
  utf8proc_int32_t c = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(part.n_bytes),
                   &c);
  return is_white_space(c) || more.find(text[0]) != std::string_view::npos ? part.n_bytes : 0;
}

}  // namespace

std::string_view strip_front(std::string_view text, std::string_view more) {
  while (const std::size_t n = space_length(text, more)) text.remove_prefix(n);
  return text;
}

std::string_view strip_back(std::string_view text, std::string_view more) {
  while (!text.empty()) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    if (space_length(text.substr(begin), more) != text.size() - begin) break;
    text = text.substr(0, begin);
  }
  return text;
}

}  // namespace banyan
