#include "kernels/cpu/packed_matrix.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <string>

#include "kernels/cpu/isa.hpp"

namespace banyan::kernels {

PackedMatrix::PackedMatrix(std::int64_t rows_out, std::int64_t rows_in, DType element, const Backend::RowSource& rows,
                           Team& team) {
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
  const std::int64_t n_panel = kPanelColumns * n_in;
  float* scratch_rows = scratch.reserve<float>(checked_mul(n_panel, team.n_threads(), "weights"));
  data_ = allocate_aligned(bytes);
  team.run(n_panels_, [&](std::int64_t p, int thread) {
    const std::int64_t begin = p * kPanelColumns, end = std::min(begin + kPanelColumns, n_out);
    float* panel_rows = scratch_rows + thread * n_panel;
    rows.fill(begin, end, panel_rows);
    pack_panel(p, panel_rows, end - begin);
  });
}

void PackedMatrix::pack_panel(std::int64_t p, const float* rows, std::int64_t n_rows) {
  // So many elements of each row at a time: the 4 kB that they are spread over stay in the first cache.
  constexpr std::int64_t kStep = 16;
  std::byte* out = static_cast<std::byte*>(data_) + p * panel_bytes_;
  if (n_rows < kPanelColumns || n_in < n_in_padded_) std::memset(out, 0, static_cast<std::size_t>(panel_bytes_));
  for (std::int64_t begin = 0; begin < n_in; begin += kStep) {
    const std::int64_t end = std::min(begin + kStep, n_in);
    for (std::int64_t n = 0; n < n_rows; ++n) {
      const float* row = rows + n * n_in;
      if (type == DType::f32) {
        auto* dst = reinterpret_cast<float*>(out) + n;
        for (std::int64_t k = begin; k < end; ++k) dst[k * kPanelColumns] = row[k];
      } else {
        // Pair by pair: a store of one element each would be twice as many.
        std::array<bf16, kStep> values{};
        for (std::int64_t k = begin; k < end; ++k) values[static_cast<std::size_t>(k - begin)] = to_bf16(row[k]);
        for (std::int64_t k = begin; k < end; k += 2) {
          std::memcpy(out + (k / 2 * kPanelColumns + n) * 2 * static_cast<std::int64_t>(sizeof(bf16)),
                      &values[static_cast<std::size_t>(k - begin)], 2 * sizeof(bf16));
        }
      }
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
