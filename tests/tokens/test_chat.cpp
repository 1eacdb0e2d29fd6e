// Chat templates against Jinja's rendering of the published ones (tools/golden_chats.py), and what is refused.
#include <algorithm>
#include <doctest/doctest.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "banyan/tokenizer.hpp"
#include "tokens/gguf_vocab.hpp"

using namespace banyan;
using namespace banyan::test;
using nlohmann::json;

namespace {

using Ids = std::vector<TokenId>;

json golden() {
  std::ifstream file(std::string(BANYAN_SOURCE_DIR) + "/tests/data/chats.json");
  return json::parse(file);
}

std::string template_of(const std::string& name) {
  for (const json& entry : golden()) {
    if (entry["name"] == name) return entry["template"];
  }
  FAIL("no golden template ", name);
  return {};
}

std::vector<ChatTurn> turns_of(const json& chat) {
  std::vector<ChatTurn> turns;
  for (const json& turn : chat["turns"]) turns.push_back({turn["role"], turn["content"]});
  return turns;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("chat templates: each is recognised by its text, and writes what Jinja writes") {
  std::set<std::string_view> seen;
  const auto names = chat_template_names();
  for (const json& entry : golden()) {
    const std::string name = entry["name"];
    CAPTURE(name);
    seen.insert(*std::find(names.begin(), names.end(), name));
    if (!entry["template"].is_null()) CHECK(chat_template_name(entry["template"]) == name);
    const ChatTokens tokens{entry["bos"].is_null() ? "" : entry["bos"].get<std::string>(), entry["eos"]};
    for (const json& chat : entry["chats"]) {
      const auto turns = turns_of(chat);
      CAPTURE(chat["turns"].dump());
      if (chat["text"].is_null()) {
        CHECK_THROWS_AS(render_chat(name, turns, tokens), Error);
      } else {
        CHECK(render_chat(name, turns, tokens) == chat["text"].get<std::string>());
      }
    }
  }
  CHECK(seen.size() == names.size());
}

TEST_CASE("BL-27, chats: exactly one BOS in front, whether template or tokenizer writes it") {
  const std::vector<ChatTurn> turns = {{"user", "hi"}};
  for (const bool add_bos : {false, true}) {
    TokenizerSpec spec = tiny_bpe({}, {"<s>", "</s>"});
    spec.bos = 256;
    spec.eos = {257};
    spec.add_bos = add_bos;
    const auto tokenizer = make_tokenizer(spec);
    for (const std::string_view name : chat_template_names()) {
      CAPTURE(name);
      const std::string text = render_chat(std::string(name), turns, chat_tokens(spec));
      const Ids ids = tokenizer->encode(text, {.parse_special = true});
      CHECK(std::count(ids.begin(), ids.end(), 256) == (text.starts_with("<s>") || add_bos ? 1 : 0));
      if (add_bos) CHECK(ids[0] == 256);
    }
  }
}

TEST_CASE("chat templates take their BOS and EOS from the vocabulary, else from their publisher") {
  const std::vector<ChatTurn> turns = {{"user", "a"}, {"assistant", "b"}, {"user", "c"}};
  CHECK(render_chat("mistral", turns, {"<B>", "<E>"}) == "<B>[INST] a [/INST]b<E>[INST] c [/INST]");
  CHECK(render_chat("mistral", turns) == "<s>[INST] a [/INST]b</s>[INST] c [/INST]");
  CHECK(render_chat("llama-3", {turns.data(), 1}).starts_with("<|begin_of_text|><|start_header_id|>user"));
  TokenizerSpec spec = tiny_bpe({}, {"<B>", "<E>"});
  CHECK(chat_tokens(spec).bos == "");
  CHECK(chat_tokens(spec).eos == "");
  spec.bos = 256;
  spec.eos = {257, 0};
  CHECK(chat_tokens(spec).bos == "<B>");
  CHECK(chat_tokens(spec).eos == "<E>");
  CHECK(chat_answer_end("qwen3") == "<|im_end|>");
  CHECK(chat_answer_end("llama-3.1") == "<|eot_id|>");
  CHECK(chat_answer_end("zephyr") == "");
}

TEST_CASE("a template that is only like a known one is refused by name, with what to do") {
  const auto refused = [](const std::string& text, const char* message) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(chat_template_name(text), doctest::Contains(message), Error);
    CHECK_THROWS_WITH_AS(chat_template_name(text), doctest::Contains("known: chatml, chatml-bos, smollm2"), Error);
    CHECK_THROWS_WITH_AS(chat_template_name(text), doctest::Contains("--chat-template"), Error);
  };
  refused("", "has no chat template");
  refused("{{ gemma }}", "unknown template \"{{ gemma }}\"");
  const std::string chatml = template_of("chatml"), llama2 = template_of("llama-2"), llama3 = template_of("llama-3");
  refused(replaced(template_of("smollm2"), "You are a helpful AI assistant named SmolLM", "You are Bob"),
          "\"You are Bob, trained by Hugging Face\"");
  refused(replaced(chatml, "message['content']", "message['content'] | trim"), "|trim");
  refused(replaced(chatml, "'\\n' + message['content']", "' ' + message['content']"), "does not write ChatML turns");
  refused(replaced(chatml, "assistant\\n", "assistant"), "does not write ChatML turns");
  refused(replaced(chatml, "{% endfor %}", "{{ bos_token }}{% endfor %}"), "BOS inside");
  refused(replaced(llama3, "| trim", ""), "does not write Llama 3's turns");
  refused(replaced(template_of("llama-3.1"), "26 Jul 2024", "1 Jan 2030"), "other dates");
  refused("{% set date_string = strftime_now('%d %b %Y') %}" + template_of("llama-3.1"), "today's date");
  refused(replaced(llama2, "{% else %}", "{% elif true == true %}{% else %}"), "puts in a system text");
  refused(replaced(llama2, "content.strip() + ' [/INST]'", "content + ' [/INST]'"), "does not write Llama 2's turns");
  refused(replaced(template_of("mistral-v3"), "\"[INST] \" + system", "\"[INST]\" + system"), "[INST]");
  refused("{{ '[INST]' + message['content'] + '[/INST]' }}{{ message['content'] + eos_token }}", "one of Mistral's");
  refused(replaced(template_of("zephyr"), "eos_token }}\n{% elif", "eos_token }}{% elif"), "unknown template");

  CHECK_THROWS_WITH_AS(render_chat("vicuna", std::vector<ChatTurn>{{"user", "x"}}), doctest::Contains("\"vicuna\""),
                       Error);
  CHECK_THROWS_AS(chat_answer_end("vicuna"), Error);
}

TEST_CASE("white space, quotes and comments of a template do not matter, its literals do") {
  const std::string chatml = template_of("chatml");
  CHECK(chat_template_name("{#- don't mind -#}\n" + chatml + "\n") == "chatml");
  std::string quoted = chatml;
  std::replace(quoted.begin(), quoted.end(), '\'', '"');
  CHECK(chat_template_name(quoted) == "chatml");
  CHECK(chat_template_name(replaced(chatml, "\\n", "\n")) == "chatml");
  CHECK(chat_template_name(replaced(chatml, "'<|im_end|>' + '\\n'", "'<|im_end|>\\n'")) == "chatml");
}

TEST_CASE("turns that a template does not take are refused, with the turn's number") {
  const auto refused = [](const char* name, const std::vector<ChatTurn>& turns, const char* message) {
    CHECK_THROWS_WITH_AS(render_chat(name, turns), doctest::Contains(message), Error);
  };
  refused("chatml", {}, "without turns");
  refused("chatml", {{"user", "x"}, {"tool", "y"}}, "chat turn 1: role \"tool\"");
  refused("llama-2", {{"assistant", "x"}}, "chat turn 0: role \"assistant\"");
  refused("mistral", {{"system", "s"}, {"user", "x"}}, "mistral-v1");
  refused("mistral-v1", {{"user", "x"}, {"user", "y"}}, "chat turn 1");
  refused("mistral-v3", {{"system", "s"}}, "a system turn alone");
}
