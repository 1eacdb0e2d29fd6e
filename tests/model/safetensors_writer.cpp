#include "safetensors_writer.hpp"

#include <array>
#include <cassert>
#include <cstring>
#include <nlohmann/json.hpp>

namespace banyan {

std::string safetensors_bytes(const std::vector<SafetensorsEntry>& entries) {
  auto header = nlohmann::ordered_json::object();
  std::string data;
  for (const auto& entry : entries) {
    assert(entry.type == DType::f32 || entry.type == DType::f16 || entry.type == DType::bf16);
    const char* dtype = entry.type == DType::f32 ? "F32" : entry.type == DType::f16 ? "F16" : "BF16";
    header[entry.name] = {
        {"dtype", dtype}, {"shape", entry.shape}, {"data_offsets", {data.size(), data.size() + entry.data.size()}}};
    data += entry.data;
  }
  const std::string text = header.dump();
  const std::uint64_t n = text.size();
  std::array<char, sizeof n> length;
  std::memcpy(length.data(), &n, sizeof n);
  return std::string(length.data(), length.size()) + text + data;
}

}  // namespace banyan
