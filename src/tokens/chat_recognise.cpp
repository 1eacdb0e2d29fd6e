// Which published template is this? By the expressions that write its turns, and by what would change them. A template
// that is only like a known one is refused: a model answers badly to a conversation that is almost in its form, and
// nobody notices.
#include <algorithm>
#include <fmt/format.h>
#include <optional>

#include "banyan/tokenizer.hpp"
#include "tokens/chat_templates.hpp"

namespace banyan {

namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// A template in one way of writing: no comments, no white space outside of literals, no marks that trim it, ' for ",
// \n as the line end it is, message['role'] for message.role.
class Squeezer {
 public:
  explicit Squeezer(std::string_view text) : rest_(text) {
    while (!rest_.empty()) {
      if (quote_ != 0) {
        literal();
      } else if (in_tag_) {
        tag();
      } else {
        outside();
      }
    }
    replace_all(squeezed_, "message.role", "message['role']");
    replace_all(squeezed_, "message.content", "message['content']");
  }
  std::string take() { return std::move(squeezed_); }

 private:
  bool at(std::string_view mark) const { return rest_.starts_with(mark); }
  void put(std::string_view text, std::size_t n_read) {
    squeezed_ += text;
    rest_.remove_prefix(std::min(n_read, rest_.size()));
  }
  void put_unless_space() {
    const bool space = std::string_view(" \n\r\t").find(rest_[0]) != std::string_view::npos;
    put(space ? std::string_view() : rest_.substr(0, 1), 1);
  }
  void outside() {
    if (at("{#")) {
      const std::size_t end = rest_.find("#}");
      put("", end == std::string_view::npos ? rest_.size() : end + 2);
    } else if (at("{{") || at("{%")) {
      in_tag_ = true;
      put(rest_.substr(0, 2), 2);
      if (at("-")) put("", 1);
    } else {
      put_unless_space();
    }
  }
  void tag() {
    if (at("-}}") || at("-%}")) put("", 1);
    if (at("}}") || at("%}")) {
      in_tag_ = false;
      put(rest_.substr(0, 2), 2);
    } else if (at("'") || at("\"")) {
      quote_ = rest_[0];
      put("'", 1);
    } else {
      put_unless_space();
    }
  }
  void literal() {
    if (rest_[0] == quote_) {
      quote_ = 0;
      put("'", 1);
    } else if (at("\\n")) {
      put("\n", 2);
    } else {
      put(rest_.substr(0, 1), 1);
    }
  }

  std::string_view rest_;
  std::string squeezed_;
  bool in_tag_ = false;
  char quote_ = 0;
};

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

struct Template {
  std::string_view text;
  std::string squeezed;

  bool has(std::string_view part) const { return squeezed.find(part) != std::string::npos; }
  // Is the mark written, and nowhere but as this literal?
  bool always_spells(std::string_view mark, std::string_view literal) const {
    const std::size_t n = count(squeezed, mark);
    return n > 0 && count(squeezed, fmt::format("'{}'", literal)) == n;
  }
  // What a template does to the turns that banyan would not do.
  void refuse_edits(std::initializer_list<std::string_view> edits) const {
    for (const std::string_view edit : edits) {
      if (has(edit)) refuse_chat_template(fmt::format("a template that edits the turns (\"{}\")", edit));
    }
  }
};

// The system text that a ChatML template spells out as a literal, if it does.
std::optional<std::string_view> spelled_system(std::string_view squeezed) {
  constexpr std::string_view kOpen = "<|im_start|>system\n", kClose = "<|im_end|>";
  for (std::size_t at = squeezed.find(kOpen); at != std::string_view::npos; at = squeezed.find(kOpen, at + 1)) {
    const std::string_view rest = squeezed.substr(at + kOpen.size());
    if (!rest.starts_with('\'')) return rest.substr(0, rest.find(kClose));  // the literal does not stop at once
  }
  return std::nullopt;
}

std::string chatml_name(const Template& t) {
  if (t.has("enable_thinking") && t.has("ns.last_query_index") && !t.has("xml_tools") &&
      t.has("message['content'].split('</think>')[-1].lstrip('\n')")) {
    return "qwen3";
  }
  t.refuse_edits({"think>", "|trim", "strip(", "replace(", "|replace", ".split("});
  const std::string turn = "'<|im_start|>'+message['role']+'\n'+message['content']+'<|im_end|>";
  if ((!t.has(turn + "'+'\n'") && !t.has(turn + "\n'")) || !t.has("'<|im_start|>assistant\n'")) {
    refuse_chat_template("a template with <|im_start|> that does not write ChatML turns");
  }
  const bool bos = t.squeezed.starts_with("{{bos_token}}");
  if (!bos && t.has("bos_token")) refuse_chat_template("a ChatML template that writes BOS inside");
  const std::string_view system = spelled_system(t.squeezed).value_or("");
  for (const ChatTemplate& known : kChatTemplates) {
    const auto* style = std::get_if<ChatmlStyle>(&known.style);
    if (style != nullptr && style->default_system == system && style->bos == bos) return std::string(known.name);
  }
  refuse_chat_template(fmt::format("a ChatML template with the system text \"{}\"", system.substr(0, 100)));
}

std::string llama3_name(const Template& t) {
  const bool turns =
      t.has("'<|start_header_id|>'+message['role']+'<|end_header_id|>\n\n'+message['content']|trim+'<|eot_id|>'") &&
      t.has("'<|start_header_id|>assistant<|end_header_id|>\n\n'") && t.has("bos_token");
  if (!turns) refuse_chat_template("a template with <|start_header_id|> that does not write Llama 3's turns");
  if (!t.has("Date")) return "llama-3";
  if (t.has("strftime_now")) {
    refuse_chat_template(
        "a template of Llama 3.2 or later, which writes today's date, so that a prompt is another one tomorrow; "
        "llama-3.1 writes the date 26 Jul 2024, as the template itself does where it is told no other");
  }
  if (!t.has("'Cutting Knowledge Date: December 2023\n'") || !t.has("'26 Jul 2024'")) {
    refuse_chat_template("a template of Llama 3 with other dates than Llama 3.1's");
  }
  return "llama-3.1";
}

std::string inst_name(const Template& t) {
  if (t.has("<<SYS>>")) {
    const bool turns = t.has("bos_token+'[INST] '+content.strip()+' [/INST]'") &&
                       t.has("' '+content.strip()+' '+eos_token") && !t.has("true==true");
    if (turns) return "llama-2";
    refuse_chat_template("a template with <<SYS>> that does not write Llama 2's turns, or puts in a system text");
  }
  const bool trims = t.has("message['content']|trim+eos_token");
  const bool answers = trims || t.has("message['content']+eos_token");
  const std::string_view answer_open = t.has("{{' '+message['content']") ? " " : "";
  const std::string_view answer_close = t.has("eos_token+' '") ? " " : "";
  if (!trims) t.refuse_edits({"|trim", "strip("});
  for (const ChatTemplate& known : kChatTemplates) {
    const auto* style = std::get_if<MistralStyle>(&known.style);
    if (style == nullptr || !answers) continue;
    if (!t.always_spells("[INST]", style->open) || !t.always_spells("[/INST]", style->close)) continue;
    const bool system = style->system == MistralStyle::System::in_first  ? t.has("loop.firstandsystem_message")
                        : style->system == MistralStyle::System::in_last ? t.has("loop.lastandsystem_message")
                                                                         : !t.has("system");
    if (system && style->answer_open == answer_open && style->answer_close == answer_close &&
        style->trims_answers == trims) {
      return std::string(known.name);
    }
  }
  refuse_chat_template("a template with [INST] that writes neither Llama 2's nor one of Mistral's forms");
}

bool is_zephyr(const Template& t) {
  for (const std::string_view role : {"user", "system", "assistant"}) {
    if (!t.has(fmt::format("{{{{'<|{}|>\n'+message['content']+eos_token}}}}", role))) return false;
  }
  // The line ends behind the turns are those of the template itself, behind each expression.
  return count(t.text, "eos_token }}\n") == 3 && t.has("loop.lastandadd_generation_prompt");
}

}  // namespace

std::string chat_template_name(const std::string& template_text) {
  if (template_text.empty()) refuse_chat_template("the model has no chat template");
  const Template t{template_text, Squeezer(template_text).take()};
  if (t.has("<|im_start|>")) return chatml_name(t);
  if (t.has("<|start_header_id|>")) return llama3_name(t);
  if (t.has("[INST]")) return inst_name(t);
  if (is_zephyr(t)) return "zephyr";
  refuse_chat_template(fmt::format("unknown template \"{}\"", std::string_view(template_text).substr(0, 100)));
}

}  // namespace banyan
