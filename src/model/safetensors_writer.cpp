#include "model/safetensors_writer.hpp"

#include <array>
#include <cassert>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace banyan {

bool SafetensorsWriter::has_type(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

void SafetensorsWriter::list(std::string_view name, DType type, const std::vector<std::int64_t>& shape,
                             std::int64_t bytes) {
  assert(has_type(type));
  const char* dtype = type == DType::f32 ? "F32" : type == DType::f16 ? "F16" : "BF16";
  const std::int64_t end = data_end_ + bytes;
  const nlohmann::ordered_json entry{{"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_end_, end}}};
  entries_ += fmt::format("{}{}:{}", entries_.empty() ? "" : ",", nlohmann::json(name).dump(), entry.dump());
  data_end_ = end;
}

void SafetensorsWriter::add(std::string_view name, DType type, const std::vector<std::int64_t>& shape,
                            const std::string& data) {
  list(name, type, shape, static_cast<std::int64_t>(data.size()));
  data_ += data;
}

std::string SafetensorsWriter::header() const {
  std::string text = "{" + entries_ + "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t n = text.size();
  std::array<char, sizeof n> length;
  std::memcpy(length.data(), &n, sizeof n);
  return std::string(length.data(), length.size()) + text;
}

}  // namespace banyan
