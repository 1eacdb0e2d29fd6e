// Writer of small safetensors files, for tests that make models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "banyan/types.hpp"

namespace banyan {

struct SafetensorsEntry {
  std::string name;
  DType type = DType::f32;          // f32, f16 or bf16
  std::vector<std::int64_t> shape;  // outermost first
  std::string data;                 // tensor_bytes(type, shape) long
};

// The whole file: header length, header, data in the order of the entries.
std::string safetensors_bytes(const std::vector<SafetensorsEntry>& entries);

}  // namespace banyan
