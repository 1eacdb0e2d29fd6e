#include "kernels/cpu/attention_units.hpp"

#include <algorithm>
#include <cassert>

namespace banyan::kernels {
namespace {

// A unit's queries share each K and V tile, which is converted once per unit. By instruction counts (AVX-512, 64 keys,
// 64 dims, bf16) that costs about as much as three packed rows, so 48 packed rows keep it below 7 %.
constexpr std::int64_t kFewestPackedRows = 48;
// Queries and outputs of a unit stay in the level 2 cache: 192 x 128 dims x 2 x 4 bytes are 192 KiB.
constexpr std::int64_t kMostPackedRows = 192;
// Units of very different sizes (the first and the last rows of a prompt) even out when there are a few per thread.
constexpr std::int64_t kUnitsPerThread = 6;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

void AttentionUnits::cut(const StepArrays& step, int n_threads) {
  const std::int64_t n_heads_kv = step.n_heads_kv, group = step.n_heads_q / n_heads_kv;
  const std::int64_t wanted = n_threads == 1 ? 1 : ceil_div(kUnitsPerThread * n_threads, n_heads_kv);
  const std::int64_t fewest = ceil_div(kFewestPackedRows, group),
                     most = std::max<std::int64_t>(1, kMostPackedRows / group);
  const std::int64_t rows = std::clamp(ceil_div(step.n_rows, wanted), std::min(fewest, most), most);
  rows_per_block_ = ceil_div(step.n_rows, ceil_div(step.n_rows, rows));
  n_blocks_ = ceil_div(step.n_rows, rows_per_block_);

  // Counting sort of (block, call) pairs.
  const auto each = [&](auto&& visit) {
    for (std::size_t c = 0; c < step.calls.size(); ++c) {
      const AttentionCall& call = step.calls[c];
      assert(call.row_begin >= 0 && call.row_end <= step.n_rows);
      if (call.row_begin >= call.row_end || call.n_keys == 0) continue;
      const std::int64_t last = (call.row_end - 1) / rows_per_block_;
      for (std::int64_t b = call.row_begin / rows_per_block_; b <= last; ++b) visit(static_cast<std::size_t>(b), c);
    }
  };
  begin_.assign(static_cast<std::size_t>(n_blocks_) + 1, 0);
  each([&](std::size_t block, std::size_t) { ++begin_[block + 1]; });
  for (std::size_t b = 1; b < begin_.size(); ++b) begin_[b] += begin_[b - 1];
  cursor_.assign(begin_.begin(), begin_.end() - 1);
  index_.resize(begin_.back());
  each([&](std::size_t block, std::size_t call) { index_[cursor_[block]++] = static_cast<std::int32_t>(call); });
}

}  // namespace banyan::kernels
