// utf8proc does it all in one call, but sorts the marks of one character by exchanging neighbours: a megabyte of marks
// in the wrong order takes hours. So the steps are made one by one here: decompose, sort, compose.
#include "tokens/nfc.hpp"

#include <algorithm>
#include <cassert>
#include <utf8proc.h>
#include <vector>

#include "banyan/error.hpp"

namespace banyan {

namespace {

constexpr auto kForm = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

utf8proc_propval_t combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

std::vector<utf8proc_int32_t> decompose(std::string_view text) {
  std::vector<utf8proc_int32_t> out;
  out.reserve(text.size());
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (auto left = static_cast<utf8proc_ssize_t>(text.size()); left > 0;) {
    utf8proc_int32_t c = 0;
    const utf8proc_ssize_t n = utf8proc_iterate(at, left, &c);
    assert(n > 0);
    at += n;
    left -= n;
    // No character has more parts: the Unicode Standard promises at most 18, for the compatibility forms.
    utf8proc_int32_t parts[18];
    int boundary = 0;
    const utf8proc_ssize_t n_parts = utf8proc_decompose_char(c, parts, std::size(parts), kForm, &boundary);
    out.insert(out.end(), parts, parts + n_parts);
  }
  return out;
}

// Runs of combining marks, each in the order of their classes; equal ones stay in the order they have.
void sort_marks(std::vector<utf8proc_int32_t>& characters) {
  const auto is_mark = [](utf8proc_int32_t c) { return combining_class(c) != 0; };
  for (auto begin = characters.begin(); begin != characters.end();) {
    begin = std::find_if(begin, characters.end(), is_mark);
    const auto end = std::find_if_not(begin, characters.end(), is_mark);
    std::stable_sort(begin, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

}  // namespace

std::string to_nfc(std::string_view text) {
  // Characters below U+0300 are their own normal form, and no mark is among them: bytes up to CB in UTF-8.
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0xCC; })) {
    return std::string(text);
  }
  std::vector<utf8proc_int32_t> characters = decompose(text);
  sort_marks(characters);
  const auto n = static_cast<utf8proc_ssize_t>(characters.size());
  characters.push_back(0);  // room for the terminating zero that utf8proc writes
  const utf8proc_ssize_t n_bytes = utf8proc_reencode(characters.data(), n, kForm);
  if (n_bytes < 0) throw Error(ErrorCode::bad_input, "text", utf8proc_errmsg(n_bytes));
  return {reinterpret_cast<const char*>(characters.data()), static_cast<std::size_t>(n_bytes)};
}

}  // namespace banyan
