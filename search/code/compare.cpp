#include "banyan/code/compare.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string>

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

// Takes the first line off `rest`, without white space at its end; false where there is none.
bool next_line(std::string_view& rest, std::string_view& line, bool skip_blank) {
  do {
    if (rest.empty()) return false;
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    line = right_trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  } while (skip_blank && line.empty());
  return true;
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
  if (value.is(JsonText::Kind::boolean)) return value.raw() == "true" ? "1" : "0";
  return value.raw();
}

bool is_numeric(const JsonText& value) { return value.is(JsonText::Kind::number) || value.is(JsonText::Kind::boolean); }

bool same_value(Comparator comparator, const JsonText& expected, const JsonText& got);

bool same_elements(Comparator comparator, const JsonText& expected, const JsonText& got) {
  for (JsonItems e(expected), g(got);;) {
    const bool more = e.next();
    if (g.next() != more) return false;
    if (!more) return true;
    if (!same_value(comparator, e.value(), g.value())) return false;
  }
}

bool same_members(Comparator comparator, const JsonText& expected, const JsonText& got) {
  std::size_t n_left = 0;
  for (JsonItems e(expected); e.next();) ++n_left;
  std::map<std::string, JsonText> found;  // no more than are expected, however many a program wrote
  for (JsonItems g(got); g.next(); --n_left) {
    if (n_left == 0) return false;
    found.insert_or_assign(g.key(), g.value());
  }
  if (n_left != 0) return false;
  for (JsonItems e(expected); e.next();) {
    const auto other = found.find(e.key());
    if (other == found.end() || !same_value(comparator, e.value(), other->second)) return false;
  }
  return true;
}

bool same_value(Comparator comparator, const JsonText& expected, const JsonText& got) {
  using Kind = JsonText::Kind;
  if (comparator == Comparator::apps && is_numeric(expected) && is_numeric(got))
    return same_number(comparator, as_number(expected), as_number(got));
  if (expected.kind() != got.kind()) return false;
  switch (expected.kind()) {
    case Kind::null: return true;
    case Kind::number: return same_number(comparator, expected.raw(), got.raw());
    case Kind::boolean:
    case Kind::string: return expected.text() == got.text();
    case Kind::array: return same_elements(comparator, expected, got);
    case Kind::object: return same_members(comparator, expected, got);
  }
  return false;
}

}  // namespace

bool same_output(Comparator comparator, std::string_view expected, std::string_view got) {
  const bool strict = comparator == Comparator::strict;
  expected = right_trimmed(expected);  // blank lines at the end, too
  got = right_trimmed(got);
  for (std::string_view e, g;;) {
    const bool more = next_line(expected, e, !strict);
    if (next_line(got, g, !strict) != more) return false;
    if (!more) return true;
    if (strict ? e != g : !same_tokens(e, g)) return false;
  }
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
  if (!right.is(JsonText::Kind::array)) return false;
  JsonItems only(right);
  if (!only.next()) return false;
  const JsonText value = only.value();
  return !only.next() && same_value(comparator, value, result);
}

}  // namespace banyan::code
