#include "banyan/search/tasks/rational.hpp"

#include <charconv>
#include <limits>
#include <numeric>

namespace banyan::search {

namespace {

using Wide = __int128;  // holds any product of two 64-bit numbers, and the sum of two such

std::optional<Rational> narrow(Wide n, Wide d) {
  if (d == 0) return std::nullopt;
  Wide a = n < 0 ? -n : n, b = d < 0 ? -d : d;
  while (b != 0) {
    const Wide rest = a % b;
    a = b;
    b = rest;
  }
  n /= a;
  d /= a;
  constexpr Wide kMax = std::numeric_limits<std::int64_t>::max();
  if (n > kMax || n < -kMax || d > kMax || d < -kMax) return std::nullopt;
  return Rational::make(static_cast<std::int64_t>(n), static_cast<std::int64_t>(d));
}

std::optional<std::int64_t> parse_digits(std::string_view text) {
  std::int64_t value = 0;
  if (text.empty() || text.front() == '-') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Rational> Rational::make(std::int64_t n, std::int64_t d) {
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  if (d == 0 || n == kMin || d == kMin) return std::nullopt;
  const std::int64_t g = std::gcd(n, d);
  Rational x;
  x.n_ = (d < 0 ? -n : n) / g;
  x.d_ = (d < 0 ? -d : d) / g;
  return x;
}

std::strong_ordering operator<=>(const Rational& a, const Rational& b) {
  const Wide left = Wide{a.n_} * b.d_, right = Wide{b.n_} * a.d_;
  return left < right   ? std::strong_ordering::less
         : left > right ? std::strong_ordering::greater
                        : std::strong_ordering::equal;
}

std::optional<Rational> apply(char op, const Rational& x, const Rational& y) {
  const Wide xn = x.numerator(), xd = x.denominator(), yn = y.numerator(), yd = y.denominator();
  switch (op) {
    case '+': return narrow(xn * yd + yn * xd, xd * yd);
    case '-': return narrow(xn * yd - yn * xd, xd * yd);
    case '*': return narrow(xn * yn, xd * yd);
    case '/': return narrow(xn * yd, xd * yn);
    default: return std::nullopt;
  }
}

std::optional<Rational> parse_rational(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const std::size_t mark = text.find_first_of("/.");
  const auto first = parse_digits(text.substr(0, mark));
  if (!first) return std::nullopt;
  std::optional<Rational> value = Rational(*first);
  if (mark != std::string_view::npos) {
    const std::string_view rest = text.substr(mark + 1);
    const auto second = parse_digits(rest);
    if (!second) return std::nullopt;
    std::int64_t d = *second;
    if (text[mark] == '.') {
      if (rest.size() > 18) return std::nullopt;
      d = 1;
      for (std::size_t i = 0; i < rest.size(); ++i) d *= 10;
      const auto decimals = Rational::make(*second, d);
      value = apply('+', *value, *decimals);
    } else {
      value = Rational::make(*first, d);
    }
  }
  if (!value || !negative) return value;
  return apply('-', 0, *value);
}

std::string to_string(const Rational& x) {
  std::string text = std::to_string(x.numerator());
  if (x.denominator() != 1) text.append("/").append(std::to_string(x.denominator()));
  return text;
}

}  // namespace banyan::search
