// The game of 24: rules and verifiers.
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>

#include "banyan/error.hpp"
#include "banyan/search/tasks/game24.hpp"
#include "banyan/search/tasks/game24_problem.hpp"

using namespace banyan;
using namespace banyan::search;

namespace {

const std::string kData = std::string(BANYAN_SHARED_DIR) + "/data/game24/";

Rational fraction(std::int64_t n, std::int64_t d) { return *Rational::make(n, d); }

bool right(const char* numbers, std::string_view text) {
  const Verdict verdict = check_expression(parse_numbers(numbers), 24, text);
  CHECK(verdict.right == verdict.reason.empty());
  return verdict.right;
}

}  // namespace

TEST_CASE("rationals are in lowest terms, and have no result where it does not fit") {
  CHECK(fraction(6, -4) == fraction(-3, 2));
  CHECK(to_string(fraction(6, -4)) == "-3/2");
  CHECK(fraction(1, 3) < fraction(1, 2));
  CHECK(apply('-', fraction(8, 3), fraction(8, 3)) == Rational(0));
  CHECK(apply('/', 8, fraction(1, 3)) == Rational(24));
  CHECK_FALSE(apply('/', 1, 0));
  const std::int64_t big = std::int64_t{1} << 62;
  CHECK_FALSE(apply('*', big, 4));
  CHECK_FALSE(apply('+', big, big));
  CHECK(apply('/', big, big) == Rational(1));
  CHECK(parse_rational("3.25") == fraction(13, 4));
  CHECK(parse_rational("-8/3") == fraction(-8, 3));
  for (const char* text : {"", "-", "+1", "1/0", "1/", "/2", "1.", ".5", "1.5.2", "1 ", "0x1", "9223372036854775808",
                           "1.0000000000000000001"}) {
    INFO(text);
    CHECK_FALSE(parse_rational(text));
  }
}

TEST_CASE("BL-42: fractions are exact, and no text breaks the checker") {
  CHECK(right("3 3 8 8", "8/(3-8/3)"));
  CHECK(right("3 3 8 8", "8/(3-8/3) = 24"));
  CHECK(right("3 3 8 8", "8 \u00F7 (3 \u2212 8 \u00F7 3)"));
  CHECK(right("1 4 6 1", "line\nAnswer: (6 \u00D7 4) \u00D7 1 \u00D7 1 = 24\n"));
  CHECK_FALSE(right("3 3 8 8", "8*3"));
  CHECK_FALSE(right("1 1 1 1", "1/(1-1)"));
  CHECK_FALSE(right("3 3 8 8", "8/(3-8/3"));
  CHECK_FALSE(right("3 3 8 8", "(3+3)*(8-8)+24"));
  CHECK_FALSE(right("3 3 8 8", std::string(5000, '(') + "8" + std::string(5000, ')')));
  CHECK_FALSE(right("3 3 8 8", std::string(100000, '-') + "8"));
  CHECK_FALSE(right("3 3 8 8", ""));
  CHECK_FALSE(right("3 3 8 8", "= 24"));
  CHECK_FALSE(right("9 9 9 9", "9999999999*9999999999"));
  CHECK(check_expression(parse_numbers("1 1 1 1"), 24, "1/(1-1)").reason == "divides by zero");
  CHECK(check_expression(parse_numbers("3 8"), 24, "8*8").reason == "uses 8 8, not 3 8");
}

TEST_CASE("steps are checked one by one") {
  const Numbers hand = parse_numbers("7 1 7 2");
  CHECK(check_steps(hand, 24, " 7 * 7 = 49 left 1 2 49\n 49 - 1 = 48 left 2 48\n 48 / 2 = 24\n").right);
  CHECK(check_steps(hand, 24, "7 * 7 = 49 (left: 1 2 49)\n49 - 1 = 48 (left: 2 48)\n48 / 2 = 24 (left: 24)").right);
  CHECK(check_steps(parse_numbers("3 3 8 8"), 24, "8 / 3 = 8/3\n3 - 8/3 = 1/3\n8 / 1/3 = 24").right);
  const auto reason = [&](std::string_view text) { return check_steps(hand, 24, text).reason; };
  CHECK(reason("7 * 7 = 48") == "line 1: \"7 * 7 = 48\": the result is 49");
  CHECK(reason("7 * 7 = 49 left 1 2 48") == "line 1: \"7 * 7 = 49 left 1 2 48\": 1 2 49 is left");
  CHECK(reason("7 * 7 = 49\n7 - 1 = 6") == "line 2: \"7 - 1 = 6\" uses what is not among 1 2 49");
  CHECK(reason("7 * 7 = 49") == "1 2 49 is left, not 24");
  CHECK(reason("") == "1 2 7 7 is left, not 24");
  CHECK(reason("7 / 0 = 0") == "line 1: \"7 / 0 = 0\" has no result");
  for (const char* text : {"7 * 7", "7 ** 7 = 49", "7 * 7 = 49 left", "7 * 7 = 49 left over", "left 1", "7 7 = 14"}) {
    INFO(text);
    CHECK_FALSE(check_steps(hand, 24, text).right);
  }
}

TEST_CASE("moves: each set of numbers that can be left comes once, and lines of them read back") {
  const Numbers hand = parse_numbers("2 2 4");
  std::vector<std::string> lines;
  for (const Move& move : legal_moves(hand)) lines.push_back(to_string(move));
  CHECK(lines == std::vector<std::string>{"2 + 2 = 4", "2 - 2 = 0", "2 / 2 = 1", "2 + 4 = 6", "4 - 2 = 2", "2 * 4 = 8",
                                          "2 / 4 = 1/2"});
  std::mt19937 random(24);
  std::uniform_int_distribution<int> number(0, 13);
  for (int i = 0; i < 200; ++i) {
    Numbers numbers{number(random), number(random), number(random), fraction(number(random), 3)};
    std::ranges::sort(numbers);
    std::set<Numbers> children;
    for (const Move& move : legal_moves(numbers)) {
      CHECK(move.result >= Rational(0));
      const auto child = after(numbers, move);
      REQUIRE(child);
      CHECK(children.insert(*child).second);
      Numbers left;
      CHECK(read_step(" " + to_string(move) + " left " + to_string(*child), numbers, left).right);
      CHECK(left == *child);
    }
  }
}

TEST_CASE("a problem of the game: prompts, proposals, values, answers") {
  const Game24Problem problem("game24/1", parse_numbers("7 1 7 2"));
  CHECK(problem.prompt().own == "1 2 7 7 to 24 solve\n");
  CHECK(problem.propose_prompt("").own == "1 2 7 7 moves\n");
  const std::string first = " 7 * 7 = 49 left 1 2 49\n", second = " 49 - 1 = 48 left 2 48\n", third = " 48 / 2 = 24\n";
  CHECK(problem.propose_prompt(first).own == "1 2 49 moves\n");
  CHECK(problem.value_prompt(first + second).own == "2 48 to 24 value");
  CHECK(problem.parse_proposals(first, " 1 + 2 = 3\n 49 - 1 = 48\n 49 - 1 = 47\n 9 - 1 = 8\nx\n\n 2 - 1 =") ==
        std::vector<std::string>{" 1 + 2 = 3 left 3 49\n", second});
  CHECK(problem.parse_proposals(first + second, " 48 / 2 = 24\n") == std::vector{third});
  const auto by_rule = problem.next_steps(first + second);
  CHECK(std::ranges::find(by_rule, third) != by_rule.end());
  CHECK(by_rule.size() == 5);
  CHECK(problem.next_steps(" 7 * 7 = 48\n").empty());

  CHECK_FALSE(problem.known_value(first));
  CHECK(problem.known_value(first + second + third) == 1.0);
  CHECK(problem.known_value(first + second + " 48 * 2 = 96\n") == 0.0);
  CHECK(problem.known_value(" 7 * 7 = 48\n") == 0.0);
  CHECK(problem.parse_value(first, " sure") == 1.0);
  CHECK(problem.parse_value(first, " impossible") == 0.0);

  CHECK_FALSE(problem.finished(first, FinishReason::stop));
  CHECK(problem.finished(first, FinishReason::eos));
  CHECK_FALSE(problem.finished(first + " 49 -", FinishReason::stop));
  CHECK_FALSE(problem.finished(" 7", FinishReason::length));
  CHECK(problem.finished(first + second + third, FinishReason::stop));
  CHECK(problem.finished(" 7 * 7 = 48\n", FinishReason::stop));
  CHECK(problem.verify(first + second + third) == 1.0);
  CHECK(problem.verify(first + second) == 0.0);
  CHECK(problem.answer(first + second + third) == "(((7 * 7) - 1) / 2)");
  CHECK_FALSE(problem.answer(first));
  CHECK(problem.answer(first + " 49 - 1 = 47 left 2 47\n 47 / 2 = 24\n") == "(((7 * 7) - 1) / 2)");
  CHECK_FALSE(problem.answer(first + " 48 - 1 = 47 left 2 47\n 47 / 2 = 24\n"));
  const Game24Problem sum("sum", parse_numbers("1 2 3"), 6);
  CHECK(sum.answer(" 1 + 2 = 3 left 3 3\n 3 + 3 = 6\n") == sum.answer(" 2 + 1 = 3 left 3 3\n 3 + 3 = 6\n"));
  CHECK_THROWS_AS(problem.value_prompt(" 7 * 7 = 48\n"), Error);
  CHECK_THROWS_AS(Game24Problem("none", {}), Error);
}

TEST_CASE("countdown problems: the same for a seed, and each has a solution") {
  const auto problems = make_countdown(5, 3, 24);
  REQUIRE(problems.size() == 3);
  for (const auto& [numbers, target] : problems) {
    CHECK(numbers.size() == 5);
    CHECK(target >= Rational(100));
    CHECK(target <= Rational(999));
    CHECK(solvable(numbers, target));
  }
  CHECK(make_countdown(5, 2, 24)[1].numbers == problems[1].numbers);
  CHECK(make_countdown(5, 1, 25)[0].numbers != problems[0].numbers);
  CHECK_THROWS_AS(make_countdown(1, 1, 0), Error);
}

TEST_CASE("1,362 of the 1,820 hands from 1 to 13 can make 24, and they are the published puzzles") {
  std::set<Numbers> found;
  for (int a = 1; a <= 13; ++a) {
    for (int b = a; b <= 13; ++b) {
      for (int c = b; c <= 13; ++c) {
        for (int d = c; d <= 13; ++d) {
          if (const Numbers hand{a, b, c, d}; solvable(hand, 24)) found.insert(hand);
        }
      }
    }
  }
  CHECK(found.size() == 1362);
  if (!std::filesystem::exists(kData + "24.csv")) {
    MESSAGE("skipped: no published puzzles");
    return;
  }
  const auto puzzles = read_game24_csv(kData + "24.csv");
  CHECK(puzzles.size() == 1362);
  CHECK(to_string(puzzles[900]) == "4 5 6 10");
  const std::set<Numbers> published(puzzles.begin(), puzzles.end());
  CHECK(found == published);
}

TEST_CASE("the published run's 500 verdicts") {
  const std::string path = kData + "game24_bfs_propose1_value3_greedy5.json";
  if (!std::filesystem::exists(path)) {
    MESSAGE("skipped: no published run");
    return;
  }
  std::ifstream file(path);
  const auto log = nlohmann::json::parse(file);
  int n_checked = 0, n_agree = 0;
  for (const auto& puzzle : log) {
    const Numbers hand = parse_numbers(puzzle["steps"][0]["x"].get<std::string>());
    for (std::size_t i = 0; i < puzzle["ys"].size(); ++i, ++n_checked) {
      const bool said = puzzle["infos"][i]["r"] == 1;
      n_agree += check_expression(hand, 24, puzzle["ys"][i].get<std::string>()).right == said;
    }
  }
  CHECK(n_checked == 500);
  CHECK(n_agree == 500);
}
