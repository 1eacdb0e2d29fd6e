// A file of prompts, and the chat template of a model: text that users and files bring.
#include "cli/prompt_file.hpp"
#include "fuzz/fuzz_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  banyan::cli::holds_prompt_lines("prompts", text);
  banyan::cli::read_prompt_lines(
      "prompts", text,
      [](std::int64_t, banyan::cli::PromptLine line) {
        line.id.dump();
        const auto* turns = std::get_if<banyan::cli::Conversation>(&line.content);
        if (turns == nullptr) return;
        for (const auto name : banyan::chat_template_names()) {
          banyan::test::expect_typed_errors([&] { banyan::render_chat(std::string(name), *turns); });
        }
      },
      [](std::int64_t, const banyan::Error&) {});
  banyan::test::expect_typed_errors([&] { banyan::chat_template_name(text); });
  return 0;
}
