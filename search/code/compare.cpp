#include "banyan/code/compare.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "banyan/error.hpp"
#include "json_text.hpp"

namespace banyan::code {

namespace {

constexpr std::string_view kSpace = " \t\r\n\v\f";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// [sign] digits
bool is_integer(std::string_view text) {
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// The value's one spelling: no plus, no leading zeros, no minus zero.
std::string canonical_integer(std::string_view text) {
  const bool negative = text[0] == '-';
  if (text[0] == '+' || text[0] == '-') text.remove_prefix(1);
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
  if (text.empty()) return "0";
  std::string canonical(negative ? 1 : 0, '-');
  return canonical.append(text);
}

// Finite decimal numbers only: "nan", "inf", "0x1p3" and what overflows are words.
std::optional<double> parse_number(std::string_view text) {
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || !(is_digit(digits[0]) || digits[0] == '.')) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool same_number(Comparator comparator, std::string_view expected, std::string_view got) {
  if (expected == got) return true;
  if (is_integer(expected) && is_integer(got)) return canonical_integer(expected) == canonical_integer(got);
  const auto e = parse_number(expected), g = parse_number(got);
  if (!e || !g) return false;
  return comparator == Comparator::strict ? *e == *g
                                          : std::abs(*g - *e) <= kAbsTolerance + kRelTolerance * std::abs(*e);
}

std::string_view right_trimmed(std::string_view line) { return line.substr(0, line.find_last_not_of(kSpace) + 1); }

// Lines without white space at their ends; blank ones dropped at the end, or everywhere.
std::vector<std::string_view> lines_of(std::string_view text, bool keep_inner_blank) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = right_trimmed(text.substr(begin, end - begin));
    if (keep_inner_blank || !line.empty()) lines.push_back(line);
    begin = end + 1;
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::string_view next_token(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kSpace), line.size()));
  const std::string_view token = line.substr(0, line.find_first_of(kSpace));
  line.remove_prefix(token.size());
  return token;
}

bool same_tokens(std::string_view expected, std::string_view got) {
  for (;;) {
    const std::string_view e = next_token(expected), g = next_token(got);
    if (e.empty() || g.empty()) return e.empty() && g.empty();
    if (!same_number(Comparator::apps, e, g)) return false;
  }
}

// What Python's == sees in True and False.
std::string_view as_number(const JsonText& value) {
  if (value.is(JsonText::Kind::boolean)) return value.text == "true" ? "1" : "0";
  return value.text;
}

bool is_numeric(const JsonText& value) { return value.is(JsonText::Kind::number) || value.is(JsonText::Kind::boolean); }

bool same_value(Comparator comparator, const JsonText& expected, const JsonText& got) {
  using Kind = JsonText::Kind;
  if (comparator == Comparator::apps && is_numeric(expected) && is_numeric(got))
    return same_number(comparator, as_number(expected), as_number(got));
  if (expected.kind != got.kind || expected.items.size() != got.items.size()) return false;
  switch (expected.kind) {
    case Kind::null: return true;
    case Kind::number: return same_number(comparator, expected.text, got.text);
    case Kind::boolean:
    case Kind::string: return expected.text == got.text;
    case Kind::array:
      for (std::size_t i = 0; i < expected.items.size(); ++i)
        if (!same_value(comparator, expected.items[i], got.items[i])) return false;
      return true;
    case Kind::object:
      for (std::size_t i = 0; i < expected.items.size(); ++i) {
        const JsonText* other = got.find(expected.keys[i]);
        if (!other || !same_value(comparator, expected.items[i], *other)) return false;
      }
      return true;
  }
  return false;
}

}  // namespace

bool same_output(Comparator comparator, std::string_view expected, std::string_view got) {
  const bool strict = comparator == Comparator::strict;
  const auto e = lines_of(expected, strict), g = lines_of(got, strict);
  if (e.size() != g.size()) return false;
  for (std::size_t i = 0; i < e.size(); ++i)
    if (strict ? e[i] != g[i] : !same_tokens(e[i], g[i])) return false;
  return true;
}

bool same_result(Comparator comparator, std::string_view expected, std::string_view got) {
  const JsonText right = parse_json(expected, "expected result");
  JsonText result;
  try {
    result = parse_json(got, "result");
  } catch (const Error&) {
    return false;
  }
  if (same_value(comparator, right, result)) return true;
  return right.is(JsonText::Kind::array) && right.items.size() == 1 && same_value(comparator, right.items[0], result);
}

}  // namespace banyan::code
