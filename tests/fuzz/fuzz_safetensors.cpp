// One safetensors file.
#include "fuzz/fuzz_file.hpp"
#include "hostile/read_checkpoint.hpp"
#include "model/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const banyan::test::MemoryFile file(data, size);
  banyan::test::expect_typed_errors([&] {
    const banyan::SafetensorsFiles files = banyan::SafetensorsFiles::of_file(file.path());
    banyan::test::read_values(files.tensors());
  });
  return 0;
}
