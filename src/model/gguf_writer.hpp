// Writer of GGUF files (version 3, or 2, which differs in nothing but its number). Layer 5, internal. It knows the
// container, not what a model is: keys and tensors come out as they were put in, and whether they make sense is the
// caller's matter (tests write senseless ones).
//
// Keys and the list of tensors are kept laid out; tensor data need not be: either add_tensor() keeps them and bytes()
// gives the whole file, or list_tensor() announces them and the caller writes header(), then each tensor's bytes in the
// order of the list, each followed by padding() of them. One thread.
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
  explicit GgufWriter(std::uint32_t version = 3) : version_(version) {}

  void add_string(std::string_view key, std::string_view value);
  void add_u32(std::string_view key, std::uint32_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_strings(std::string_view key, std::span<const std::string> values);
  void add_ints(std::string_view key, std::span<const std::int32_t> values);
  void add_floats(std::string_view key, std::span<const float> values);
  // A value as another file has it: its type and what follows.
  void add_raw(std::string_view key, std::span<const std::byte> value);

  // `shape` outermost first, as in Tensor.
  void list_tensor(std::string_view name, DType type, const std::vector<std::int64_t>& shape, std::int64_t bytes);
  // The same, and keeps the data.
  void add_tensor(std::string_view name, DType type, const std::vector<std::int64_t>& shape, std::string data);

  std::string header() const;                      // everything in front of the tensor data
  static std::string padding(std::int64_t bytes);  // what follows so many bytes of a tensor
  std::string bytes() const { return header() + data_; }

 private:
  void begin_key(std::string_view key, GgufType type);
  void begin_array(std::string_view key, GgufType type, std::size_t n);

  std::uint32_t version_;
  std::string keys_;         // laid out
  std::string tensor_list_;  // laid out
  std::string data_;         // padded
  std::uint64_t n_keys_ = 0, n_tensors_ = 0, data_end_ = 0;
};

}  // namespace banyan
