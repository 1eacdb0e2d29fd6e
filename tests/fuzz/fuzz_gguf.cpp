// A GGUF file as a whole: container, configuration, tokenizer, and the values of its tensors.
#include "fuzz/fuzz_file.hpp"
#include "hostile/read_checkpoint.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const banyan::test::MemoryFile file(data, size);
  banyan::test::expect_typed_errors([&] { banyan::test::read_checkpoint(file.path()); });
  return 0;
}
