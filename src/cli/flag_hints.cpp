#include "cli/flag_hints.hpp"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <vector>

#include "banyan/error.hpp"
#include "cli/config.hpp"

namespace banyan::cli {
namespace {

constexpr std::size_t kMostHints = 3;

// "--Max_Tokens=3" -> "max-tokens"
std::string bare_name(std::string_view typed) {
  typed = typed.substr(0, typed.find('='));
  typed.remove_prefix(std::min(typed.find_first_not_of('-'), typed.size()));
  std::string name(typed);
  for (char& c : name) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

// Letters to insert, delete or replace (Levenshtein).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // distances of a's first i letters to b's first j
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

// "tokens" is a part of "max-tokens", "temp" begins "temperature", and "out" begins "output".
bool is_part(const std::string& typed, const std::string& name) {
  return name.starts_with(typed) || fmt::format("-{}-", name).find(fmt::format("-{}-", typed)) != std::string::npos ||
         (name.size() > 2 && typed.starts_with(name));
}

std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent()) {
    for (const CLI::Option* option : at->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back(name);
    }
  }
  return names;
}

}  // namespace

std::string flag_hint(const CLI::App& app, std::string_view typed) {
  const std::string name = bare_name(typed);
  std::vector<std::string> near;
  std::size_t least = name.size() / 3;
  for (const std::string& known : names_of(app)) {
    const std::size_t distance = edit_distance(name, known);
    if (distance > least) continue;
    if (distance < least) near.clear();
    least = distance;
    near.push_back("--" + known);
  }
  if (near.empty() && !name.empty()) {
    for (const std::string& known : names_of(app)) {
      if (is_part(name, known)) near.push_back("--" + known);
    }
  }
  if (near.empty()) return "";
  near.resize(std::min(near.size(), kMostHints));
  return fmt::format("; did you mean {}?", fmt::join(near, " or "));
}

void refuse_unknown_flag(const CLI::App& root) {
  const CLI::App& app = called(root);
  for (const std::string& word : root.remaining(/*recurse=*/true)) {
    if (!word.starts_with('-') || bare_name(word).empty()) continue;
    throw Error(ErrorCode::usage, word.substr(0, word.find('=')),
                fmt::format("no flag of {}{}", app.get_name(), flag_hint(app, word)));
  }
}

}  // namespace banyan::cli
