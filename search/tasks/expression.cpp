// Expressions over given numbers: a recursive descent with a limit of depth, in exact fractions.
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utility>

#include "banyan/search/tasks/game24.hpp"

namespace banyan::search {

namespace {

struct Wrong {
  std::string reason;
};

// Deeper than any expression over a handful of numbers needs to be, and far from the end of the stack.
constexpr int kMaxDepth = 200;

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Rational whole() {
    const Rational value = sum();
    if (!rest_.empty()) throw Wrong{fmt::format("cannot be read from \"{}\" on", rest_.substr(0, 20))};
    return value;
  }
  Numbers used() && { return std::move(used_); }

 private:
  bool take(char c) {
    skip_blanks();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    skip_blanks();
    return true;
  }
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r"), rest_.size())); }

  static Rational combine(char op, const Rational& x, const Rational& y) {
    const auto result = apply(op, x, y);
    if (!result) {
      throw Wrong{op == '/' && y == 0 ? "divides by zero"
                                      : fmt::format("{} {} {} is too large", to_string(x), op, to_string(y))};
    }
    return *result;
  }
  Rational sum() {
    Rational value = product();
    for (;;) {
      if (take('+')) {
        value = combine('+', value, product());
      } else if (take('-')) {
        value = combine('-', value, product());
      } else {
        return value;
      }
    }
  }
  Rational product() {
    Rational value = factor();
    for (;;) {
      if (take('*')) {
        value = combine('*', value, factor());
      } else if (take('/')) {
        value = combine('/', value, factor());
      } else {
        return value;
      }
    }
  }
  Rational factor() {
    if (++depth_ > kMaxDepth) throw Wrong{fmt::format("is nested deeper than {}", kMaxDepth)};
    Rational value;
    if (take('-')) {
      value = combine('-', 0, factor());
    } else if (take('(')) {
      value = sum();
      if (!take(')')) throw Wrong{"lacks a closing bracket"};
    } else {
      value = number();
    }
    --depth_;
    return value;
  }
  Rational number() {
    skip_blanks();
    const std::size_t n = std::min(rest_.find_first_not_of("0123456789."), rest_.size());
    const auto value = parse_rational(rest_.substr(0, n));
    if (!value) throw Wrong{fmt::format("has no number at \"{}\"", rest_.substr(0, 20))};
    rest_.remove_prefix(n);
    used_.push_back(*value);
    return *value;
  }

  std::string_view rest_;
  Numbers used_;
  int depth_ = 0;
};

// The last line that is not blank, without "Answer:" and from "=" on.
std::string_view expression_in(std::string_view text) {
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  const std::size_t line = text.rfind('\n');
  if (line != std::string_view::npos) text.remove_prefix(line + 1);
  constexpr std::string_view kAnswer = "answer:";
  const auto same = [](char a, char b) { return a == b || a + ('a' - 'A') == b; };
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  if (text.size() >= kAnswer.size() &&
      std::equal(kAnswer.begin(), kAnswer.end(), text.begin(), [&](char b, char a) { return same(a, b); })) {
    text.remove_prefix(kAnswer.size());
  }
  return text.substr(0, text.find('='));
}

std::string with_ascii_signs(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, char>, 3> kSigns{
      {{"\u2212", '-'}, {"\u00D7", '*'}, {"\u00F7", '/'}}};
  std::string plain;
  while (!text.empty()) {
    const auto* const sign = std::ranges::find_if(kSigns, [&](const auto& s) { return text.starts_with(s.first); });
    plain.push_back(sign == kSigns.end() ? text.front() : sign->second);
    text.remove_prefix(sign == kSigns.end() ? 1 : sign->first.size());
  }
  return plain;
}

}  // namespace

Verdict check_expression(const Numbers& numbers, const Rational& target, std::string_view text) {
  const std::string expression = with_ascii_signs(expression_in(text));
  try {
    Parser parser(expression);
    const Rational value = parser.whole();
    Numbers used = std::move(parser).used();
    std::ranges::sort(used);
    if (used != numbers) {
      return {.reason = fmt::format("uses {}, not {}", to_string(used), to_string(numbers))};
    }
    if (value != target) return {.reason = fmt::format("is {}, not {}", to_string(value), to_string(target))};
  } catch (const Wrong& wrong) {
    return {.reason = wrong.reason};
  }
  return {.right = true};
}

}  // namespace banyan::search
