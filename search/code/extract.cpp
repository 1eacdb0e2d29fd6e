#include "banyan/code/extract.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <vector>

#include "banyan/error.hpp"

namespace banyan::code {

namespace {

struct Fence {
  std::size_t begin = 0, end = 0;  // of its line, without the line end
  std::string_view mark;           // what stands after the backticks
};

// Lines that begin with ```, perhaps indented.
std::vector<Fence> find_fences(std::string_view text) {
  std::vector<Fence> fences;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.starts_with("```")) {
      line.remove_prefix(3);
      fences.push_back({begin, end, line.substr(0, line.find_last_not_of(" \t\r") + 1)});
    }
    begin = end + 1;
  }
  return fences;
}

bool is_python_mark(std::string_view mark) {
  return mark.empty() || mark == "python" || mark == "python3" || mark == "py" || mark == "Python";
}

std::optional<std::string> fenced_program(std::string_view text) {
  const std::vector<Fence> fences = find_fences(text);
  if (fences.empty()) return std::nullopt;
  // A lone bare fence closes a block that the prompt opened.
  if (fences.size() == 1 && fences[0].mark.empty() &&
      text.substr(0, fences[0].begin).find_first_not_of(" \t\r\n") != std::string_view::npos)
    return std::string(text.substr(0, fences[0].begin));
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < fences.size(); i += 2)
    if (is_python_mark(fences[i].mark)) {
      chosen = i;
      break;
    }
  const std::size_t begin = std::min(fences[chosen].end + 1, text.size());
  const std::size_t end = chosen + 1 < fences.size() ? fences[chosen + 1].begin : text.size();
  return std::string(text.substr(begin, end - begin));
}

// A script whose first line is indented cannot run. Takes that indentation from every line where all lines have it,
// else from the first alone (a model that goes on after "ANSWER:" writes a space first).
std::string without_indentation(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return std::string(text);
  const std::size_t newline = text.rfind('\n', first);
  const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
  const std::string indentation(text.substr(line_begin, first - line_begin));
  const std::string_view body = text.substr(line_begin);
  if (indentation.empty()) return std::string(body);

  std::string all;
  for (std::size_t begin = 0; begin < body.size();) {
    const std::size_t end = std::min(body.find('\n', begin), body.size());
    std::string_view line = body.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with(indentation))
      line.remove_prefix(indentation.size());
    else if (line.find_first_not_of(" \t\r") != std::string_view::npos)
      return std::string(text.substr(first));
    all += line;
    if (end < body.size()) all += '\n';
  }
  return all;
}

}  // namespace

ExtractMode extract_mode(const std::string& name) {
  if (name == "auto") return ExtractMode::automatic;
  if (name == "raw") return ExtractMode::raw;
  if (name == "fence") return ExtractMode::fence;
  throw Error(ErrorCode::usage, "--extract", fmt::format("\"{}\" is none of auto, raw, fence", name));
}

std::string extract_program(std::string_view text, ExtractMode mode, ProblemKind kind) {
  if (mode == ExtractMode::raw) return std::string(text);
  const std::optional<std::string> block = fenced_program(text);
  if (mode == ExtractMode::fence) return block.value_or("");
  const std::string program = block ? *block : std::string(text);
  // The rest of a HumanEval function is indented by right.
  return kind == ProblemKind::humaneval ? program : without_indentation(program);
}

}  // namespace banyan::code
