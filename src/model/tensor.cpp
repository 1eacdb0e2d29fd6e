#include "model/tensor.hpp"

#include <cassert>
#include <cstring>

namespace banyan {
namespace {

constexpr std::int64_t kBlock = 32;  // elements of every quantised block

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

float load_f16(const std::byte* p) { return to_float(f16{load<std::uint16_t>(p)}); }

// Both 4-bit types keep element i in the low half of byte i and element i + 16 in its high half.
void expand_nibbles(const std::byte* quants, float scale, float offset, float* dst) {
  for (std::int64_t i = 0; i < kBlock / 2; ++i) {
    const auto q = static_cast<unsigned>(quants[i]);
    dst[i] = scale * static_cast<float>(q & 15U) + offset;
    dst[i + kBlock / 2] = scale * static_cast<float>(q >> 4U) + offset;
  }
}

}  // namespace

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

void dequantize(DType type, const std::byte* src, std::int64_t n, float* dst) {
  assert(type == DType::f32 || type == DType::f16 || type == DType::bf16 || n % kBlock == 0);
  switch (type) {
    case DType::f32: std::memcpy(dst, src, static_cast<std::size_t>(n) * sizeof(float)); return;
    case DType::f16:
      for (std::int64_t i = 0; i < n; ++i) dst[i] = load_f16(src + 2 * i);
      return;
    case DType::bf16:
      for (std::int64_t i = 0; i < n; ++i) dst[i] = to_float(bf16{load<std::uint16_t>(src + 2 * i)});
      return;
    case DType::q8_0:
      for (; n > 0; n -= kBlock, src += 2 + kBlock, dst += kBlock) {
        const float scale = load_f16(src);
        for (std::int64_t i = 0; i < kBlock; ++i) dst[i] = scale * static_cast<float>(load<std::int8_t>(src + 2 + i));
      }
      return;
    case DType::q4_0:
      for (; n > 0; n -= kBlock, src += 2 + kBlock / 2, dst += kBlock) {
        const float scale = load_f16(src);
        expand_nibbles(src + 2, scale, -8.0F * scale, dst);
      }
      return;
    case DType::q4_1:
      for (; n > 0; n -= kBlock, src += 4 + kBlock / 2, dst += kBlock) {
        expand_nibbles(src + 4, load_f16(src), load_f16(src + 2), dst);
      }
      return;
  }
}

void dequantize_row(const Tensor& matrix, std::int64_t row, float* dst) {
  assert(matrix.shape.size() == 2 && row >= 0 && row < matrix.shape[0]);
  dequantize(matrix.type, matrix.data + row * (matrix.bytes / matrix.shape[0]), matrix.shape[1], dst);
}

}  // namespace banyan
