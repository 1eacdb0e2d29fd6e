#include "banyan/search/tasks/game24.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <set>

#include "banyan/error.hpp"

namespace banyan::search {

namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    const std::size_t end = std::min(text.find_first_of(kBlank), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

// What a model wrote, short enough for a message.
std::string shown(std::string_view text) {
  constexpr std::size_t kMax = 60;
  return fmt::format("\"{}{}\"", text.substr(0, kMax), text.size() > kMax ? "…" : "");
}

Verdict wrong(std::string reason) { return {.right = false, .reason = std::move(reason)}; }

// "left 4 6 12" or "(left: 4 6 12)": the numbers; nothing where it is neither.
std::optional<std::vector<std::string_view>> left_list(std::string_view text) {
  for (const auto& [open, close] : {std::pair<std::string_view, std::string_view>{"(left:", ")"}, {"left ", ""}}) {
    if (!text.starts_with(open) || !text.ends_with(close)) continue;
    text.remove_prefix(open.size());
    text.remove_suffix(close.size());
    return words_of(text);
  }
  return std::nullopt;
}

// Where the list of what is left begins; the end of the line without one.
std::size_t list_begin(std::string_view line) { return std::min({line.find("left"), line.find("(left"), line.size()}); }

}  // namespace

Numbers parse_numbers(std::string_view text) {
  Numbers numbers;
  for (const std::string_view word : words_of(text)) {
    const auto number = parse_rational(word);
    if (!number) throw Error(ErrorCode::bad_input, "numbers", fmt::format("{} is no number", shown(word)));
    numbers.push_back(*number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

std::string to_string(const Numbers& numbers) {
  std::string text;
  for (const Rational& number : numbers) text.append(text.empty() ? "" : " ").append(to_string(number));
  return text;
}

std::string to_string(const Move& move) {
  return fmt::format("{} {} {} = {}", to_string(move.x), move.op, to_string(move.y), to_string(move.result));
}

std::optional<Numbers> after(const Numbers& numbers, const Move& move) {
  Numbers left = numbers;
  for (const Rational& used : {move.x, move.y}) {
    const auto at = std::ranges::find(left, used);
    if (at == left.end()) return std::nullopt;
    left.erase(at);
  }
  left.insert(std::ranges::upper_bound(left, move.result), move.result);
  return left;
}

std::vector<Move> legal_moves(const Numbers& numbers) {
  std::vector<Move> moves;
  std::set<Numbers> seen;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    for (std::size_t j = i + 1; j < numbers.size(); ++j) {
      const Rational &low = numbers[i], &high = numbers[j];
      const std::array<Move, 5> candidates{
          {{low, '+', high, 0}, {high, '-', low, 0}, {low, '*', high, 0}, {high, '/', low, 0}, {low, '/', high, 0}}};
      for (Move move : candidates) {
        const auto result = apply(move.op, move.x, move.y);
        if (!result) continue;
        move.result = *result;
        if (seen.insert(*after(numbers, move)).second) moves.push_back(move);
      }
    }
  }
  return moves;
}

bool solvable(const Numbers& numbers, const Rational& target) {
  if (numbers.size() <= 1) return numbers.size() == 1 && numbers[0] == target;
  return std::ranges::any_of(legal_moves(numbers),
                             [&](const Move& move) { return solvable(*after(numbers, move), target); });
}

std::optional<Move> said_move(std::string_view line) {
  const auto words = words_of(line.substr(0, list_begin(line)));
  if (words.size() != 5 || words[1].size() != 1 || words[3] != "=") return std::nullopt;
  const auto x = parse_rational(words[0]), y = parse_rational(words[2]), said = parse_rational(words[4]);
  if (!x || !y || !said) return std::nullopt;
  return Move{*x, words[1][0], *y, *said};
}

Verdict read_step(std::string_view line, const Numbers& numbers, Numbers& left, Move* move) {
  line = trimmed(line);
  const auto step = said_move(line);
  if (!step) return wrong(fmt::format("{} is no step", shown(line)));
  const auto result = apply(step->op, step->x, step->y);
  if (!result) return wrong(fmt::format("{} has no result", shown(line)));
  if (*result != step->result) return wrong(fmt::format("{}: the result is {}", shown(line), to_string(*result)));
  auto rest = after(numbers, *step);
  if (!rest) return wrong(fmt::format("{} uses what is not among {}", shown(line), to_string(numbers)));
  if (const std::size_t list_at = list_begin(line); list_at < line.size()) {
    const auto list = left_list(line.substr(list_at));
    if (!list) return wrong(fmt::format("{} does not say what is left", shown(line)));
    Numbers said_left;
    for (const std::string_view word : *list) {
      const auto number = parse_rational(word);
      if (!number) return wrong(fmt::format("{} is no number", shown(word)));
      said_left.push_back(*number);
    }
    std::ranges::sort(said_left);
    if (said_left != *rest) return wrong(fmt::format("{}: {} is left", shown(line), to_string(*rest)));
  }
  left = std::move(*rest);
  if (move != nullptr) *move = *step;
  return {.right = true};
}

Verdict check_steps(const Numbers& numbers, const Rational& target, std::string_view text) {
  Numbers state = numbers;
  for (std::size_t n_lines = 1; !trimmed(text).empty(); ++n_lines) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (const Verdict step = read_step(text.substr(0, end), state, state); !step.right) {
      return wrong(fmt::format("line {}: {}", n_lines, step.reason));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (state.size() != 1 || state[0] != target) {
    return wrong(fmt::format("{} is left, not {}", to_string(state), to_string(target)));
  }
  return {.right = true};
}

}  // namespace banyan::search
