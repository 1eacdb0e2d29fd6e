// E4M3 as the specification writes it down, and rounding to it by search: what kernels/e4m3.hpp is held against.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

namespace banyan::kernels {

inline double e4m3_oracle_value(std::uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double sign = code >> 7 != 0 ? -1.0 : 1.0;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<double>::quiet_NaN();
  return sign * (exponent == 0 ? std::ldexp(mantissa / 8.0, -6) : std::ldexp(1.0 + mantissa / 8.0, exponent - 7));
}

// The finite code with the nearest value; of two the even one. x is not NaN.
inline std::uint8_t e4m3_oracle_code(double x) {
  static const auto values = [] {  // ascending
    std::array<double, 127> v{};
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = e4m3_oracle_value(static_cast<std::uint8_t>(i));
    return v;
  }();
  const double size = std::fabs(x);
  const auto above = std::lower_bound(values.begin(), values.end(), size);
  auto code = static_cast<std::uint8_t>(std::min<std::ptrdiff_t>(above - values.begin(), 126));
  if (above != values.end() && above != values.begin()) {
    const double up = *above - size, down = size - *(above - 1);
    if (down < up || (down == up && code % 2 == 1)) --code;
  }
  return static_cast<std::uint8_t>(code | (std::signbit(x) ? 0x80 : 0));
}

// Of a row whose largest |x| is `largest` > 0: the least power of two that it is at most 448 times as large as.
inline double e4m3_oracle_scale(double largest) { return std::exp2(std::ceil(std::log2(largest / 448.0))); }

}  // namespace banyan::kernels
