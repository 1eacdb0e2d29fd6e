// Files of prompts: one text, or JSON Lines. Layer 9. Knows no model; pure functions.
//
//     {"prompt": "a text", "id": anything}
//     {"messages": [{"role": "user", "content": "a text"}, …], "id": anything}
//
// The file is untrusted: a line that is no such object is reported, and the others are read.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "banyan/error.hpp"
#include "banyan/tokenizer.hpp"

namespace banyan::cli {

using Conversation = std::vector<ChatTurn>;

struct PromptLine {
  nlohmann::json id;  // from the file, else the index
  std::variant<std::string, Conversation> content;
};

// Is the file JSON Lines? By its name, or because its first line is a prompt; else all of it is one text.
bool holds_prompt_lines(const std::string& path, std::string_view content);

// Calls on_prompt or on_error for each line that is not blank, in order. The index counts both kinds, from 0; an error
// names the line by its number in the file, from 1.
void read_prompt_lines(const std::string& path, std::string_view content,
                       const std::function<void(std::int64_t index, PromptLine prompt)>& on_prompt,
                       const std::function<void(std::int64_t index, const Error& error)>& on_error);

}  // namespace banyan::cli
