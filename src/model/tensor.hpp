// A tensor as it lies in a checkpoint file: type, shape, bytes. A view: the file that it points into must outlive it.
// Layer 5, internal. Knows no file format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "banyan/types.hpp"

namespace banyan {

struct Tensor {
  std::string where;  // "file: tensor 'name'", for messages
  DType type = DType::f32;
  std::vector<std::int64_t> shape{};  // outermost first: a matrix is [n_rows, n_cols]
  const std::byte* data = nullptr;    // any alignment
  std::int64_t bytes = 0;

  std::int64_t n_elements() const;
};

// By name, in the file's own spelling.
using TensorMap = std::map<std::string, Tensor, std::less<>>;

// "[576, 1536]"
std::string shape_text(const std::vector<std::int64_t>& shape);

// Bytes of a tensor of this type and shape. Throws Error{bad_file} naming `where` if the shape has a dimension < 1, is
// too large for 63 bits, or if its rows are not whole blocks of a quantised type.
std::int64_t tensor_bytes(DType type, const std::vector<std::int64_t>& shape, const std::string& where);

// Writes n elements of `type` as f32; n is whole blocks for quantised types.
//   q8_0: block of 32 = f16 scale d, 32 int8 q:                          x = d q
//   q4_0: block of 32 = f16 scale d, 16 bytes, low nibbles first:        x = d (q - 8)
//   q4_1: block of 32 = f16 scale d, f16 minimum m, 16 bytes as above:   x = d q + m
void dequantize(DType type, const std::byte* src, std::int64_t n, float* dst);

// Row `row` of a matrix, [shape[1]] f32.
void dequantize_row(const Tensor& matrix, std::int64_t row, float* dst);

}  // namespace banyan
