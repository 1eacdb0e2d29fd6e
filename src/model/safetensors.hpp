// Reader of safetensors checkpoints: one file, or shards with an index. Layer 5, internal. It knows no model.
//
// Files are untrusted. The header's shape, type and offsets must agree with each other and with the file's size, the
// tensors must cover the data without holes or overlaps (as the format demands), and index and shards must name the
// same tensors, both ways: a tensor that only one of them has is refused, never left out and never left unset. Errors
// are Error{bad_file | unsupported} naming file and tensor.
//
//     u64 n | n bytes of JSON {name: {dtype, shape, data_offsets: [begin, end)}} | tensor data
//
// Tensors point into the mapped files and live as long as the SafetensorsFiles.
#pragma once

#include <string>
#include <vector>

#include "banyan/mapped_file.hpp"
#include "model/tensor.hpp"

namespace banyan {

class SafetensorsFiles {
 public:
  // Opens model.safetensors of a directory, or else the shards that model.safetensors.index.json names.
  explicit SafetensorsFiles(const std::string& dir);

  // Opens one file, whatever its name.
  static SafetensorsFiles of_file(const std::string& path);

  const TensorMap& tensors() const { return tensors_; }

 private:
  SafetensorsFiles() = default;
  TensorMap open_file(const std::string& path);
  void open_shards(const std::string& dir, const std::string& index_path);

  std::vector<MappedFile> files_;
  TensorMap tensors_;
};

}  // namespace banyan
