#include <chrono>
#include <cstring>
#include <doctest/doctest.h>
#include <sys/resource.h>

#include "made_model.hpp"
#include "model/gguf.hpp"

using namespace banyan;
using namespace banyan::test;
using namespace std::string_view_literals;

namespace {

long peak_rss_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

template <typename T>
std::string patched(std::string bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

// Loads bytes as a file: "" when they load, else the typed error. Anything but an Error escapes and fails the test.
std::string load_error(const TempDir& dir, const std::string& bytes) {
  const std::string path = dir / "case.gguf";
  write_file(path, bytes);
  return error_of([&] { load_oracle(path); });
}

void put_f16(std::string& out, float x) {
  const std::uint16_t bits = to_f16(x).bits;
  out.append(reinterpret_cast<const char*>(&bits), sizeof bits);
}

}  // namespace

TEST_CASE("gguf: what the writer writes the reader reads, of every kind of value and tensor type") {
  const TempDir dir("gguf_round_trip");
  GgufWriter out;
  out.add_string("s", "text\0zero"sv);
  out.add_u32("u", 4'000'000'000U);
  out.add_f32("f", 0.25F);
  out.add_bool("b", true);
  out.add_strings("ss", std::vector<std::string>{"", "a", "bc"});
  out.add_ints("is", std::vector<std::int32_t>{-1, 2});
  out.add_floats("fs", std::vector<float>{1.5F});
  out.add_tensor("odd", DType::bf16, {3}, tensor_data({{3}, {1, 2, 3}}, DType::bf16));  // 6 bytes, then padding
  out.add_tensor("t", DType::f32, {2, 3}, tensor_data({{2, 3}, {1, 2, 3, 4, 5, 6}}, DType::f32));
  write_file(dir / "a.gguf", out.bytes());

  const GgufFile file(dir / "a.gguf");
  CHECK(file.find_string("s") == "text\0zero"sv);
  CHECK(file.find_int("u") == 4'000'000'000);
  CHECK(file.find_float("f") == 0.25);
  CHECK(file.find_bool("b") == true);
  CHECK(file.find_strings("ss") == std::vector<std::string_view>{"", "a", "bc"});
  CHECK(file.find_ints("is") == std::vector<std::int64_t>{-1, 2});
  CHECK(file.find_floats("fs") == std::vector<float>{1.5F});
  CHECK_FALSE(file.find_int("absent").has_value());
  CHECK(contains(error_of([&] { file.find_int("s"); }), "key 's'"));
  CHECK(contains(error_of([&] { file.find_int("is"); }), "key 'is'"));
  CHECK(contains(error_of([&] { file.find_string("ss"); }), "key 'ss'"));
  GgufWriter copy;
  for (const auto key : file.keys()) copy.add_raw(key, file.raw_value(key));
  write_file(dir / "copy.gguf", copy.bytes());
  const GgufFile copied(dir / "copy.gguf");
  CHECK(copied.keys() == std::vector<std::string_view>{"b", "f", "fs", "is", "s", "ss", "u"});
  CHECK(copied.find_strings("ss") == file.find_strings("ss"));
  CHECK(copied.find_int("u") == 4'000'000'000);
  const Tensor& tensor = file.tensors().at("t");
  CHECK(tensor.shape == std::vector<std::int64_t>{2, 3});
  std::vector<float> row(3);
  dequantize_row(tensor, 1, row.data());
  CHECK(row == std::vector<float>{4, 5, 6});
}

TEST_CASE("gguf: blocks of q8_0, q4_0 and q4_1 are the published formulas") {
  std::string q8, q4_0, q4_1;
  put_f16(q8, 0.5F);
  put_f16(q4_0, 0.25F);
  put_f16(q4_1, 2.0F);
  put_f16(q4_1, -3.0F);
  for (int i = 0; i < 32; ++i) q8 += static_cast<char>(i * 8 - 128);
  for (int i = 0; i < 16; ++i) {
    const auto byte = static_cast<char>(i | ((15 - i) << 4));  // element i is i, element i + 16 is 15 - i
    q4_0 += byte;
    q4_1 += byte;
  }
  std::vector<float> x(32);
  const auto data = [](const std::string& s) { return reinterpret_cast<const std::byte*>(s.data()); };
  dequantize(DType::q8_0, data(q8), 32, x.data());
  for (int i = 0; i < 32; ++i) CHECK(x[static_cast<std::size_t>(i)] == 0.5F * static_cast<float>(i * 8 - 128));
  const auto quant = [](int i) { return static_cast<float>(i < 16 ? i : 31 - i); };
  dequantize(DType::q4_0, data(q4_0), 32, x.data());
  for (int i = 0; i < 32; ++i) CHECK(x[static_cast<std::size_t>(i)] == 0.25F * (quant(i) - 8.0F));
  dequantize(DType::q4_1, data(q4_1), 32, x.data());
  for (int i = 0; i < 32; ++i) CHECK(x[static_cast<std::size_t>(i)] == 2.0F * quant(i) - 3.0F);
}

TEST_CASE("BL-33: crafted counts, lengths, dimensions, offsets and versions are typed errors that name the field") {
  const TempDir dir("gguf_bl33");
  const std::string tiny = read_file(kTinyGguf);
  REQUIRE(tiny.size() > 10'000);
  REQUIRE(load_error(dir, tiny).empty());

  // Places in the fixed part: version at 4, tensor count at 8, key count at 16, then the first key's length.
  const std::size_t name = tiny.find("token_embd.weight");  // u32 n_dims, dims, u32 type, u64 offset follow
  const std::size_t dims = name + std::strlen("token_embd.weight") + 4;
  const std::size_t tokens = tiny.find("tokenizer.ggml.tokens");  // u32 array, u32 string, u64 count follow
  const std::size_t tokens_count = tokens + std::strlen("tokenizer.ggml.tokens") + 8;
  REQUIRE(name != std::string::npos);
  REQUIRE(tokens != std::string::npos);
  const auto offset = [&](std::uint64_t value) { return patched(tiny, dims + 16 + 4, value); };

  struct Case {
    std::string bytes, field;
  };
  const std::vector<Case> cases{
      {patched(tiny, dims, (std::uint64_t{1} << 42U) + 1), "token_embd.weight"},
      {patched(patched(tiny, dims, std::uint64_t{1} << 42U), dims + 8, std::uint64_t{1} << 42U), "token_embd.weight"},
      {patched(tiny, dims, std::int64_t{-32}), "token_embd.weight"},
      {patched(tiny, dims, std::int64_t{0}), "token_embd.weight"},
      {patched(tiny, dims - 4, std::uint32_t{5}), "token_embd.weight"},
      {patched(tiny, dims + 16, std::uint32_t{12}), "q4_k"},  // rows of 32 are no blocks of 256
      {patched(tiny, dims + 16, std::uint32_t{16}), "IQ2_XXS is not supported"},
      {patched(tiny, dims + 16, std::uint32_t{4000}), "token_embd.weight"},
      {patched(tiny, dims + 16, std::uint32_t{8}), "token_embd.weight"},  // q8_0: smaller, so the next one is unmoved
      {offset(1), "token_embd.weight"},
      {offset(32), "offset"},  // into the neighbour
      {offset(std::uint64_t{1} << 40U), "token_embd.weight"},
      {offset(~std::uint64_t{31}), "token_embd.weight"},
      {patched(tiny, 8, std::uint64_t{1} << 60U), "tensor count"},
      {patched(tiny, 16, std::uint64_t{1} << 60U), "key count"},
      {patched(tiny, 24, std::uint64_t{1} << 40U), "key 0"},
      {patched(tiny, 24, ~std::uint64_t{0}), "key 0"},
      {patched(tiny, tokens_count, std::uint64_t{1} << 61U), "tokenizer.ggml.tokens"},
      {patched(tiny, tokens_count + 8, std::uint64_t{1} << 40U), "tokenizer.ggml.tokens"},
      {patched(tiny, 4, std::uint32_t{1}), "version"},
      {patched(tiny, 4, std::uint32_t{0x03000000}), "byte-swapped"},
      {patched(tiny, 4, std::uint32_t{0}), "version"},
      {patched(tiny, 0, std::uint32_t{0}), "magic"},
      {"GGUF", "version"},
      {"GG", "magic"},
      {"", "empty"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.field);
    const long before = peak_rss_kib();
    const auto start = std::chrono::steady_clock::now();
    const std::string error = load_error(dir, c.bytes);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
    CHECK(peak_rss_kib() - before < 64 * 1024);
    CHECK(!error.empty());
    if (c.field != "offset") CHECK_MESSAGE(contains(error, c.field), error);
  }
}

TEST_CASE("gguf: a file cut anywhere is a typed error") {
  const TempDir dir("gguf_cut");
  const std::string tiny = read_file(kTinyGguf), path = dir / "case.gguf";
  write_file(path, tiny);
  for (std::size_t n = tiny.size() / 64 * 64; n > 0; n -= 64) {  // from the back, so that the file only shrinks
    CAPTURE(n);
    std::filesystem::resize_file(path, n - 1);
    REQUIRE(!error_of([&] { load_oracle(path); }).empty());
    std::filesystem::resize_file(path, n - 64);
    REQUIRE(!error_of([&] { load_oracle(path); }).empty());
  }
}

TEST_CASE("gguf: random damage to the header loads or is a typed error") {
  const TempDir dir("gguf_damage");
  const std::string tiny = read_file(kTinyGguf), path = dir / "case.gguf";
  write_file(path, tiny);
  const std::size_t n_header = tiny.rfind("output.weight") + 64;  // behind the last tensor's entry
  REQUIRE(n_header < 8000);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  std::mt19937 random(33);
  int n_loaded = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string header = tiny.substr(0, n_header);
    const auto n_flips = 1 + random() % 4;
    for (std::uint32_t k = 0; k < n_flips; ++k) header[random() % n_header] ^= static_cast<char>(1U << random() % 8U);
    file.seekp(0).write(header.data(), static_cast<std::streamsize>(header.size())).flush();
    CAPTURE(i);
    REQUIRE_NOTHROW(n_loaded += error_of([&] { load_oracle(path); }).empty() ? 1 : 0);
  }
  // Damage inside names of tokens and of the model stays unseen; most is found.
  CHECK(n_loaded > 0);
  CHECK(n_loaded < 3000);
}

TEST_CASE("gguf: a key or a tensor that stands twice is refused") {
  const TempDir dir("gguf_twice");
  const MadeModel model(4, 2, false);
  GgufWriter out;
  add_config(out, model.config);
  add_tensors(out, model);
  GgufWriter key = out, tensor = out;
  key.add_u32("llama.block_count", 2);
  tensor.add_tensor("output_norm.weight", DType::f32, {32}, std::string(128, '\0'));
  CHECK(load_error(dir, out.bytes()).empty());
  CHECK(contains(load_error(dir, key.bytes()), "llama.block_count"));
  CHECK(contains(load_error(dir, tensor.bytes()), "output_norm.weight"));
}
