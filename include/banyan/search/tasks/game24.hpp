// The game of 24, and Countdown, which is the same with other numbers and another target: reach the target from the
// given numbers by + - * /, each number used exactly once. Rules, and verifiers of texts in exact fractions. Layer 8;
// knows no session and no model.
//
// Texts come from models: each check takes any bytes and says why a text is wrong. All functions are pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "banyan/search/tasks/rational.hpp"

namespace banyan::search {

using Numbers = std::vector<Rational>;  // sorted

// "4 6 8/3 12", in any order. Throws Error{bad_input} naming what is no number.
Numbers parse_numbers(std::string_view text);
std::string to_string(const Numbers& numbers);

// Two of the numbers make one.
struct Move {
  Rational x;
  char op = '+';
  Rational y;
  Rational result;
  friend bool operator==(const Move&, const Move&) = default;
};
std::string to_string(const Move& move);  // "8 - 4 = 4"

// The numbers that are left, sorted. Nothing where x or y is not among them.
std::optional<Numbers> after(const Numbers& numbers, const Move& move);

// All moves without a negative result (a sign can be carried through to the end, so the others reach nothing more), one
// for each set of numbers that they can leave. In order: pairs by place; + - * and the larger through the smaller, the
// smaller through the larger.
std::vector<Move> legal_moves(const Numbers& numbers);

// Whether the target can be reached: by trying everything.
bool solvable(const Numbers& numbers, const Rational& target);

struct Verdict {
  bool right = false;
  std::string reason = {};  // what is wrong; empty if right
};

// The move that a line of a solution says, "8 - 4 = 4" with anything like "left 4 6 12" behind it, right or wrong.
std::optional<Move> said_move(std::string_view line);

// A line of a solution, "8 - 4 = 4", "8 - 4 = 4 left 4 6 12" or "8 - 4 = 4 (left: 4 6 12)", with spaces around. Fills
// in the numbers that are left (`left` may be `numbers` itself) and the move. Wrong: numbers that are not there, wrong
// arithmetic, a wrong list of what is left; then neither is touched.
Verdict read_step(std::string_view line, const Numbers& numbers, Numbers& left, Move* move = nullptr);

// Lines of a solution: each right, and the target alone is left.
Verdict check_steps(const Numbers& numbers, const Rational& target, std::string_view text);

// An expression over the numbers, as a whole text or as its last line: "Answer: (4 * 5) + (10 - 6) = 24". What stands
// behind "=" is not read. Minus, times and division signs of Unicode count as such.
Verdict check_expression(const Numbers& numbers, const Rational& target, std::string_view text);

}  // namespace banyan::search
