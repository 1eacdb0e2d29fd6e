// How one layer's attention is cut into units that threads can take in any order: blocks of rows, times KV heads. A
// unit walks all calls that touch its rows, in order, so calls of one row keep their order without any waiting, and
// which block a row falls into changes no bit of it. Knows no arithmetic. Allocates only while it grows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.hpp"

namespace banyan::kernels {

class AttentionUnits {
 public:
  void cut(const StepArrays& step, int n_threads);

  std::int64_t n_blocks() const { return n_blocks_; }
  std::int64_t rows_per_block() const { return rows_per_block_; }  // the last block may be shorter
  // Indices of the calls that touch the block's rows, ascending.
  std::span<const std::int32_t> calls(std::int64_t block) const {
    const auto i = static_cast<std::size_t>(block);
    return std::span(index_).subspan(begin_[i], begin_[i + 1] - begin_[i]);
  }

 private:
  std::int64_t n_blocks_ = 0, rows_per_block_ = 1;
  std::vector<std::size_t> begin_;   // [n_blocks + 1] into index_
  std::vector<std::size_t> cursor_;  // [n_blocks]
  std::vector<std::int32_t> index_;
};

}  // namespace banyan::kernels
