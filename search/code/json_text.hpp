// A small JSON reader that loses nothing: numbers stay text, and every value knows where it stood. For files of tests,
// where integers have thousands of digits (nlohmann's reader refuses them), and for results of untrusted programs
// (depth is limited). Accepts NaN, Infinity and -Infinity, which Python writes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace banyan::code {

struct JsonText {
  enum class Kind : unsigned char { null, boolean, number, string, array, object };

  Kind kind = Kind::null;
  std::string text;                // number: the literal; string: its value; boolean: "true" or "false"
  std::vector<JsonText> items;     // array: elements; object: values
  std::vector<std::string> keys;   // object, beside `items`
  std::size_t begin = 0, end = 0;  // bytes of the parsed text

  bool is(Kind k) const { return kind == k; }
  // The value of the last member of that name, or nullptr.
  const JsonText* find(std::string_view key) const;
};

// Throws Error{bad_file} with `where` and the byte at which the text stops being JSON.
JsonText parse_json(std::string_view text, const std::string& where);

}  // namespace banyan::code
