// Writer of small GGUF files (version 3): for tests that make models. Everything is kept in memory until bytes() lays
// it out; nothing is checked that a test may want to write wrongly.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf.hpp"

namespace banyan {

class GgufWriter {
 public:
  void add_string(std::string_view key, std::string_view value);
  void add_u32(std::string_view key, std::uint32_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_strings(std::string_view key, std::span<const std::string> values);
  void add_ints(std::string_view key, std::span<const std::int32_t> values);
  void add_floats(std::string_view key, std::span<const float> values);
  // `shape` outermost first, as in Tensor; `data` is tensor_bytes(type, shape) long.
  void add_tensor(std::string_view name, DType type, const std::vector<std::int64_t>& shape, std::string data);

  std::string bytes() const;

 private:
  void begin_key(std::string_view key, GgufType type);
  void begin_array(std::string_view key, GgufType type, std::size_t n);

  std::string keys_;         // laid out
  std::string tensor_list_;  // laid out
  std::string data_;         // aligned pieces
  std::uint64_t n_keys_ = 0, n_tensors_ = 0;
};

}  // namespace banyan
