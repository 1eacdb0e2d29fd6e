// Chat templates are small Jinja programs. banyan does not run them: it writes what the published ones write, for plain
// system, user and assistant turns (no tools).
//
// The text of a turn goes in as it is: one that spells a special token will be read as that token, as in the templates
// themselves. BOS is written where the published template writes it; encode() never doubles it.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <vector>

#include "banyan/tokenizer.hpp"
#include "tokens/chat_templates.hpp"
#include "tokens/white_space.hpp"

namespace banyan {

namespace {

// Python's strip(): it takes the separators of ASCII for white space, which Unicode does not.
std::string_view trim(std::string_view text) {
  constexpr std::string_view kSeparators = "\x1c\x1d\x1e\x1f";
  return strip_back(strip_front(text, kSeparators), kSeparators);
}

std::string_view trim_front(std::string_view text, char c) {
  return text.substr(std::min(text.find_first_not_of(c), text.size()));
}
std::string_view trim_back(std::string_view text, char c) { return text.substr(0, text.find_last_not_of(c) + 1); }

// The system turn in front, if there is one, is taken off the turns; the others must be user and assistant in turn.
std::string_view take_system(ChatTurns& turns) {
  std::string_view system;
  if (turns.front().role == "system") {
    system = turns.front().content;
    turns = turns.subspan(1);
  }
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const std::string_view expected = i % 2 == 0 ? "user" : "assistant";
    if (turns[i].role == expected) continue;
    throw Error(ErrorCode::bad_input, fmt::format("chat turn {}", i),
                fmt::format("role \"{}\" where the template wants \"{}\": behind a system turn in front, user and "
                            "assistant take turns",
                            turns[i].role, expected));
  }
  if (turns.empty()) throw Error(ErrorCode::bad_input, "chat", "a system turn alone; the template needs a user turn");
  return system;
}

std::string chatml_turn(std::string_view role, std::string_view content) {
  return fmt::format("<|im_start|>{}\n{}<|im_end|>\n", role, content);
}

std::string llama3_turn(std::string_view role, std::string_view content) {
  return fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>", role, content);
}

// An answer with its thought, as Qwen3's template takes it apart.
struct Answer {
  std::string_view thought, text;
};

Answer split_answer(std::string_view content) {
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  const std::size_t first = content.find(kClose);
  if (first == std::string_view::npos) return {{}, content};
  std::string_view thought = trim_back(content.substr(0, first), '\n');
  if (const std::size_t open = thought.rfind(kOpen); open != std::string_view::npos) {
    thought.remove_prefix(open + kOpen.size());
  }
  return {trim_front(thought, '\n'), trim_front(content.substr(content.rfind(kClose) + kClose.size()), '\n')};
}

// Of the turns the last that asks something: what a tool returned is no question.
std::size_t last_question(ChatTurns turns) {
  for (std::size_t i = turns.size(); i-- > 0;) {
    const std::string_view content = turns[i].content;
    const bool tool = content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
    if (turns[i].role == "user" && !tool) return i;
  }
  return turns.size() - 1;
}

}  // namespace

std::string ChatmlStyle::render(ChatTurns turns, const ChatTokens& tokens) const {
  std::string text = bos ? tokens.bos.value_or("<s>") : std::string();
  if (!default_system.empty() && turns.front().role != "system") text += chatml_turn("system", default_system);
  for (const ChatTurn& turn : turns) text += chatml_turn(turn.role, turn.content);
  return text += "<|im_start|>assistant\n";
}

std::string Qwen3Style::render(ChatTurns turns, const ChatTokens& /*tokens*/) const {
  const std::size_t question = last_question(turns);
  std::string text;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].role != "assistant") {
      text += chatml_turn(turns[i].role, turns[i].content);
      continue;
    }
    const Answer answer = split_answer(turns[i].content);
    const bool with_thought = i > question && (i + 1 == turns.size() || !answer.thought.empty());
    text += with_thought
                ? chatml_turn("assistant", fmt::format("<think>\n{}\n</think>\n\n{}", trim_back(answer.thought, '\n'),
                                                       trim_front(answer.text, '\n')))
                : chatml_turn("assistant", answer.text);
  }
  return text += thinking ? "<|im_start|>assistant\n" : "<|im_start|>assistant\n<think>\n\n</think>\n\n";
}

std::string Llama2Style::render(ChatTurns turns, const ChatTokens& tokens) const {
  const bool has_system = turns.front().role == "system";
  const std::string_view system = take_system(turns);
  std::string text;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (i % 2 == 1) {
      text += fmt::format(" {} {}", trim(turns[i].content), tokens.eos.value_or("</s>"));
      continue;
    }
    const std::string content =
        i == 0 && has_system ? fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n{}", system, turns[i].content) : turns[i].content;
    text += fmt::format("{}[INST] {} [/INST]", tokens.bos.value_or("<s>"), trim(content));
  }
  return text;
}

std::string Llama3Style::render(ChatTurns turns, const ChatTokens& tokens) const {
  std::string text = tokens.bos.value_or("<|begin_of_text|>");
  if (!dates.empty()) {
    const bool has_system = turns.front().role == "system";
    const std::string_view system = has_system ? trim(turns.front().content) : std::string_view();
    text += llama3_turn("system", fmt::format("{}{}", dates, system));
    if (has_system) turns = turns.subspan(1);
  }
  for (const ChatTurn& turn : turns) text += llama3_turn(turn.role, trim(turn.content));
  return text += "<|start_header_id|>assistant<|end_header_id|>\n\n";
}

std::string MistralStyle::render(ChatTurns turns, const ChatTokens& tokens) const {
  const bool has_system = turns.front().role == "system";
  if (has_system && system == System::refused) {
    throw Error(ErrorCode::bad_input, "chat turn 0",
                "the template has no system turn; put the text in front of the first user turn, or take mistral-v1");
  }
  const std::string_view system_text = take_system(turns);
  std::string text = tokens.bos.value_or("<s>");
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const std::string_view content = turns[i].content;
    if (i % 2 == 1) {
      text += fmt::format("{}{}{}{}", answer_open, trims_answers ? trim(content) : content, tokens.eos.value_or("</s>"),
                          answer_close);
      continue;
    }
    const std::size_t place = system == System::in_last ? turns.size() - 1 : 0;
    text += open;
    if (has_system && i == place) text += fmt::format("{}\n\n", system_text);
    text += content;
    text += close;
  }
  return text;
}

std::string ZephyrStyle::render(ChatTurns turns, const ChatTokens& tokens) const {
  std::string text;
  for (const ChatTurn& turn : turns) {
    text += fmt::format("<|{}|>\n{}{}\n", turn.role, turn.content, tokens.eos.value_or("</s>"));
  }
  return text += "<|assistant|>\n";
}

void refuse_chat_template(const std::string& what) {
  throw Error(ErrorCode::unsupported, "chat template",
              fmt::format("{}; known: {}. Name the one that the model was trained with (--chat-template), or write the "
                          "conversation out as a raw prompt with special tokens parsed (--parse-special)",
                          what, fmt::join(chat_template_names(), ", ")));
}

std::vector<std::string_view> chat_template_names() {
  std::vector<std::string_view> names;
  for (const ChatTemplate& known : kChatTemplates) names.push_back(known.name);
  return names;
}

namespace {

const ChatTemplate& find_chat_template(const std::string& name) {
  const auto known = std::find_if(kChatTemplates.begin(), kChatTemplates.end(),
                                  [&](const ChatTemplate& entry) { return entry.name == name; });
  if (known == kChatTemplates.end()) refuse_chat_template(fmt::format("unknown template name \"{}\"", name));
  return *known;
}

}  // namespace

ChatTokens chat_tokens(const TokenizerSpec& spec) {
  const auto text = [&](TokenId id) { return spec.pieces[static_cast<std::size_t>(id)]; };
  return {spec.bos == kNoToken ? std::string() : text(spec.bos), spec.eos.empty() ? std::string() : text(spec.eos[0])};
}

std::string render_chat(const std::string& name, std::span<const ChatTurn> turns, const ChatTokens& tokens) {
  const ChatTemplate& known = find_chat_template(name);
  if (turns.empty()) throw Error(ErrorCode::bad_input, "chat", "a conversation without turns");
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const std::string& role = turns[i].role;
    if (role == "system" || role == "user" || role == "assistant") continue;
    throw Error(ErrorCode::bad_input, fmt::format("chat turn {}", i),
                fmt::format("role \"{}\"; \"system\", \"user\" and \"assistant\" are possible", role));
  }
  return std::visit([&](const auto& style) { return style.render(turns, tokens); }, known.style);
}

std::string chat_answer_end(const std::string& name) {
  return std::visit([](const auto& style) { return std::string(style.kAnswerEnd); }, find_chat_template(name).style);
}

}  // namespace banyan
