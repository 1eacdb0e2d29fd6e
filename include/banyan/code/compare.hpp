// When an output counts as right. Layer 8: pure functions on text; knows no sandbox and no problem.
//
// Two named comparators:
//
// - apps: the lenient one, whose score is the headline. As published for APPS, white space at line ends and blank lines
//   do not count, tokens may be separated by any space, numbers with a fraction or an exponent are compared with a
//   tolerance. Unlike the published one, order and number of lines and tokens count, and integers are exact.
// - strict: the text must be the same but for white space at line ends and empty lines at the end.
//
// Letters count as they are ("YES" is not "yes"); "nan" and "inf" are words, equal only to themselves.
#pragma once

#include <cstdint>
#include <string_view>

namespace banyan::code {

enum class Comparator : std::uint8_t { apps, strict };

// |got - expected| <= kAbsTolerance + kRelTolerance * |expected|. The relative part is numpy.allclose's, which the
// published comparator uses; its absolute part (1e-8) would tell 1e-7 from 0.
inline constexpr double kAbsTolerance = 1e-6;
inline constexpr double kRelTolerance = 1e-5;

// stdout of a script.
bool same_output(Comparator comparator, std::string_view expected, std::string_view got);

// Result of a call, both as JSON text. APPS writes expected results bare or in a list of one; both are right. Lists
// keep their order; `apps` takes true for 1 as Python does. Anything but JSON in `got` is wrong; throws Error{bad_file}
// when `expected` is no JSON.
bool same_result(Comparator comparator, std::string_view expected, std::string_view got);

}  // namespace banyan::code
