// Model files: GGUF, safetensors with its index, config.json.
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "hostile/hostile.hpp"
#include "hostile/read_checkpoint.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

const std::string kTiny = BANYAN_SOURCE_DIR "/models/tiny";
const std::string kWork = BANYAN_BINARY_DIR "/tests/hostile_models";

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

HostileCase gguf() {
  std::string bytes = read_file(kTiny + "/tiny.gguf");
  const std::size_t n_header = bytes.rfind("output.weight") + 64;  // behind the last tensor's entry
  return {"model.gguf", kWork, std::move(bytes), n_header, read_checkpoint};
}

// The tiny directory with one of its files replaced.
HostileCase hf(const std::string& name, std::size_t n_header) {
  const std::string directory = kWork + "/hf";
  std::filesystem::create_directories(directory);
  std::filesystem::copy(kTiny + "/hf", directory, std::filesystem::copy_options::overwrite_existing);
  return {name, directory, read_file(directory + "/" + name), n_header,
          [directory](const std::string&) { read_checkpoint(directory); }};
}

HostileCase safetensors() {
  HostileCase c = hf("model.safetensors", 0);
  c.n_header = c.bytes.find("}}") + 2;
  return c;
}

}  // namespace

TEST_CASE("hostile GGUF: cut at every 64th byte") { check_cut(gguf()); }
TEST_CASE("hostile GGUF: 10,000 mutations") { check_mutations(gguf()); }
TEST_CASE("hostile safetensors: cut at every 64th byte") { check_cut(safetensors()); }
TEST_CASE("hostile safetensors: 10,000 mutations") { check_mutations(safetensors()); }
