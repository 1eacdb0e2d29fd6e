// Prompts for programming tasks. Layer 8: text only; knows no tokens and no model. Pure functions.
//
// A prompt comes in two pieces, for a tree of two levels: the root text (few-shot examples), the same for every
// problem, whose tokens and KV all problems share; and the problem's own text below it. Their concatenation is the
// whole prompt.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "banyan/code/problems.hpp"

namespace banyan::code {

enum class PromptStyle : std::uint8_t {
  apps,       // the published layout: QUESTION, starter code, input format, ANSWER
  humaneval,  // the prompt of the problem as it is; few-shot examples in front, as code
  chat,       // a conversation: each example a question and an answer, in the model's template
};

// "apps", "humaneval", "chat". Throws Error{usage} that lists them.
PromptStyle prompt_style(const std::string& name);

struct FewShot {
  std::string question;
  std::string starter_code;
  std::string answer;
  ProblemKind kind = ProblemKind::standard_input;
};

// A JSON list of {"question", "answer", "starter_code" (optional), "kind": "stdin" | "call" (optional)}, or the form of
// the BigCode harness: {"problem_type1", "solution_type1", …}, type 1 with standard input and type 2 call-based. Throws
// Error{bad_file} that names file and key.
std::vector<FewShot> load_few_shot(const std::string& path);

struct PromptText {
  std::string root;  // "" without examples, except for chat, whose template may begin with text of its own
  // White space at its end is stripped: a small model that has to continue after it writes nothing.
  std::string problem;
};

// `chat_template`: name of the model's template (see chat_template_name), for PromptStyle::chat only; there the mark
// that opens the answer stays as the template has it.
PromptText make_prompt(PromptStyle style, std::span<const FewShot> examples, const CodeProblem& problem,
                       const std::string& chat_template = "");

// Where the text of a sample ends: each is cut away with what follows. Chat answers end with the model's end of text.
std::vector<std::string> stop_strings(PromptStyle style);

}  // namespace banyan::code
