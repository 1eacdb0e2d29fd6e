// Programming tasks: what a problem is, and how APPS directories and HumanEval files are read. Layer 8: knows no model,
// no prompt layout, no sandbox.
//
// Numbers in tests never pass through a floating-point or 64-bit type: inputs and expected results are kept as text, so
// an integer of 5,000 digits arrives as it was written. Read-only after loading.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "banyan/error.hpp"

namespace banyan::code {

enum class ProblemKind : std::uint8_t {
  standard_input,  // a script from stdin to stdout
  call_based,      // a function (or a method of class Solution) named entry_point
  humaneval,       // the rest of a function, checked by test_source
};

// "stdin", "call", "humaneval"
std::string_view to_string(ProblemKind kind);

struct TestCase {
  std::string input;     // standard_input: the text of stdin; call_based: a JSON list of arguments
  std::string expected;  // standard_input: the text of stdout; call_based: the JSON result, perhaps in a list of one
};

struct CodeProblem {
  std::string task_id;  // APPS: name of the folder
  ProblemKind kind = ProblemKind::standard_input;
  std::string question;      // humaneval: the prompt
  std::string starter_code;  // "" if there is none
  std::string difficulty;    // "introductory", "interview", "competition", …; "" if not told
  std::string entry_point;   // call_based, humaneval
  std::string test_source;   // humaneval
  std::vector<TestCase> tests;
  // Indices into `tests` of those that a search may see. In this order of preference: the list "public_tests" of
  // metadata.json; the tests whose input and output both stand as whole lines in the question; the first test.
  std::vector<std::size_t> public_tests;
  std::vector<std::string> solutions;
  std::string where;  // the folder, or file:line
};

struct LoadOptions {
  std::string difficulty{};  // only these problems; "" for all
  std::int64_t limit = -1;   // the first so many of them; -1 for all
  bool with_tests = true;    // generation does without
  bool with_solutions = false;
};

struct ProblemSet {
  std::vector<CodeProblem> problems;  // APPS: by folder name; HumanEval: as in the file
  std::vector<Error> errors;          // one for each problem that could not be read: names file and key
};

// `path` is an APPS directory (or one problem folder of it), or a HumanEval JSON Lines file, plain or gzipped;
// recognised by content. Problems that cannot be read are reported in `errors` and the others are loaded. Throws
// Error{bad_file} when the path cannot be read at all or holds no problem, Error{usage} when no problem has the
// difficulty.
ProblemSet load_problems(const std::string& path, const LoadOptions& options = {});

}  // namespace banyan::code
