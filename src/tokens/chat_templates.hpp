// The published chat templates that banyan writes, one struct for each form and one entry for each variant. Layer 1,
// internal. Pure data and functions.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "banyan/tokenizer.hpp"

namespace banyan {

using ChatTurns = std::span<const ChatTurn>;

// <|im_start|>ROLE, the content, <|im_end|>
struct ChatmlStyle {
  std::string_view default_system = {};  // put in front of a conversation without a system turn; empty: nothing is
  bool bos = false;
  static constexpr std::string_view kAnswerEnd = "<|im_end|>";
  std::string render(ChatTurns turns, const ChatTokens& tokens) const;
};

// ChatML whose answers may begin with <think>…</think>: thoughts of answers before the last question are left out.
struct Qwen3Style {
  bool thinking = true;  // false: the answer is opened with an empty thought
  static constexpr std::string_view kAnswerEnd = "<|im_end|>";
  std::string render(ChatTurns turns, const ChatTokens& tokens) const;
};

// [INST] … [/INST] with BOS at each question, the system text inside the first one
struct Llama2Style {
  static constexpr std::string_view kAnswerEnd = {};
  std::string render(ChatTurns turns, const ChatTokens& tokens) const;
};

struct Llama3Style {
  std::string_view dates = {};  // lines that open the system turn, which is then always written
  static constexpr std::string_view kAnswerEnd = "<|eot_id|>";
  std::string render(ChatTurns turns, const ChatTokens& tokens) const;
};

// [INST] … [/INST] with one BOS
struct MistralStyle {
  enum class System { refused, in_first, in_last } system = System::refused;
  std::string_view open = "[INST] ", close = " [/INST]", answer_open = {}, answer_close = {};
  bool trims_answers = false;
  static constexpr std::string_view kAnswerEnd = {};
  std::string render(ChatTurns turns, const ChatTokens& tokens) const;
};

// <|ROLE|>, the content, EOS, each on a line
struct ZephyrStyle {
  static constexpr std::string_view kAnswerEnd = {};
  std::string render(ChatTurns turns, const ChatTokens& tokens) const;
};

struct ChatTemplate {
  std::string_view name;
  std::variant<ChatmlStyle, Qwen3Style, Llama2Style, Llama3Style, MistralStyle, ZephyrStyle> style;
};

constexpr std::array<ChatTemplate, 16> kChatTemplates{{
    {"chatml", ChatmlStyle{}},
    {"chatml-bos", ChatmlStyle{.bos = true}},
    {"smollm2", ChatmlStyle{"You are a helpful AI assistant named SmolLM, trained by Hugging Face"}},
    {"qwen1.5", ChatmlStyle{"You are a helpful assistant"}},
    {"qwen2", ChatmlStyle{"You are a helpful assistant."}},
    {"qwen2.5", ChatmlStyle{"You are Qwen, created by Alibaba Cloud. You are a helpful assistant."}},
    {"qwen3", Qwen3Style{}},
    {"qwen3-no-thinking", Qwen3Style{.thinking = false}},
    {"llama-2", Llama2Style{}},
    {"llama-3", Llama3Style{}},
    {"llama-3.1", Llama3Style{"Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"}},
    {"mistral", MistralStyle{}},
    {"mistral-v0.1", MistralStyle{.answer_close = " "}},
    {"mistral-v1", MistralStyle{.system = MistralStyle::System::in_first, .open = " [INST] ", .answer_open = " "}},
    {"mistral-v3",
     MistralStyle{
         .system = MistralStyle::System::in_last, .close = "[/INST]", .answer_open = " ", .trims_answers = true}},
    {"zephyr", ZephyrStyle{}},
}};

// Throws Error{unsupported}: what is wrong, the known names, and what to do.
[[noreturn]] void refuse_chat_template(const std::string& what);

}  // namespace banyan
