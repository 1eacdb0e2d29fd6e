// A weight matrix in the panels of isa.hpp. Knows the layout and nothing of products.
//
//     W [n_out, n_in]  ->  panel p holds rows 64 p .. 64 p + 63:  f32 [n_in_padded][64],  bf16 [n_in_padded / 2][64][2]
//
// Rows past n_out and elements past n_in are 0. The layout is what oneDNN calls BA16a64b and BA16a64b2a, so both kinds
// of product read the same memory; row() reads a row back exactly, so a tied embedding needs no second copy.
#pragma once

#include "base/team.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/ops.hpp"

namespace banyan::kernels {

class PackedMatrix final : public Matrix {
 public:
  // The team shares the panels out. Throws Error{usage} for a type other than f32 and bf16 or an empty shape,
  // Error{out_of_memory}.
  PackedMatrix(std::int64_t n_out, std::int64_t n_in, DType type, const Backend::RowSource& rows, Team& team);
  ~PackedMatrix() override { release_aligned(data_); }
  PackedMatrix(const PackedMatrix&) = delete;
  PackedMatrix& operator=(const PackedMatrix&) = delete;

  const void* panel(std::int64_t p) const { return static_cast<const std::byte*>(data_) + p * panel_bytes_; }
  std::int64_t n_panels() const { return n_panels_; }
  std::int64_t panel_bytes() const { return panel_bytes_; }
  std::int64_t n_in_padded() const { return n_in_padded_; }
  // Writes row n, [n_in] f32.
  void row(std::int64_t n, float* dst) const;

 private:
  void pack_panel(std::int64_t p, const float* rows, std::int64_t n_rows);
  std::int64_t n_panels_ = 0, n_in_padded_ = 0, panel_bytes_ = 0;
  void* data_ = nullptr;
};

}  // namespace banyan::kernels
