#include "gguf_writer.hpp"

#include <array>
#include <cstring>

namespace banyan {
namespace {

constexpr std::size_t kAlignment = 32;  // bytes; the format's default

template <typename T>
void put(std::string& out, T value) {
  std::array<char, sizeof(T)> raw;
  std::memcpy(raw.data(), &value, sizeof value);
  out.append(raw.data(), raw.size());
}

void put_string(std::string& out, std::string_view text) {
  put(out, std::uint64_t{text.size()});
  out += text;
}

void pad(std::string& out) { out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment); }

std::uint32_t type_number(DType type) {
  switch (type) {
    case DType::f32: return 0;
    case DType::f16: return 1;
    case DType::q4_0: return 2;
    case DType::q4_1: return 3;
    case DType::q8_0: return 8;
    case DType::bf16: return 30;
  }
  return 0;
}

}  // namespace

void GgufWriter::begin_key(std::string_view key, GgufType type) {
  ++n_keys_;
  put_string(keys_, key);
  put(keys_, static_cast<std::uint32_t>(type));
}

void GgufWriter::begin_array(std::string_view key, GgufType type, std::size_t n) {
  begin_key(key, GgufType::array);
  put(keys_, static_cast<std::uint32_t>(type));
  put(keys_, std::uint64_t{n});
}

void GgufWriter::add_string(std::string_view key, std::string_view value) {
  begin_key(key, GgufType::string);
  put_string(keys_, value);
}

void GgufWriter::add_u32(std::string_view key, std::uint32_t value) {
  begin_key(key, GgufType::u32);
  put(keys_, value);
}

void GgufWriter::add_f32(std::string_view key, float value) {
  begin_key(key, GgufType::f32);
  put(keys_, value);
}

void GgufWriter::add_bool(std::string_view key, bool value) {
  begin_key(key, GgufType::boolean);
  put(keys_, static_cast<std::uint8_t>(value));
}

void GgufWriter::add_strings(std::string_view key, std::span<const std::string> values) {
  begin_array(key, GgufType::string, values.size());
  for (const auto& value : values) put_string(keys_, value);
}

void GgufWriter::add_ints(std::string_view key, std::span<const std::int32_t> values) {
  begin_array(key, GgufType::i32, values.size());
  for (const auto value : values) put(keys_, value);
}

void GgufWriter::add_floats(std::string_view key, std::span<const float> values) {
  begin_array(key, GgufType::f32, values.size());
  for (const auto value : values) put(keys_, value);
}

void GgufWriter::add_tensor(std::string_view name, DType type, const std::vector<std::int64_t>& shape,
                            std::string data) {
  ++n_tensors_;
  put_string(tensor_list_, name);
  put(tensor_list_, static_cast<std::uint32_t>(shape.size()));
  for (auto dim = shape.rbegin(); dim != shape.rend(); ++dim) put(tensor_list_, *dim);
  put(tensor_list_, type_number(type));
  put(tensor_list_, std::uint64_t{data_.size()});
  data_ += data;
  pad(data_);
}

std::string GgufWriter::bytes() const {
  std::string out = "GGUF";
  put(out, std::uint32_t{3});
  put(out, n_tensors_);
  put(out, n_keys_);
  out += keys_;
  out += tensor_list_;
  pad(out);
  return out + data_;
}

}  // namespace banyan
