#include "kernels/cpu/packed_matrix.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>

#include "kernels/cpu/isa.hpp"

namespace banyan::kernels {

PackedMatrix::PackedMatrix(std::int64_t rows_out, std::int64_t rows_in, DType element, const Backend::RowSource& rows) {
  if (element != DType::f32 && element != DType::bf16) {
    throw Error(ErrorCode::usage, "pack",
                "weights are multiplied in f32 or bf16, not in " + std::string(to_string(element)));
  }
  if (rows_out < 1 || rows_in < 1) {
    throw Error(ErrorCode::usage, "pack",
                "a matrix of " + std::to_string(rows_out) + " x " + std::to_string(rows_in) + " has no elements");
  }
  n_out = rows_out;
  n_in = rows_in;
  type = element;
  const std::int64_t block = type == DType::bf16 ? 32 : 16;
  n_panels_ = (n_out + kPanelColumns - 1) / kPanelColumns;
  n_in_padded_ = checked_mul((n_in + block - 1) / block, block, "weights");
  panel_bytes_ = dtype_bytes(type, checked_mul(n_in_padded_, kPanelColumns, "weights"));
  bytes = checked_mul(n_panels_, panel_bytes_, "weights");

  Scratch scratch;
  float* panel_rows = scratch.reserve<float>(kPanelColumns * n_in);
  data_ = allocate_aligned(bytes);
  try {
    for (std::int64_t p = 0; p < n_panels_; ++p) {
      const std::int64_t begin = p * kPanelColumns, end = std::min(begin + kPanelColumns, n_out);
      rows.fill(begin, end, panel_rows);
      pack_panel(p, panel_rows, end - begin);
    }
  } catch (...) {
    release_aligned(data_);
    throw;
  }
}

void PackedMatrix::pack_panel(std::int64_t p, const float* rows, std::int64_t n_rows) {
  std::byte* out = static_cast<std::byte*>(data_) + p * panel_bytes_;
  std::memset(out, 0, static_cast<std::size_t>(panel_bytes_));
  for (std::int64_t n = 0; n < n_rows; ++n) {
    const float* row = rows + n * n_in;
    if (type == DType::f32) {
      auto* dst = reinterpret_cast<float*>(out) + n;
      for (std::int64_t k = 0; k < n_in; ++k) dst[k * kPanelColumns] = row[k];
    } else {
      auto* dst = reinterpret_cast<bf16*>(out) + 2 * n;
      for (std::int64_t k = 0; k < n_in; ++k) dst[k / 2 * 2 * kPanelColumns + k % 2] = to_bf16(row[k]);
    }
  }
}

void PackedMatrix::row(std::int64_t n, float* dst) const {
  assert(n >= 0 && n < n_out);
  const void* data = panel(n / kPanelColumns);
  const std::int64_t column = n % kPanelColumns;
  if (type == DType::f32) {
    const float* src = static_cast<const float*>(data) + column;
    for (std::int64_t k = 0; k < n_in; ++k) dst[k] = src[k * kPanelColumns];
  } else {
    const bf16* src = static_cast<const bf16*>(data) + 2 * column;
    for (std::int64_t k = 0; k < n_in; ++k) dst[k] = to_float(src[k / 2 * 2 * kPanelColumns + k % 2]);
  }
}

}  // namespace banyan::kernels
