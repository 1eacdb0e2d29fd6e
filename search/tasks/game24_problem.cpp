#include "banyan/search/tasks/game24_problem.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <random>
#include <utility>

#include "banyan/read_file.hpp"

namespace banyan::search {

namespace {

// A thought: the line of a step, as the model writes it.
std::string step_text(const Move& move, const Numbers& left) {
  return fmt::format(" {}{}\n", to_string(move), left.size() > 1 ? " left " + to_string(left) : "");
}

// Calls on_line for each line that is not blank; false from it ends the walk, and is the result.
template <class OnLine>
bool for_each_line(std::string_view text, OnLine&& on_line) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos && !on_line(line)) return false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return true;
}

// A number of the state with the expression that it came of.
struct Term {
  Rational value;
  std::string text;
};

std::optional<Term> take(std::vector<Term>& terms, const Rational& value) {
  const auto at = std::ranges::find(terms, value, &Term::value);
  if (at == terms.end()) return std::nullopt;
  Term term = std::move(*at);
  terms.erase(at);
  return term;
}

}  // namespace

Game24Problem::Game24Problem(std::string id, Numbers numbers, Rational target)
    : id_(std::move(id)), numbers_(std::move(numbers)), target_(target) {
  if (numbers_.empty() || !std::ranges::is_sorted(numbers_)) {
    throw Error(ErrorCode::bad_input, "problem " + id_,
                fmt::format("numbers \"{}\" are none, or are not sorted", to_string(numbers_)));
  }
}

std::optional<Numbers> Game24Problem::left_after(std::string_view state) const {
  Numbers numbers = numbers_;
  const bool right =
      for_each_line(state, [&](std::string_view line) { return read_step(line, numbers, numbers).right; });
  if (!right) return std::nullopt;
  return numbers;
}

Prompt Game24Problem::prompt() const {
  return {.shared = {}, .own = fmt::format("{} to {} solve\n", to_string(numbers_), to_string(target_))};
}

Prompt Game24Problem::propose_prompt(std::string_view state) const {
  const auto numbers = left_after(state);
  if (!numbers) throw Error(ErrorCode::bad_input, "problem " + id_, "a wrong step is not continued");
  return {.shared = {}, .own = to_string(*numbers) + " moves\n"};
}

std::vector<std::string> Game24Problem::parse_proposals(std::string_view state, std::string_view output) const {
  std::vector<std::string> texts;
  const auto numbers = left_after(state);
  if (!numbers) return texts;
  for_each_line(output, [&](std::string_view line) {
    Numbers left;
    Move move;
    if (read_step(line, *numbers, left, &move).right) texts.push_back(step_text(move, left));
    return true;
  });
  return texts;
}

std::vector<std::string> Game24Problem::next_steps(std::string_view state) const {
  std::vector<std::string> texts;
  const auto numbers = left_after(state);
  if (!numbers) return texts;
  for (const Move& move : legal_moves(*numbers)) texts.push_back(step_text(move, *after(*numbers, move)));
  return texts;
}

Prompt Game24Problem::value_prompt(std::string_view state) const {
  const auto numbers = left_after(state);
  if (!numbers) throw Error(ErrorCode::bad_input, "problem " + id_, "a wrong step has no value prompt");
  return {.shared = {}, .own = fmt::format("{} to {} value", to_string(*numbers), to_string(target_))};
}

double Game24Problem::parse_value(std::string_view /*state*/, std::string_view output) const {
  return output.find("sure") != std::string_view::npos ? 1 : 0;
}

std::optional<double> Game24Problem::known_value(std::string_view state) const {
  const auto numbers = left_after(state);
  if (!numbers) return 0;
  if (numbers->size() > 1) return std::nullopt;
  return numbers->front() == target_ ? 1 : 0;
}

std::vector<Problem::Choice> Game24Problem::value_choices() const { return {{" sure", 1}, {" impossible", 0}}; }

bool Game24Problem::finished(std::string_view state, FinishReason how) const {
  if (how == FinishReason::eos) return true;
  // A search over tokens asks in the midst of a line, too: that is no step yet.
  const auto numbers = left_after(state.substr(0, state.rfind('\n') + 1));
  return !numbers || numbers->size() == 1;
}

std::optional<std::string> Game24Problem::answer(std::string_view state) const {
  std::vector<Term> terms;
  for (const Rational& number : numbers_) terms.push_back({number, to_string(number)});
  const bool readable = for_each_line(state, [&](std::string_view line) {
    const auto move = said_move(line);
    if (!move) return false;
    auto x = take(terms, move->x), y = take(terms, move->y);
    if (!x || !y) return false;
    if ((move->op == '+' || move->op == '*') && y->text < x->text) std::swap(x, y);
    terms.push_back({move->result, fmt::format("({} {} {})", x->text, move->op, y->text)});
    return true;
  });
  if (!readable || terms.size() != 1) return std::nullopt;
  return terms[0].text;
}

std::optional<double> Game24Problem::verify(std::string_view state) const {
  const auto numbers = left_after(state);
  return numbers && numbers->size() == 1 && numbers->front() == target_ ? 1 : 0;
}

std::vector<Numbers> read_game24_csv(const std::string& path) {
  const std::string text = read_file(path);
  std::vector<Numbers> puzzles;
  std::size_t n_lines = 0;
  for_each_line(text, [&](std::string_view line) {
    if (++n_lines == 1) return true;  // the names of the columns
    const std::size_t begin = line.find(',') + 1;
    const std::size_t end = line.find(',', begin);
    try {
      puzzles.push_back(parse_numbers(line.substr(begin, begin == 0 || end == line.npos ? 0 : end - begin)));
    } catch (const Error& error) {
      throw Error(ErrorCode::bad_file, fmt::format("{}: line {}", path, n_lines), error.what());
    }
    if (puzzles.back().empty())
      throw Error(ErrorCode::bad_file, fmt::format("{}: line {}", path, n_lines), "no puzzle");
    return true;
  });
  return puzzles;
}

std::vector<CountdownProblem> make_countdown(std::int64_t n_numbers, std::int64_t n_problems, std::uint64_t seed) {
  constexpr std::array kTiles{1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 25, 50, 75, 100};
  if (n_numbers < 2 || n_numbers > static_cast<std::int64_t>(kTiles.size()) || n_problems < 0) {
    throw Error(ErrorCode::usage, "countdown",
                fmt::format("{} problems of {} numbers: from 2 to {} numbers are possible", n_problems, n_numbers,
                            kTiles.size()));
  }
  // The standard fixes this generator, but not what its distributions make of it.
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const Rational low = 100, high = 999;
  std::vector<CountdownProblem> problems;
  while (static_cast<std::int64_t>(problems.size()) < n_problems) {
    std::vector<int> tiles(kTiles.begin(), kTiles.end());
    Numbers numbers;
    for (std::int64_t i = 0; i < n_numbers; ++i) {
      const auto at = tiles.begin() + static_cast<std::ptrdiff_t>(below(tiles.size()));
      numbers.emplace_back(*at);
      tiles.erase(at);
    }
    std::ranges::sort(numbers);
    Numbers state = numbers;
    while (state.size() > 1) {
      std::vector<Move> moves = legal_moves(state);
      std::erase_if(moves, [&](const Move& move) {
        return move.result.denominator() != 1 || move.result == 0 || move.result > high;
      });
      if (moves.empty()) break;
      state = *after(state, moves[below(moves.size())]);
    }
    if (state.size() == 1 && state[0] >= low) problems.push_back({std::move(numbers), state[0]});
  }
  return problems;
}

}  // namespace banyan::search
