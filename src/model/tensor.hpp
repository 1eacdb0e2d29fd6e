// A tensor as it lies in a checkpoint file: type, shape, bytes. A view: the file that it points into must outlive it.
// Layer 5, internal. Knows no file format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "banyan/types.hpp"
#include "model/quants.hpp"

namespace banyan {

struct Tensor {
  std::string where;  // "file: tensor 'name'", for messages
  DType type = DType::f32;
  std::vector<std::int64_t> shape{};  // outermost first: a matrix is [n_rows, n_cols]
  const std::byte* data = nullptr;    // any alignment
  std::int64_t bytes = 0;

  std::int64_t n_elements() const;
};

// Far above any model that banyan can run: they bound what the lists of a crafted file cost.
constexpr std::size_t kMaxTensors = 65536;
constexpr std::size_t kMaxTensorNameBytes = 256;

// By name, in the file's own spelling.
using TensorMap = std::map<std::string, Tensor, std::less<>>;

// "[576, 1536]"
std::string shape_text(const std::vector<std::int64_t>& shape);

// Bytes of a tensor of this type and shape. Throws Error{bad_file} naming `where` if the shape has a dimension < 1, is
// too large for 63 bits, or if its rows are not whole blocks of a quantised type.
std::int64_t tensor_bytes(DType type, const std::vector<std::int64_t>& shape, const std::string& where);

// The bytes of row `row` of a matrix; its values, [shape[1]] f32.
std::span<const std::byte> row_of(const Tensor& matrix, std::int64_t row);
void dequantize_row(const Tensor& matrix, std::int64_t row, float* dst);

}  // namespace banyan
