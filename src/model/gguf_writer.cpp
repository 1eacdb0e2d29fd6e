#include "model/gguf_writer.hpp"

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

void GgufWriter::add_raw(std::string_view key, std::span<const std::byte> value) {
  ++n_keys_;
  put_string(keys_, key);
  keys_.append(reinterpret_cast<const char*>(value.data()), value.size());
}

void GgufWriter::list_tensor(std::string_view name, DType type, const std::vector<std::int64_t>& shape,
                             std::int64_t bytes) {
  ++n_tensors_;
  put_string(tensor_list_, name);
  put(tensor_list_, static_cast<std::uint32_t>(shape.size()));
  for (auto dim = shape.rbegin(); dim != shape.rend(); ++dim) put(tensor_list_, *dim);
  put(tensor_list_, gguf_type_number(type));
  put(tensor_list_, data_end_);
  data_end_ += static_cast<std::uint64_t>(bytes) + padding(bytes).size();
}

void GgufWriter::add_tensor(std::string_view name, DType type, const std::vector<std::int64_t>& shape,
                            std::string data) {
  const auto n = static_cast<std::int64_t>(data.size());
  list_tensor(name, type, shape, n);
  data_ += data + padding(n);
}

std::string GgufWriter::padding(std::int64_t bytes) {
  const auto over = static_cast<std::size_t>(bytes) % kAlignment;
  return std::string(over == 0 ? 0 : kAlignment - over, '\0');
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  put(out, version_);
  put(out, n_tensors_);
  put(out, n_keys_);
  out += keys_;
  out += tensor_list_;
  return out + padding(static_cast<std::int64_t>(out.size()));
}

}  // namespace banyan
