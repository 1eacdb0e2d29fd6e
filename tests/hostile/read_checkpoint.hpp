// What the loading of a model does to its files, without a backend: shared by the tests of hostile files and the
// fuzzers.
#pragma once

#include <string>
#include <vector>

#include "model/checkpoint.hpp"

namespace banyan::test {

// Every value of every tensor, row by row.
inline void read_values(const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const std::int64_t n_row = tensor.shape.empty() ? 1 : tensor.shape.back();
    const std::int64_t n_rows = tensor.n_elements() / n_row;
    std::vector<float> row(static_cast<std::size_t>(n_row));
    for (std::int64_t r = 0; r < n_rows; ++r) {
      dequantize(tensor.type, tensor.data + r * (tensor.bytes / n_rows), n_row, row.data());
    }
  }
}

inline void read_checkpoint(const std::string& path) { read_values(open_checkpoint(path).tensors()); }

}  // namespace banyan::test
