// Chat templates are small Jinja programs. banyan does not run them: it knows the published ones by their marks and
// writes what they write, for plain system, user and assistant turns (no tools). A template that does something else is
// refused.
//
// The text of a turn goes in as it is: one that spells a special token will be read as that token, as in the templates
// themselves. BOS is written where the published template writes its text; encode() never doubles it.
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <vector>

#include "banyan/tokenizer.hpp"

namespace banyan {

namespace {

// ChatML, and models that put a system turn of their own in front of a conversation that has none.
struct ChatmlVariant {
  std::string_view name;
  std::string_view default_system;  // empty: none is put in
};
constexpr std::array<ChatmlVariant, 5> kChatml{{
    {"chatml", ""},
    {"smollm2", "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
    {"qwen1.5", "You are a helpful assistant"},
    {"qwen2", "You are a helpful assistant."},
    {"qwen2.5", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
}};
constexpr std::string_view kLlama2 = "llama-2", kLlama3 = "llama-3";

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

[[noreturn]] void refuse(const std::string& what) {
  std::vector<std::string_view> known;
  for (const ChatmlVariant& variant : kChatml) known.push_back(variant.name);
  known.insert(known.end(), {kLlama2, kLlama3});
  throw Error(ErrorCode::unsupported, "chat template",
              fmt::format("{}; known: {}. Write the conversation out and pass it as a raw prompt with special tokens "
                          "parsed",
                          what, fmt::join(known, ", ")));
}

// The system text that a ChatML template spells out as a literal, if it does: what stands between the mark of a system
// turn with its line end (as a character or as Jinja's \n) and the end mark, where the literal does not stop at once.
std::optional<std::string_view> spelled_system(std::string_view text) {
  constexpr std::string_view kOpen = "<|im_start|>system", kClose = "<|im_end|>";
  for (std::size_t at = text.find(kOpen); at != std::string_view::npos; at = text.find(kOpen, at + 1)) {
    std::string_view rest = text.substr(at + kOpen.size());
    if (rest.starts_with("\n")) {
      rest.remove_prefix(1);
    } else if (rest.starts_with("\\n")) {
      rest.remove_prefix(2);
    } else {
      continue;
    }
    if (rest.starts_with('\'') || rest.starts_with('"')) continue;
    return rest.substr(0, rest.find(kClose));
  }
  return std::nullopt;
}

std::string chatml_name(std::string_view text) {
  if (!has(text, "<|im_end|>")) refuse("a ChatML template that ends turns with something other than <|im_end|>");
  for (const std::string_view other : {"think>", "| trim", "|trim", ".strip("}) {
    if (has(text, other)) refuse(fmt::format("a ChatML template that edits the turns (\"{}\")", other));
  }
  const std::string_view system = spelled_system(text).value_or("");
  for (const ChatmlVariant& variant : kChatml) {
    if (variant.default_system == system) return std::string(variant.name);
  }
  refuse(fmt::format("a ChatML template with the system text \"{}\"", system.substr(0, 100)));
}

// Jinja's trim, for ASCII white space.
std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r\x1c\x1d\x1e\x1f";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string render_chatml(std::string_view default_system, std::span<const ChatTurn> turns) {
  std::string text;
  const auto write = [&](std::string_view role, std::string_view content) {
    text += fmt::format("<|im_start|>{}\n{}<|im_end|>\n", role, content);
  };
  if (!default_system.empty() && turns.front().role != "system") write("system", default_system);
  for (const ChatTurn& turn : turns) write(turn.role, turn.content);
  return text += "<|im_start|>assistant\n";
}

std::string render_llama3(std::span<const ChatTurn> turns) {
  std::string text = "<|begin_of_text|>";
  const auto header = [&](std::string_view role) {
    text += fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n", role);
  };
  for (const ChatTurn& turn : turns) {
    header(turn.role);
    text += fmt::format("{}<|eot_id|>", trim(turn.content));
  }
  header("assistant");
  return text;
}

std::string render_llama2(std::span<const ChatTurn> turns) {
  std::string system;
  if (turns.front().role == "system") {
    system = fmt::format("<<SYS>>\n{}\n<</SYS>>\n\n", turns.front().content);
    turns = turns.subspan(1);
  }
  std::string text;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const std::string_view expected = i % 2 == 0 ? "user" : "assistant";
    if (turns[i].role != expected) {
      throw Error(ErrorCode::bad_input, fmt::format("chat turn {}", i),
                  fmt::format("role \"{}\" where llama-2 wants \"{}\": turns must alternate", turns[i].role, expected));
    }
    const std::string content = (i == 0 ? system : std::string()) + turns[i].content;
    text += i % 2 == 0 ? fmt::format("<s>[INST] {} [/INST]", trim(content)) : fmt::format(" {} </s>", trim(content));
  }
  return text;
}

}  // namespace

std::string chat_template_name(const std::string& template_text) {
  if (template_text.empty()) refuse("the model has no chat template");
  if (has(template_text, "<|im_start|>")) return chatml_name(template_text);
  if (has(template_text, "<|start_header_id|>")) {
    if (has(template_text, "Cutting Knowledge Date")) refuse("the template of Llama 3.1, which writes the date");
    if (has(template_text, "<|eot_id|>") && has(template_text, "trim")) return std::string(kLlama3);
  }
  if (has(template_text, "[INST]") && has(template_text, "<<SYS>>")) return std::string(kLlama2);
  refuse(fmt::format("unknown template \"{}\"", std::string_view(template_text).substr(0, 100)));
}

std::string render_chat(const std::string& name, std::span<const ChatTurn> turns) {
  if (turns.empty()) throw Error(ErrorCode::bad_input, "chat", "a conversation without turns");
  if (name == kLlama2) return render_llama2(turns);
  if (name == kLlama3) return render_llama3(turns);
  for (const ChatmlVariant& variant : kChatml) {
    if (name == variant.name) return render_chatml(variant.default_system, turns);
  }
  refuse(fmt::format("unknown template name \"{}\"", name));
}

}  // namespace banyan
