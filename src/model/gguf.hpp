// Reader of GGUF files (versions 2 and 3, little-endian). Layer 5, internal. It knows the container, not what a model
// is.
//
// The file is untrusted: every count, length, type and offset is checked against the bytes that are there before it is
// used, so a crafted file costs neither memory nor time beyond its own size. Errors are Error{bad_file | unsupported}
// whose `where` is "path: field".
//
//     magic "GGUF" | u32 version | u64 n_tensors | u64 n_keys
//     n_keys    x  string key | u32 type | value          (string: u64 length, bytes;  array: u32 type, u64 n, values)
//     n_tensors x  string name | u32 n_dims | u64 dims, innermost first | u32 type | u64 offset
//     padding to `general.alignment` | tensor data in the same order, each padded likewise
//
// Views that are handed out (strings, tensors) point into the mapped file and live as long as the GgufFile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "banyan/mapped_file.hpp"
#include "model/tensor.hpp"

namespace banyan {

// Value types of metadata, as numbered in the file.
enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

// The file's number of a tensor type.
std::uint32_t gguf_type_number(DType type);

class GgufFile {
 public:
  // `metadata` leaves the tensor list unread: for tokenizers of files whose weights banyan cannot use.
  enum class Scope : std::uint8_t { metadata, everything };
  explicit GgufFile(const std::string& path, Scope scope = Scope::everything);

  static bool has_magic(std::span<const std::byte> bytes);

  const std::string& path() const { return file_.path(); }
  bool has(std::string_view key) const { return values_.contains(key); }

  // Value of a key; nothing when the key is absent. A value of another type throws Error{bad_file}. Integers of every
  // width are read by find_int (u64 beyond 63 bits throws), f32 and f64 by find_float.
  std::optional<std::int64_t> find_int(std::string_view key) const;
  std::optional<double> find_float(std::string_view key) const;
  std::optional<bool> find_bool(std::string_view key) const;
  std::optional<std::string_view> find_string(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> find_ints(std::string_view key) const;
  std::optional<std::vector<float>> find_floats(std::string_view key) const;
  std::optional<std::vector<std::string_view>> find_strings(std::string_view key) const;
  // True when the value is an array: some keys are a number in one file and one number per layer in another.
  bool is_array(std::string_view key) const;
  // Elements of an array, to be looked at before they are read; 0 where there is none.
  std::uint64_t array_length(std::string_view key) const;

  // Keys in ascending order, and a value as it lies in the file, its type in front: for copies.
  std::vector<std::string_view> keys() const;
  std::span<const std::byte> raw_value(std::string_view key) const;  // of a key that is there

  const TensorMap& tensors() const { return tensors_; }

  // Error{bad_file} about a key of this file.
  Error key_error(std::string_view key, const std::string& message) const;

 private:
  struct Value {
    GgufType type = GgufType::u8;  // of the elements when it is an array
    bool array = false;
    std::uint64_t n = 1;
    const std::byte* data = nullptr;   // first element, unaligned
    std::span<const std::byte> raw{};  // all of it, with its type
  };
  class Cursor;

  void read_metadata(Cursor& in, std::uint64_t n_keys);
  void read_tensors(Cursor& in, std::uint64_t n_tensors);
  const Value* find(std::string_view key, bool array) const;
  std::int64_t integer(std::string_view key, const Value& value, std::uint64_t i) const;
  double number(std::string_view key, const Value& value, std::uint64_t i) const;

  MappedFile file_;
  std::map<std::string_view, Value> values_;
  TensorMap tensors_;
};

}  // namespace banyan
