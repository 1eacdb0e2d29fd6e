// tokenizer.model: read, made a tokenizer, and used on a text.
#include "fuzz/fuzz_file.hpp"
#include "tokens/spm_tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const banyan::test::MemoryFile file(data, size);
  banyan::test::expect_typed_errors([&] {
    const auto tokenizer = banyan::make_tokenizer(banyan::read_sentencepiece_file(file.path()));
    const auto ids = tokenizer->encode(" the any <s>\n42\xE4\xBD\xA0\xFF", {.parse_special = true});
    tokenizer->decode(ids);
  });
  return 0;
}
