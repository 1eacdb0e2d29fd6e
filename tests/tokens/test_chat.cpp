#include <doctest/doctest.h>
#include <vector>

#include "banyan/tokenizer.hpp"

using namespace banyan;

TEST_CASE("chatml: a system turn is put in only where the template spells one out") {
  const std::string plain =
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
      "'\\n'}}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  const std::string if_first = "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system";
  CHECK(chat_template_name(plain) == "chatml");
  CHECK(chat_template_name("{{ '<|im_start|>system\\n' + system + '<|im_end|>' }}" + plain) == "chatml");
  for (const std::string line_end : {"\n", "\\n"}) {
    CHECK(chat_template_name(if_first + line_end +
                             "You are a helpful AI assistant named SmolLM, trained by Hugging Face" +
                             "<|im_end|>' }}{% endif %}" + plain) == "smollm2");
  }
  CHECK_THROWS_WITH_AS(chat_template_name(if_first + "\\nYou are Bob.<|im_end|>' }}" + plain),
                       doctest::Contains("\"You are Bob.\""), Error);

  const std::vector<ChatTurn> hello = {{"user", "Hello"}};
  CHECK(render_chat("chatml", hello) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  CHECK(render_chat("qwen2", hello) ==
        "<|im_start|>system\nYou are a helpful "
        "assistant.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  const std::vector<ChatTurn> own = {{"system", "Be brief."}, {"user", "Hi"}};
  CHECK(render_chat("smollm2", own) ==
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("llama templates") {
  const std::vector<ChatTurn> turns = {{"system", "S"}, {"user", " A "}, {"assistant", "B\n"}, {"user", "C"}};
  CHECK(render_chat("llama-2", turns) == "<s>[INST] <<SYS>>\nS\n<</SYS>>\n\n A [/INST] B </s><s>[INST] C [/INST]");
  CHECK(render_chat("llama-3", turns) ==
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nA<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nB<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nC<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
  CHECK(chat_template_name("… '<|start_header_id|>' + message['role'] … | trim + '<|eot_id|>'") == "llama-3");
  CHECK(chat_template_name("{% set content = '<<SYS>>\\n' … '[INST] ' …") == "llama-2");
  CHECK_THROWS_AS(render_chat("llama-2", std::vector<ChatTurn>{{"assistant", "x"}}), Error);
}

TEST_CASE("templates that are not known are refused by name") {
  for (const char* text : {"", "{{ gemma }}", "<|start_header_id|> Cutting Knowledge Date <|eot_id|> trim",
                           "<|im_start|> </think> <|im_end|>", "<|im_start|>", "[INST] {{ mistral }}"}) {
    CHECK_THROWS_WITH_AS(chat_template_name(text), doctest::Contains("known: chatml, smollm2"), Error);
  }
  CHECK_THROWS_WITH_AS(render_chat("vicuna", std::vector<ChatTurn>{{"user", "x"}}), doctest::Contains("\"vicuna\""),
                       Error);
  CHECK_THROWS_AS(render_chat("chatml", {}), Error);
}
