#include "model/tensor_copy.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "banyan/mapped_file.hpp"

namespace banyan {
namespace {

constexpr std::int64_t kChunkElements = 1 << 22;  // of f32: 16 MB, and as much again for their twins
constexpr std::int64_t kPieceElements = 1 << 14;  // at least, of one thread's turn

struct Piece {
  CopyError error;
  float largest_value = 0;
  bool finite = true;
};

void measure(std::span<const float> x, std::span<const float> y, Piece& piece) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double difference = static_cast<double>(y[i]) - static_cast<double>(x[i]);
    piece.error.error_squares += difference * difference;
    piece.error.value_squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    piece.error.largest = std::max(piece.error.largest, std::fabs(difference));
  }
}

}  // namespace

CopyError copy_tensor(const Tensor& source, DType type, const RowOrder& order, Team& team,
                      const std::function<void(std::span<const std::byte>)>& write) {
  // A vector with an order is a matrix of one column.
  const std::int64_t n = source.n_elements();
  const std::int64_t n_cols = source.shape.size() < 2 ? (order ? 1 : n) : source.shape.back(), n_rows = n / n_cols;
  const std::int64_t source_bytes = source.bytes / n_rows, row_bytes = dtype_bytes(type, n_cols);
  const std::int64_t chunk = std::clamp<std::int64_t>(kChunkElements / n_cols, 1, n_rows);
  const std::int64_t per_piece = std::max<std::int64_t>(1, kPieceElements / n_cols);

  std::vector<float> x(static_cast<std::size_t>(chunk * n_cols)), y(x.size());
  std::vector<std::byte> out(static_cast<std::size_t>(chunk * row_bytes));
  std::vector<Piece> pieces;
  CopyError total;
  for (std::int64_t begin = 0; begin < n_rows; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, n_rows), n_pieces = (end - begin + per_piece - 1) / per_piece;
    pieces.assign(static_cast<std::size_t>(n_pieces), {});
    team.run(n_pieces, [&](std::int64_t p, int) {
      const std::int64_t first = begin + p * per_piece, last = std::min(first + per_piece, end);
      const std::int64_t at = (first - begin) * n_cols, count = (last - first) * n_cols;
      Piece& piece = pieces[static_cast<std::size_t>(p)];
      for (std::int64_t row = first; row < last; ++row) {
        const std::int64_t from = order ? order(row) : row;
        dequantize(source.type, source.data + from * source_bytes, n_cols, x.data() + (row - begin) * n_cols);
      }
      const std::span<const float> values(x.data() + at, static_cast<std::size_t>(count));
      for (const float value : values) {
        piece.finite = piece.finite && std::isfinite(value);
        piece.largest_value = std::max(piece.largest_value, std::fabs(value));
      }
      const bool fits = type == DType::f32 || type == DType::bf16 || piece.largest_value <= kMostInHalf;
      if (!piece.finite || !fits) return;
      std::byte* stored = out.data() + (first - begin) * row_bytes;
      quantize(type, values.data(), count, stored);
      dequantize(type, stored, count, y.data() + at);
      measure(values, {y.data() + at, values.size()}, piece);
    });
    for (const Piece& piece : pieces) {
      if (!piece.finite) throw Error(ErrorCode::bad_file, source.where, "has a value that is not finite");
      if (type != DType::f32 && type != DType::bf16 && piece.largest_value > kMostInHalf) {
        throw Error(ErrorCode::unsupported, source.where,
                    fmt::format("has a value of {}, which {} cannot hold ({} at most)", piece.largest_value,
                                to_string(type), kMostInHalf));
      }
      total.error_squares += piece.error.error_squares;
      total.value_squares += piece.error.value_squares;
      total.largest = std::max(total.largest, piece.error.largest);
    }
    write({out.data(), static_cast<std::size_t>((end - begin) * row_bytes)});
    if (!order) {
      forget_pages({source.data + begin * source_bytes, static_cast<std::size_t>((end - begin) * source_bytes)});
    }
  }
  if (order) forget_pages({source.data, static_cast<std::size_t>(source.bytes)});
  return total;
}

}  // namespace banyan
