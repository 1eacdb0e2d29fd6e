#include "banyan/code/prompts.hpp"

#include <fmt/format.h>

#include "banyan/error.hpp"
#include "banyan/read_file.hpp"
#include "banyan/tokenizer.hpp"
#include "json_text.hpp"

namespace banyan::code {

namespace {

using Kind = JsonText::Kind;

constexpr std::int64_t kMostFewShotBytes = std::int64_t{16} << 20;  // far beyond what a context holds

std::string right_stripped(std::string text) {
  text.erase(text.find_last_not_of(" \t\r\n\v\f") + 1);
  return text;
}

// The published layout up to and with the answer mark (Hendrycks et al., arXiv 2105.09938).
std::string apps_question(const std::string& question, const std::string& starter_code, ProblemKind kind) {
  std::string text = "\nQUESTION:\n" + question;
  if (!starter_code.empty()) text += "\n" + starter_code;
  text += kind == ProblemKind::call_based ? "\nUse Call-Based format" : "\nUse Standard Input format";
  return text + "\nANSWER:\n";
}

std::string chat_question(const std::string& question, const std::string& starter_code, ProblemKind kind) {
  std::string text;
  switch (kind) {
    case ProblemKind::humaneval:
      return "Complete this Python function. Answer with the whole function.\n\n```python\n" + question + "```";
    case ProblemKind::call_based: text = "Write Python code that defines the function asked for."; break;
    case ProblemKind::standard_input:
      text = "Write a Python program that reads from standard input and writes to standard output.";
  }
  text += "\n\n" + question;
  if (!starter_code.empty()) text += "\n\nStart from this code:\n```python\n" + right_stripped(starter_code) + "\n```";
  return text;
}

std::string string_or(const JsonText& object, const char* key, const std::string& fallback, const std::string& where) {
  const auto value = object.find(key);
  if (!value) return fallback;
  if (!value->is(Kind::string)) throw Error(ErrorCode::bad_file, where, fmt::format("\"{}\" is not a string", key));
  return value->text();
}

std::string required_string(const JsonText& object, const char* key, const std::string& where) {
  if (!object.find(key)) throw Error(ErrorCode::bad_file, where, fmt::format("\"{}\" is missing", key));
  return string_or(object, key, "", where);
}

FewShot read_example(const JsonText& entry, const std::string& where) {
  if (!entry.is(Kind::object)) throw Error(ErrorCode::bad_file, where, "is not an object");
  FewShot example{required_string(entry, "question", where), string_or(entry, "starter_code", "", where),
                  required_string(entry, "answer", where), ProblemKind::standard_input};
  const std::string kind = string_or(entry, "kind", "stdin", where);
  if (kind == "call")
    example.kind = ProblemKind::call_based;
  else if (kind != "stdin")
    throw Error(ErrorCode::bad_file, where,
                fmt::format("\"kind\" is \"{}\"; it can be \"stdin\" or \"call\"", shown(kind)));
  return example;
}

PromptText chat_prompt(std::span<const FewShot> examples, const CodeProblem& problem,
                       const std::string& chat_template) {
  // Rendering a stand-in for the last question shows where the template puts it.
  static const std::string kStandIn = "\x01question\x01";
  std::vector<ChatTurn> turns;
  for (const FewShot& example : examples) {
    turns.push_back({"user", chat_question(example.question, example.starter_code, example.kind)});
    turns.push_back({"assistant", "```python\n" + right_stripped(example.answer) + "\n```"});
  }
  turns.push_back({"user", kStandIn});
  const std::string text = render_chat(chat_template, turns);
  const std::size_t at = text.find(kStandIn);
  if (at == std::string::npos)
    throw Error(ErrorCode::unsupported, chat_template, "this chat template does not show the user's text as it is");
  const std::string question = chat_question(problem.question, problem.starter_code, problem.kind);
  return {text.substr(0, at), right_stripped(question) + text.substr(at + kStandIn.size())};
}

}  // namespace

PromptStyle prompt_style(const std::string& name) {
  if (name == "apps") return PromptStyle::apps;
  if (name == "humaneval") return PromptStyle::humaneval;
  if (name == "chat") return PromptStyle::chat;
  throw Error(ErrorCode::usage, "--prompt-style", fmt::format("\"{}\" is none of apps, humaneval, chat", name));
}

std::vector<FewShot> load_few_shot(const std::string& path) {
  const std::string text = read_file(path, kMostFewShotBytes);
  const JsonText root = parse_json(text, path);
  std::vector<FewShot> examples;
  if (root.is(Kind::array)) {
    for (JsonItems entry(root); entry.next();)
      examples.push_back(read_example(entry.value(), fmt::format("{}: entry {}", path, examples.size())));
  } else if (root.is(Kind::object) && root.find("problem_type1")) {
    examples.push_back({required_string(root, "problem_type1", path), "", required_string(root, "solution_type1", path),
                        ProblemKind::standard_input});
    examples.push_back({required_string(root, "problem_type2", path), "", required_string(root, "solution_type2", path),
                        ProblemKind::call_based});
  } else {
    throw Error(ErrorCode::bad_file, path, "is neither a list of examples nor an object with \"problem_type1\"");
  }
  if (examples.empty()) throw Error(ErrorCode::bad_file, path, "holds no example");
  return examples;
}

PromptText make_prompt(PromptStyle style, std::span<const FewShot> examples, const CodeProblem& problem,
                       const std::string& chat_template) {
  if (style == PromptStyle::chat) return chat_prompt(examples, problem, chat_template);
  PromptText prompt;
  const bool apps = style == PromptStyle::apps;
  for (const FewShot& example : examples)
    prompt.root += (apps ? apps_question(example.question, example.starter_code, example.kind) : example.question) +
                   right_stripped(example.answer) + (apps ? "\n" : "\n\n\n");
  prompt.problem =
      right_stripped(apps ? apps_question(problem.question, problem.starter_code, problem.kind) : problem.question);
  return prompt;
}

std::vector<std::string> stop_strings(PromptStyle style) {
  switch (style) {
    case PromptStyle::apps:
      return {"\nQUESTION:", "\nANSWER:", "\nUse Standard Input format", "\nUse Call-Based format"};
    case PromptStyle::humaneval: return {"\nclass ", "\ndef ", "\n#", "\nif ", "\nprint(", "\n@", "\n```"};
    case PromptStyle::chat: return {};
  }
  return {};
}

}  // namespace banyan::code
