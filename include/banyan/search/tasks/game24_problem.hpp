// The game of 24 and Countdown as a Problem, in the forms that models/arith24 was trained on. Layer 8.
//
// A state is the text of the steps so far, one a line: " 7 * 7 = 49 left 1 2 49\n". A path ends with its last number,
// with a wrong step, or where the model ends its text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "banyan/search/problem.hpp"
#include "banyan/search/tasks/game24.hpp"

namespace banyan::search {

class Game24Problem final : public Problem {
 public:
  // `numbers`: at least one, sorted. Throws Error{bad_input} otherwise.
  Game24Problem(std::string id, Numbers numbers, Rational target = 24);

  const Numbers& numbers() const { return numbers_; }
  const Rational& target() const { return target_; }
  // What the steps leave; nothing where one of them is wrong.
  std::optional<Numbers> left_after(std::string_view state) const;

  std::string id() const override { return id_; }
  Prompt prompt() const override;                                // "1 2 7 7 to 24 solve\n"
  Prompt propose_prompt(std::string_view state) const override;  // "1 2 49 moves\n"
  std::vector<std::string> parse_proposals(std::string_view state, std::string_view output) const override;
  std::vector<std::string> next_steps(std::string_view state) const override;
  Prompt value_prompt(std::string_view state) const override;                          // "1 2 49 to 24 value"
  double parse_value(std::string_view state, std::string_view output) const override;  // 1: sure
  std::optional<double> known_value(std::string_view state) const override;  // of a wrong step, and of one number
  std::vector<Choice> value_choices() const override;
  bool finished(std::string_view state, FinishReason how) const override;
  // The steps as one expression, operands of + and * in order: "(49 - 1) / 2" has one form, however it was found.
  // Arithmetic is taken as the model says it, so that a vote knows no verifier.
  std::optional<std::string> answer(std::string_view state) const override;
  std::optional<double> verify(std::string_view state) const override;  // 1: right steps, and the target alone is left

 private:
  std::string id_;
  Numbers numbers_;
  Rational target_;
};

// The puzzles of a file with the columns of the published 24.csv (Rank,Puzzles,…), in its order. Throws Error{bad_file}
// naming the line.
std::vector<Numbers> read_game24_csv(const std::string& path);

// Countdown problems made by rule: n_numbers of 1 to 10 (each at most twice) and 25, 50, 75, 100 (each at most once),
// and a target from 100 to 999 that some moves with whole results up to 999 reach, each number used. The same for the
// same seed everywhere.
struct CountdownProblem {
  Numbers numbers;
  Rational target;
};
std::vector<CountdownProblem> make_countdown(std::int64_t n_numbers, std::int64_t n_problems, std::uint64_t seed);

}  // namespace banyan::search
