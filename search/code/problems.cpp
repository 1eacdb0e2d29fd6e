#include "banyan/code/problems.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <set>

#include "banyan/mapped_file.hpp"
#include "banyan/read_file.hpp"
#include "banyan/tokenizer.hpp"
#include "json_text.hpp"
#include "line_reader.hpp"

namespace banyan::code {

namespace {

namespace fs = std::filesystem;
using Kind = JsonText::Kind;

// What a file can have at most, so that one which is refused costs no memory beyond that.
constexpr std::uintmax_t kMostTextBytes = std::uintmax_t{4} << 20;  // question, starter code, metadata
constexpr std::uintmax_t kMostTestBytes = std::uintmax_t{1} << 30;  // tests and programs, which are mapped
constexpr std::int64_t kMostFileBytes = std::int64_t{32} << 20;     // a file of problems, unpacked; HumanEval has 0.2
constexpr std::size_t kMostNameBytes = 256;

Error key_error(const std::string& where, const char* key, const std::string& what) {
  return Error(ErrorCode::bad_file, where, fmt::format("\"{}\" {}", key, what));
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

// The size of a part of a problem's folder; nothing where it is absent. What is no file, a device or a pipe, is refused
// before it is opened.
std::optional<std::uintmax_t> size_of_part(const fs::path& path, std::uintmax_t most_bytes) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return std::nullopt;
  const std::uintmax_t size = fs::is_regular_file(status) ? fs::file_size(path, error) : 0;
  if (error) throw Error(ErrorCode::bad_file, path.string(), error.message());
  if (!fs::is_regular_file(status)) throw Error(ErrorCode::bad_file, path.string(), "is no regular file");
  if (size > most_bytes)
    throw Error(ErrorCode::bad_file, path.string(), fmt::format("has {} bytes, it can have {}", size, most_bytes));
  return size;
}

std::optional<std::string> read_text(const fs::path& path) {
  if (!size_of_part(path, kMostTextBytes)) return std::nullopt;
  return read_file(path.string());
}

// The JSON of a file of tests or programs, which may be large. No root where the file is absent or blank.
struct MappedJson {
  explicit MappedJson(const fs::path& path) : where(path.string()) {
    if (size_of_part(path, kMostTestBytes).value_or(0) == 0) return;
    file.emplace(where);
    const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
    if (!trimmed(text).empty()) root = parse_json(text, where);
  }

  std::string where;
  std::optional<MappedFile> file;
  std::optional<JsonText> root;
};

JsonText member(const JsonText& object, const char* key, const std::string& where) {
  const std::optional<JsonText> value = object.find(key);
  if (!value) throw key_error(where, key, "is missing");
  return *value;
}

std::string string_member(const JsonText& object, const char* key, const std::string& where) {
  const JsonText value = member(object, key, where);
  if (!value.is(Kind::string)) throw key_error(where, key, "is not a string");
  return value.text();
}

JsonText array_member(const JsonText& object, const char* key, const std::string& where) {
  const JsonText value = member(object, key, where);
  if (!value.is(Kind::array)) throw key_error(where, key, "is not a list");
  return value;
}

// The name of a function, which becomes an argument of a command and a part of a program.
std::string name_member(const JsonText& object, const char* key, const std::string& where) {
  const std::string name = string_member(object, key, where);
  const bool good = !name.empty() && name.size() <= kMostNameBytes && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c >= 0x80;
  });
  if (!good) throw key_error(where, key, fmt::format("is \"{}\", which is no name", shown(name)));
  return name;
}

// Whether a value is a text of stdin or stdout: a string, or a list of lines.
void check_text(const JsonText& value, const char* key, const std::string& where) {
  if (value.is(Kind::string)) return;
  if (!value.is(Kind::array)) throw key_error(where, key, "holds something that is neither text nor a list of lines");
  for (JsonItems line(value); line.next();) {
    if (!line.value().is(Kind::string) && !line.value().is(Kind::number))
      throw key_error(where, key, "holds a list with something that is no line of text");
  }
}

std::string text_of(const JsonText& value) {
  if (value.is(Kind::string)) return value.text();
  std::string text;
  for (JsonItems line(value); line.next();) text += line.value().text() + "\n";
  return text;
}

bool stands_as_lines(const std::string& question, std::string_view text) {
  text = trimmed(text);
  return !text.empty() && text.size() < question.size() &&
         question.find(fmt::format("\n{}\n", text)) != std::string::npos;
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

struct TestLists {
  JsonText inputs, outputs;
  std::size_t n_tests = 0;
};

TestLists check_tests(const JsonText& root, bool calls, const std::string& where) {
  TestLists lists{array_member(root, "inputs", where), array_member(root, "outputs", where)};
  for (JsonItems input(lists.inputs); input.next(); ++lists.n_tests) {
    if (!calls) check_text(input.value(), "inputs", where);
    if (calls && !input.value().is(Kind::array))
      throw key_error(where, "inputs", "holds something that is no list of arguments");
  }
  std::size_t n_outputs = 0;
  for (JsonItems output(lists.outputs); output.next(); ++n_outputs)
    if (!calls) check_text(output.value(), "outputs", where);
  if (lists.n_tests != n_outputs)
    throw Error(ErrorCode::bad_file, where,
                fmt::format("\"inputs\" has {} entries and \"outputs\" {}", lists.n_tests, n_outputs));
  return lists;
}

// input_output.json; without the file the problem has no tests. All of it is checked before any of it is kept.
void read_tests(const fs::path& folder, bool with_tests, CodeProblem& problem) {
  const MappedJson json(folder / "input_output.json");
  TestLists lists;
  if (json.root) {
    const JsonText& root = *json.root;
    if (!root.is(Kind::object)) throw Error(ErrorCode::bad_file, json.where, "is not a JSON object");
    if (const auto name = root.find("fn_name"); name && !name->is(Kind::null)) {
      problem.entry_point = name_member(root, "fn_name", json.where);
      problem.kind = ProblemKind::call_based;
    }
    lists = check_tests(root, problem.kind == ProblemKind::call_based, json.where);
  }
  if (!with_tests) return;
  for (const std::size_t index : problem.public_tests)
    if (index >= lists.n_tests)
      throw Error(ErrorCode::bad_file, (folder / "metadata.json").string(),
                  fmt::format("\"public_tests\" names test {} of {}", index, lists.n_tests));
  const auto kept = [&](const JsonText& value) {
    return problem.kind == ProblemKind::call_based ? std::string(value.raw()) : text_of(value);
  };
  problem.tests.reserve(lists.n_tests);
  for (JsonItems input(lists.inputs), output(lists.outputs); input.next() && output.next();)
    problem.tests.push_back({kept(input.value()), kept(output.value())});
}

void read_metadata(const fs::path& folder, CodeProblem& problem) {
  const std::string where = (folder / "metadata.json").string();
  const auto content = read_text(where);
  if (!content) return;
  const JsonText object = parse_json(*content, where);
  if (const auto value = object.find("difficulty"); value && !value->is(Kind::null))
    problem.difficulty = sanitize_utf8(string_member(object, "difficulty", where));
  if (!object.find("public_tests")) return;
  const JsonText indices = array_member(object, "public_tests", where);
  for (JsonItems index(indices); index.next();) {
    std::size_t i = 0;
    const std::string_view digits = index.value().raw();
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), i);
    if (!index.value().is(Kind::number) || error != std::errc() || end != digits.data() + digits.size())
      throw key_error(where, "public_tests", "is not a list of indices of tests");
    problem.public_tests.push_back(i);
  }
}

void read_solutions(const fs::path& folder, CodeProblem& problem) {
  const MappedJson json(folder / "solutions.json");
  if (!json.root) return;
  bool good = json.root->is(Kind::array);
  for (JsonItems solution(*json.root); good && solution.next();) good = solution.value().is(Kind::string);
  if (!good) throw Error(ErrorCode::bad_file, json.where, "is not a list of programs");
  for (JsonItems solution(*json.root); solution.next();) problem.solutions.push_back(solution.value().text());
}

CodeProblem read_apps_problem(const fs::path& folder, const LoadOptions& options) {
  CodeProblem problem;
  problem.where = folder.string();
  problem.task_id = sanitize_utf8(folder.filename().string());
  const auto question = read_text(folder / "question.txt");
  if (!question) throw Error(ErrorCode::bad_file, problem.where, "\"question.txt\" is missing or cannot be read");
  problem.question = sanitize_utf8(with_unix_lines(*question));
  if (trimmed(problem.question).empty())
    throw Error(ErrorCode::bad_file, (folder / "question.txt").string(), "is empty");
  problem.starter_code = sanitize_utf8(with_unix_lines(read_text(folder / "starter_code.py").value_or("")));
  read_metadata(folder, problem);
  read_tests(folder, options.with_tests, problem);
  if (options.with_solutions) read_solutions(folder, problem);
  if (!options.with_tests) problem.public_tests.clear();
  if (problem.public_tests.empty()) problem.public_tests = find_public_tests(problem);
  return problem;
}

bool is_number(const std::string& name) { return name.find_first_not_of("0123456789") == std::string::npos; }

// The problem folders of an APPS directory, in the order of their numbers.
std::vector<fs::path> problem_folders(const fs::path& directory) {
  std::error_code ignored;
  if (fs::exists(directory / "question.txt", ignored)) {
    // So that "." has a name.
    const fs::path folder = fs::weakly_canonical(directory);
    return {folder};
  }
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const bool numbered = is_number(entry.path().filename().string());
    if (entry.is_directory(ignored) && (numbered || fs::exists(entry.path() / "question.txt", ignored)))
      folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end(), [](const fs::path& a, const fs::path& b) {
    const std::string x = a.filename(), y = b.filename();
    return is_number(x) && is_number(y) && x.size() != y.size() ? x.size() < y.size() : x < y;
  });
  return folders;
}

CodeProblem read_humaneval_line(std::string_view line, const std::string& where, const LoadOptions& options) {
  const JsonText object = parse_json(line, where);
  if (!object.is(Kind::object)) throw Error(ErrorCode::bad_file, where, "is not a JSON object");
  CodeProblem problem;
  problem.kind = ProblemKind::humaneval;
  problem.where = where;
  problem.task_id = sanitize_utf8(string_member(object, "task_id", where));
  problem.question = string_member(object, "prompt", where);
  problem.entry_point = name_member(object, "entry_point", where);
  problem.test_source = string_member(object, "test", where);
  if (options.with_solutions && object.find("canonical_solution"))
    problem.solutions.push_back(string_member(object, "canonical_solution", where));
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
                    fmt::format("\"task_id\" {} was there before", shown(problem.task_id)));
      set_.problems.push_back(std::move(problem));
    } catch (const Error& error) {
      if (++set_.n_errors <= static_cast<std::int64_t>(kMostErrors)) set_.errors.push_back(error);
    }
  }

 private:
  const LoadOptions& options_;
  ProblemSet& set_;
  std::set<std::string> ids_;
  bool seen_any_ = false;
};

void read_directory(const std::string& path, const LoadOptions& options, Collector& collector) {
  try {
    for (const fs::path& folder : problem_folders(path)) {
      if (collector.full()) break;
      collector.take([&] { return read_apps_problem(folder, options); });
    }
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorCode::bad_file, path, error.code().message());
  }
}

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
    read_directory(path, options, collector);
    if (!collector.seen_any() && set.errors.empty())
      throw Error(ErrorCode::bad_file, path, "holds no numbered folder with a question.txt (APPS), and is no file");
  } else {
    LineReader lines(path, LineReader::Form::perhaps_gzipped, kMostFileBytes);
    while (!collector.full() && lines.next()) {
      if (lines.is_blank()) continue;
      collector.take([&] { return read_humaneval_line(lines.line(), lines.where(), options); });
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
