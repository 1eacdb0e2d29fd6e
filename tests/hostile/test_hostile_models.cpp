// Model files: GGUF, safetensors with its index, config.json.
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "hostile/hostile.hpp"
#include "hostile/read_checkpoint.hpp"
#include "model/gguf_writer.hpp"
#include "model/safetensors_writer.hpp"

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

// A tensor of every type that is read, and keys of every kind, in the older version.
HostileCase gguf_of_all_types() {
  GgufWriter out(2);
  out.add_string("s", "text");
  out.add_strings("ss", std::vector<std::string>{"a", "", "bc"});
  out.add_ints("is", std::vector<std::int32_t>{1, -2});
  out.add_floats("fs", std::vector<float>{0.5F});
  out.add_bool("b", true);
  std::mt19937 random(5);
  for (const DType type :
       {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
        DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_nl}) {
    const std::int64_t n_cols = dtype_block(type);
    std::string data(static_cast<std::size_t>(dtype_bytes(type, 2 * n_cols)), '\0');
    for (char& c : data) c = static_cast<char>(random());
    out.add_tensor(to_string(type), type, {2, n_cols}, data);
  }
  out.add_tensor("without padding", DType::f32, {8}, std::string(32, '\0'));  // so that no cut loses padding alone
  const std::size_t n_header = out.header().size();
  return {"types.gguf", kWork, out.bytes(), n_header,
          [](const std::string& path) { read_values(GgufFile(path).tensors()); }};
}

// The tiny directory, into which one of its files is written.
std::string tiny_directory(const std::string& name) {
  const std::string directory = kWork + "/" + name;
  std::filesystem::create_directories(directory);
  for (const auto& entry : std::filesystem::directory_iterator(kTiny + "/hf")) {
    std::filesystem::copy_file(entry.path(), std::filesystem::path(directory) / entry.path().filename(),
                               std::filesystem::copy_options::overwrite_existing);
  }
  return directory;
}

HostileCase safetensors() {
  const std::string directory = tiny_directory("hf");
  std::string bytes = read_file(directory + "/model.safetensors");
  const std::size_t n_header = bytes.find("}}") + 2;
  return {"model.safetensors", directory, std::move(bytes), n_header,
          [directory](const std::string&) { read_checkpoint(directory); }};
}

// Two shards and their index.
HostileCase shard_index() {
  const std::string directory = kWork + "/shards", a = "model-00001-of-00002.safetensors",
                    b = "model-00002-of-00002.safetensors";
  std::filesystem::create_directories(directory);
  for (const auto& [shard, tensor] : {std::pair(a, "first"), std::pair(b, "second")}) {
    SafetensorsWriter out;
    out.add(tensor, DType::f32, {4}, std::string(16, '\0'));
    std::ofstream(directory + "/" + shard, std::ios::binary) << out.bytes();
  }
  std::string index = R"({"metadata": {"total_size": 32}, "weight_map": {"first": ")" + a + R"(", "second": ")" + b +
                      R"("}, "more": [1, null, true, -2.5e3, "text"]})";
  return {"model.safetensors.index.json", directory, std::move(index), 0,
          [directory](const std::string&) { read_values(SafetensorsFiles(directory).tensors()); }};
}

HostileCase config() {
  const std::string directory = tiny_directory("config");
  return {.name = "config.json",
          .directory = directory,
          .bytes = read_file(directory + "/config.json"),
          .read = [directory](const std::string&) { read_checkpoint(directory); },
          .cuts_fail = false};  // the last byte is a line's end
}

}  // namespace

TEST_CASE("hostile GGUF: cut at every 64th byte") {
  check_cut(gguf());
  check_cut(gguf_of_all_types());
}
TEST_CASE("hostile GGUF: 10,000 mutations") {
  check_mutations(gguf());
  check_mutations(gguf_of_all_types());
}
TEST_CASE("hostile safetensors: cut at every 64th byte") { check_cut(safetensors()); }
TEST_CASE("hostile safetensors: 10,000 mutations") { check_mutations(safetensors()); }
TEST_CASE("hostile index of shards: cut at every 64th byte, 10,000 mutations") {
  check_cut(shard_index());
  check_mutations(shard_index());
}
TEST_CASE("hostile config.json: cut at every 64th byte, 10,000 mutations") {
  check_cut(config());
  check_mutations(config());
}

TEST_CASE("hostile model files: large headers cost no memory before they are refused") {
  // Nearly four megabytes, the limit, of the smallest things that a header can be made to hold.
  const auto repeated = [](const std::string& start, const std::string& piece, const std::string& end) {
    std::string text = start;
    while (text.size() < 4'180'000) text += piece;
    return text + end;
  };
  const auto case_of = [](const std::string& header) {
    const std::uint64_t n = header.size();
    return std::string(reinterpret_cast<const char*>(&n), sizeof n) + header + "data of no tensor";
  };
  const std::string entry = R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  for (const std::string& header :
       {repeated(R"({"w":{"dtype":"F32","shape":[1)", ",1", R"(],"data_offsets":[0,4]}})"),
        repeated(R"({"w":{"x":[[)", "[],", "]]}}"), repeated("{" + entry, "," + entry, "}"),
        repeated(R"({"__metadata__":{"a":"b")", R"(,"a":"b")", "}}"), repeated(R"({")", "w", R"(":{}})"),
        repeated("{\"", "w", ""), repeated("{\"w\":", "[", ""), repeated("", "x", "")}) {
    check_refused({.name = "model.safetensors",
                   .directory = kWork + "/large",
                   .bytes = case_of(header),
                   .read = [](const std::string& path) { SafetensorsFiles::of_file(path); }});
  }
  const auto read_gguf = [](const std::string& path) { read_checkpoint(path); };
  const auto with = [&](const auto& add) {
    GgufWriter out;
    add(out);
    return HostileCase{.name = "large.gguf", .directory = kWork + "/large", .bytes = out.bytes(), .read = read_gguf};
  };
  check_refused(with([](GgufWriter& out) {
    for (int i = 0; i < 70'000; ++i) out.add_bool("key" + std::to_string(i), true);
  }));
  check_refused(with([](GgufWriter& out) {
    for (int i = 0; i < 70'000; ++i) out.list_tensor("t" + std::to_string(i), DType::f32, {1}, 4);
  }));
  check_refused(with([](GgufWriter& out) {
    out.add_string("tokenizer.ggml.model", "gpt2");
    out.add_strings("tokenizer.ggml.tokens", std::vector<std::string>(1'000'000));
  }));
}
