// tokenizer.json: read, made a tokenizer, and used on a text.
#include "base/json.hpp"
#include "fuzz/fuzz_file.hpp"
#include "tokens/tokenizer_json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  banyan::test::expect_typed_errors([&] {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const auto root = banyan::parse_json(text, "tokenizer.json");
    const auto tokenizer = banyan::make_tokenizer(banyan::read_tokenizer_json(root, "tokenizer.json"));
    const auto ids = tokenizer->encode(" the any <s>\n42", {.parse_special = true});
    tokenizer->decode(ids);
  });
  return 0;
}
