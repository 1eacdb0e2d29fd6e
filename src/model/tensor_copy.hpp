// Copies the rows of a tensor into another element type and measures what is lost. Layer 5, internal. Knows no file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/team.hpp"
#include "model/tensor.hpp"

namespace banyan {

struct CopyError {
  double error_squares = 0, value_squares = 0;  // sums of (y - x)^2 and x^2
  double largest = 0;                           // max |y - x|
};

// For each row of the copy, the row of the source that it holds.
using RowOrder = std::function<std::int64_t(std::int64_t)>;

// Hands the copy's bytes to `write`, in order, some megabytes at a time; a vector is one row unless `order` says where
// its elements come from. The source's pages are given back as they are read. Throws Error{bad_file} for a value that
// is not finite, Error{unsupported} for one that the type cannot hold, both naming the tensor.
CopyError copy_tensor(const Tensor& source, DType type, const RowOrder& order, Team& team,
                      const std::function<void(std::span<const std::byte>)>& write);

}  // namespace banyan
