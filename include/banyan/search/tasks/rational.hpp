// Exact fractions of 64-bit integers, for the verifiers of number games. Layer 8; knows nothing else.
//
// In lowest terms, denominator positive. An operation whose result does not fit, or that divides by zero, has none.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace banyan::search {

class Rational {
 public:
  constexpr Rational(std::int64_t whole = 0) : n_(whole) {}  // NOLINT: whole numbers are fractions
  static std::optional<Rational> make(std::int64_t n, std::int64_t d);

  std::int64_t numerator() const { return n_; }
  std::int64_t denominator() const { return d_; }
  friend bool operator==(const Rational&, const Rational&) = default;
  friend std::strong_ordering operator<=>(const Rational& a, const Rational& b);

 private:
  std::int64_t n_ = 0, d_ = 1;
};

// op: one of + - * /. Nothing where the result is undefined or does not fit.
std::optional<Rational> apply(char op, const Rational& x, const Rational& y);

// "8", "-3", "8/3", "3.25": all of `text`. Nothing for anything else.
std::optional<Rational> parse_rational(std::string_view text);
std::string to_string(const Rational& x);  // "8", "8/3"

}  // namespace banyan::search
