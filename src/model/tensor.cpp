#include "model/tensor.hpp"

#include <cassert>

namespace banyan {
std::int64_t Tensor::n_elements() const {
  std::int64_t n = 1;
  for (const std::int64_t dim : shape) n *= dim;  // did not overflow in tensor_bytes()
  return n;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t dim : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

std::int64_t tensor_bytes(DType type, const std::vector<std::int64_t>& shape, const std::string& where) {
  std::int64_t n = 1;
  for (const std::int64_t dim : shape) {
    if (dim < 1) throw Error(ErrorCode::bad_file, where, "shape " + shape_text(shape) + " has a dimension below 1");
    n = checked_mul(n, dim, where + ": shape " + shape_text(shape));
  }
  try {
    const std::int64_t row = shape.empty() ? 1 : shape.back();
    return checked_mul(dtype_bytes(type, row), n / row, "bytes");
  } catch (const Error& e) {
    throw Error(ErrorCode::bad_file, where, "shape " + shape_text(shape) + ": " + e.what());
  }
}

std::span<const std::byte> row_of(const Tensor& matrix, std::int64_t row) {
  assert(matrix.shape.size() == 2 && row >= 0 && row < matrix.shape[0]);
  const std::int64_t row_bytes = matrix.bytes / matrix.shape[0];
  return {matrix.data + row * row_bytes, static_cast<std::size_t>(row_bytes)};
}

void dequantize_row(const Tensor& matrix, std::int64_t row, float* dst) {
  dequantize(matrix.type, row_of(matrix, row).data(), matrix.shape[1], dst);
}

}  // namespace banyan
