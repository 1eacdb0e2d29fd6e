#include "banyan/code/problems.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <zlib.h>

#include "banyan/read_file.hpp"
#include "banyan/tokenizer.hpp"
#include "json_text.hpp"

namespace banyan::code {

namespace {

namespace fs = std::filesystem;
using Kind = JsonText::Kind;

Error missing_key(const std::string& where, const char* key, const char* what) {
  return Error(ErrorCode::bad_file, where, fmt::format("\"{}\" {}", key, what));
}

// Whole content, unpacked where it is gzipped.
std::string read_maybe_gzipped(const std::string& path) {
  const gzFile file = gzopen(path.c_str(), "rb");
  if (!file) throw Error(ErrorCode::bad_file, path, "cannot be opened");
  std::string content;
  char buffer[1 << 16];
  int n = 0;
  while ((n = gzread(file, buffer, sizeof buffer)) > 0) content.append(buffer, static_cast<std::size_t>(n));
  int error = Z_OK;
  const std::string message = gzerror(file, &error);
  gzclose(file);
  if (n < 0 || error != Z_OK)
    throw Error(ErrorCode::bad_file, path,
                fmt::format("cannot be unpacked after {} bytes: {}", content.size(), message));
  return content;
}

std::optional<std::string> read_if_there(const fs::path& path) {
  if (!fs::exists(path)) return std::nullopt;
  return read_file(path.string());
}

const JsonText& string_member(const JsonText& object, const char* key, const std::string& where) {
  const JsonText* value = object.find(key);
  if (!value) throw missing_key(where, key, "is missing");
  if (!value->is(Kind::string)) throw missing_key(where, key, "is not a string");
  return *value;
}

const JsonText& array_member(const JsonText& object, const char* key, const std::string& where) {
  const JsonText* value = object.find(key);
  if (!value) throw missing_key(where, key, "is missing");
  if (!value->is(Kind::array)) throw missing_key(where, key, "is not a list");
  return *value;
}

// A text of stdin or stdout: a string, or a list of lines.
std::string text_of(const JsonText& value, const char* key, const std::string& where) {
  if (value.is(Kind::string)) return value.text;
  if (!value.is(Kind::array)) throw missing_key(where, key, "holds something that is neither text nor a list of lines");
  std::string text;
  for (const JsonText& line : value.items) {
    if (!line.is(Kind::string) && !line.is(Kind::number))
      throw missing_key(where, key, "holds a list with something that is no line of text");
    text += line.text + "\n";
  }
  return text;
}

// Files that people wrote on Windows have CR LF; tests in JSON have not.
std::string with_unix_lines(std::string text) {
  std::erase(text, '\r');
  return text;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

bool stands_as_lines(const std::string& question, std::string_view text) {
  text = trimmed(text);
  return !text.empty() && question.find(fmt::format("\n{}\n", text)) != std::string::npos;
}

std::vector<std::size_t> find_public_tests(const CodeProblem& problem) {
  std::vector<std::size_t> found;
  const std::string question = fmt::format("\n{}\n", problem.question);
  for (std::size_t i = 0; i < problem.tests.size(); ++i)
    if (stands_as_lines(question, problem.tests[i].input) && stands_as_lines(question, problem.tests[i].expected))
      found.push_back(i);
  if (found.empty() && !problem.tests.empty()) found.push_back(0);
  return found;
}

// input_output.json; without the file the problem has no tests.
void read_tests(const fs::path& folder, bool with_tests, CodeProblem& problem) {
  const std::string where = (folder / "input_output.json").string();
  const auto content = read_if_there(where);
  if (!content || trimmed(*content).empty()) return;
  const JsonText object = parse_json(*content, where);
  if (!object.is(Kind::object)) throw Error(ErrorCode::bad_file, where, "is not a JSON object");
  if (const JsonText* name = object.find("fn_name"); name && !name->is(Kind::null)) {
    problem.entry_point = string_member(object, "fn_name", where).text;
    problem.kind = ProblemKind::call_based;
  }
  const JsonText& inputs = array_member(object, "inputs", where);
  const JsonText& outputs = array_member(object, "outputs", where);
  if (inputs.items.size() != outputs.items.size())
    throw Error(ErrorCode::bad_file, where,
                fmt::format("\"inputs\" has {} entries and \"outputs\" {}", inputs.items.size(), outputs.items.size()));
  if (!with_tests) return;
  const auto raw = [&](const JsonText& value) { return content->substr(value.begin, value.end - value.begin); };
  for (std::size_t i = 0; i < inputs.items.size(); ++i) {
    const JsonText &input = inputs.items[i], &output = outputs.items[i];
    if (problem.kind == ProblemKind::standard_input) {
      problem.tests.push_back({text_of(input, "inputs", where), text_of(output, "outputs", where)});
    } else {
      if (!input.is(Kind::array)) throw missing_key(where, "inputs", "holds something that is no list of arguments");
      problem.tests.push_back({raw(input), raw(output)});
    }
  }
}

void read_metadata(const fs::path& folder, CodeProblem& problem) {
  const std::string where = (folder / "metadata.json").string();
  const auto content = read_if_there(where);
  if (!content) return;
  const JsonText object = parse_json(*content, where);
  if (const JsonText* value = object.find("difficulty"); value && !value->is(Kind::null))
    problem.difficulty = string_member(object, "difficulty", where).text;
  if (!object.find("public_tests")) return;
  for (const JsonText& index : array_member(object, "public_tests", where).items) {
    std::size_t i = 0;
    const auto [end, error] = std::from_chars(index.text.data(), index.text.data() + index.text.size(), i);
    if (!index.is(Kind::number) || error != std::errc() || end != index.text.data() + index.text.size())
      throw missing_key(where, "public_tests", "is not a list of indices of tests");
    problem.public_tests.push_back(i);
  }
}

void read_solutions(const fs::path& folder, CodeProblem& problem) {
  const std::string where = (folder / "solutions.json").string();
  const auto content = read_if_there(where);
  if (!content || trimmed(*content).empty()) return;
  const JsonText list = parse_json(*content, where);
  for (const JsonText& solution : list.items) {
    if (!list.is(Kind::array) || !solution.is(Kind::string))
      throw Error(ErrorCode::bad_file, where, "is not a list of programs");
    problem.solutions.push_back(solution.text);
  }
}

CodeProblem read_apps_problem(const fs::path& folder, const LoadOptions& options) {
  CodeProblem problem;
  problem.where = folder.string();
  problem.task_id = folder.filename().string();
  const auto question = read_if_there(folder / "question.txt");
  if (!question) throw Error(ErrorCode::bad_file, problem.where, "\"question.txt\" is missing or cannot be read");
  problem.question = sanitize_utf8(with_unix_lines(*question));
  if (trimmed(problem.question).empty())
    throw Error(ErrorCode::bad_file, (folder / "question.txt").string(), "is empty");
  problem.starter_code = sanitize_utf8(with_unix_lines(read_if_there(folder / "starter_code.py").value_or("")));
  read_metadata(folder, problem);
  read_tests(folder, options.with_tests, problem);
  if (options.with_solutions) read_solutions(folder, problem);
  if (!options.with_tests) {
    problem.public_tests.clear();
    return problem;
  }
  for (std::size_t index : problem.public_tests)
    if (index >= problem.tests.size())
      throw Error(ErrorCode::bad_file, (folder / "metadata.json").string(),
                  fmt::format("\"public_tests\" names test {} of {}", index, problem.tests.size()));
  if (problem.public_tests.empty()) problem.public_tests = find_public_tests(problem);
  return problem;
}

// The problem folders of an APPS directory, in the order of their numbers.
std::vector<fs::path> problem_folders(const fs::path& directory) {
  if (fs::exists(directory / "question.txt")) {
    // So that "." has a name.
    const fs::path folder = fs::weakly_canonical(directory);
    return {folder};
  }
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    const bool numbered = name.find_first_not_of("0123456789") == std::string::npos;
    if (entry.is_directory() && (numbered || fs::exists(entry.path() / "question.txt")))
      folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end(), [](const fs::path& a, const fs::path& b) {
    const std::string x = a.filename(), y = b.filename();
    const bool numbers = x.find_first_not_of("0123456789") == std::string::npos &&
                         y.find_first_not_of("0123456789") == std::string::npos;
    return numbers && x.size() != y.size() ? x.size() < y.size() : x < y;
  });
  return folders;
}

CodeProblem read_humaneval_line(std::string_view line, const std::string& where, const LoadOptions& options) {
  const JsonText object = parse_json(line, where);
  if (!object.is(Kind::object)) throw Error(ErrorCode::bad_file, where, "is not a JSON object");
  CodeProblem problem;
  problem.kind = ProblemKind::humaneval;
  problem.where = where;
  problem.task_id = string_member(object, "task_id", where).text;
  problem.question = string_member(object, "prompt", where).text;
  problem.entry_point = string_member(object, "entry_point", where).text;
  problem.test_source = string_member(object, "test", where).text;
  if (options.with_solutions && object.find("canonical_solution"))
    problem.solutions.push_back(string_member(object, "canonical_solution", where).text);
  return problem;
}

// Takes problems one by one: filters, refuses a task_id seen before, counts.
class Collector {
 public:
  Collector(const LoadOptions& options, ProblemSet& set) : options_(options), set_(set) {}

  bool full() const { return options_.limit >= 0 && static_cast<std::int64_t>(set_.problems.size()) >= options_.limit; }
  bool seen_any() const { return seen_any_; }

  void take(const auto& read) {
    try {
      CodeProblem problem = read();
      seen_any_ = true;
      if (!options_.difficulty.empty() && problem.difficulty != options_.difficulty) return;
      if (!ids_.insert(problem.task_id).second)
        throw Error(ErrorCode::bad_file, problem.where,
                    fmt::format("\"task_id\" {} was there before", problem.task_id));
      set_.problems.push_back(std::move(problem));
    } catch (const Error& error) {
      set_.errors.push_back(error);
    }
  }

 private:
  const LoadOptions& options_;
  ProblemSet& set_;
  std::set<std::string> ids_;
  bool seen_any_ = false;
};

}  // namespace

std::string_view to_string(ProblemKind kind) {
  switch (kind) {
    case ProblemKind::standard_input: return "stdin";
    case ProblemKind::call_based: return "call";
    case ProblemKind::humaneval: return "humaneval";
  }
  return "";
}

ProblemSet load_problems(const std::string& path, const LoadOptions& options) {
  ProblemSet set;
  Collector collector(options, set);
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    for (const fs::path& folder : problem_folders(path)) {
      if (collector.full()) break;
      collector.take([&] { return read_apps_problem(folder, options); });
    }
    if (!collector.seen_any() && set.errors.empty())
      throw Error(ErrorCode::bad_file, path, "holds no numbered folder with a question.txt (APPS), and is no file");
  } else {
    const std::string content = read_maybe_gzipped(path);
    std::int64_t n_lines = 0;
    for (std::size_t begin = 0; begin < content.size() && !collector.full();) {
      const std::size_t end = std::min(content.find('\n', begin), content.size());
      const std::string_view line = trimmed(std::string_view(content).substr(begin, end - begin));
      begin = end + 1;
      ++n_lines;
      if (line.empty()) continue;
      collector.take([&] { return read_humaneval_line(line, fmt::format("{}:{}", path, n_lines), options); });
    }
    if (!collector.seen_any() && set.errors.empty()) throw Error(ErrorCode::bad_file, path, "is empty");
  }
  if (!collector.seen_any() && options.limit != 0)
    throw Error(ErrorCode::bad_file, set.errors.front().where(),
                fmt::format("{} (and no other problem of {} can be read)", set.errors.front().what(), path));
  if (set.problems.empty() && !options.difficulty.empty())
    throw Error(ErrorCode::usage, path, fmt::format("no problem has the difficulty \"{}\"", options.difficulty));
  return set;
}

}  // namespace banyan::code
