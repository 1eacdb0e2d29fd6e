#include "cli/prompt_file.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

namespace banyan::cli {
namespace {

using nlohmann::json;

// Deeper values are no prompt: an id is written out again, and writing follows its nesting.
constexpr int kMaxDepth = 64;

json parse_line(std::string_view line, const std::string& where) {
  const auto watch = [&](int depth, json::parse_event_t, json&) {
    if (depth > kMaxDepth) {
      throw Error(ErrorCode::bad_file, where, fmt::format("is nested deeper than {} levels", kMaxDepth));
    }
    return true;
  };
  try {
    return json::parse(line.begin(), line.end(), watch);
  } catch (const json::parse_error& e) {
    // Its text begins with a line number, which is always 1 here.
    const std::string text = e.what(), begin = fmt::format("column {}: ", e.byte);
    const auto at = text.find(begin);
    throw Error(ErrorCode::bad_file, fmt::format("{}:{}", where, e.byte),
                "is not valid JSON: " + text.substr(at == std::string::npos ? 0 : at + begin.size()));
  } catch (const json::exception& e) {
    throw Error(ErrorCode::bad_file, where, std::string("is not valid JSON: ") + e.what());
  }
}

std::string text_of(const json& object, const char* key, const std::string& where, const std::string& part) {
  const auto value = object.is_object() ? object.find(key) : object.end();
  if (value == object.end() || !value->is_string()) {
    throw Error(ErrorCode::bad_file, where, fmt::format("{} has no text under \"{}\"", part, key));
  }
  return value->get<std::string>();
}

Conversation read_conversation(const json& messages, const std::string& where) {
  if (!messages.is_array() || messages.empty()) {
    throw Error(ErrorCode::bad_file, where, "\"messages\" is no list of turns");
  }
  Conversation turns;
  for (const json& message : messages) {
    const std::string part = fmt::format("message {}", turns.size());
    turns.push_back({text_of(message, "role", where, part), text_of(message, "content", where, part)});
  }
  return turns;
}

PromptLine parse_prompt(std::string_view line, std::int64_t index, const std::string& where) {
  const json object = parse_line(line, where);
  const bool has_prompt = object.is_object() && object.contains("prompt");
  const bool has_messages = object.is_object() && object.contains("messages");
  if (has_prompt == has_messages) {
    throw Error(ErrorCode::bad_file, where,
                has_prompt ? "has both \"prompt\" and \"messages\""
                           : "no JSON object with a text under \"prompt\", or a conversation under \"messages\"");
  }
  PromptLine prompt{object.contains("id") ? object["id"] : json(index), {}};
  if (has_prompt) {
    prompt.content = text_of(object, "prompt", where, "the object");
  } else {
    prompt.content = read_conversation(object["messages"], where);
  }
  return prompt;
}

}  // namespace

bool holds_prompt_lines(const std::string& path, std::string_view content) {
  if (path.ends_with(".jsonl")) return true;
  try {
    parse_prompt(content.substr(0, content.find('\n')), 0, path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void read_prompt_lines(const std::string& path, std::string_view content,
                       const std::function<void(std::int64_t index, PromptLine prompt)>& on_prompt,
                       const std::function<void(std::int64_t index, const Error& error)>& on_error) {
  std::int64_t number = 0, index = 0;
  while (!content.empty()) {
    ++number;
    const std::string_view line = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(line.size() + 1, content.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    std::optional<PromptLine> prompt;
    try {
      prompt = parse_prompt(line, index, fmt::format("{}:{}", path, number));
    } catch (const Error& error) {
      on_error(index, error);
    }
    if (prompt) on_prompt(index, std::move(*prompt));
    ++index;
  }
}

}  // namespace banyan::cli
