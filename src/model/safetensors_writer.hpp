// Writer of safetensors files. Layer 5, internal. It knows the container, not what a model is.
//
// As with GgufWriter: add() keeps the data and bytes() gives the whole file, or list() announces them and the caller
// writes header() and then the bytes of each tensor, in the order of the list and without gaps. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "banyan/types.hpp"

namespace banyan {

class SafetensorsWriter {
 public:
  static bool has_type(DType type);  // f32, f16, bf16

  // `type` is one that has_type(); `shape` outermost first. Names must differ.
  void list(std::string_view name, DType type, const std::vector<std::int64_t>& shape, std::int64_t bytes);
  void add(std::string_view name, DType type, const std::vector<std::int64_t>& shape, const std::string& data);

  std::string header() const;  // its length and itself, filled up so that the data begin at a multiple of 8
  std::string bytes() const { return header() + data_; }

 private:
  std::string entries_;  // of the JSON object, with commas between
  std::string data_;
  std::int64_t data_end_ = 0;
};

}  // namespace banyan
