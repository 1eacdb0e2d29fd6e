// Top-k, top-p and min-p as choices of candidates. Layer 6, internal; knows rows of numbers, not options or streams.
//
// The order of candidates is: the larger logit first, the lower id first among equals. Top-k keeps exactly k of it,
// top-p its shortest beginning with enough weight; so a cut through equals is the same everywhere (Hugging Face keeps
// all that equal the k-th logit, and leaves the order at the border of top-p to an unstable sort). Nothing here sorts a
// row: a cheap bound leaves few candidates, and only those at the border are sorted. Scratch memory of one thread;
// nothing is allocated but in reserve().
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sampler/row_kernels.hpp"

namespace banyan::sampling {

// Tokens that can still be drawn, ids ascending. Some may be out already: those have e = 0.
struct Candidates {
  std::vector<std::int32_t> ids;  // [capacity]; the first n count
  std::vector<float> e;           // exp((logit - max) / T) of each, in [0, 1]
  std::int64_t n = 0;

  void reserve(std::int64_t vocab_size);
};

class Filters {
 public:
  void reserve(std::int64_t vocab_size);
  // The k likeliest of the row by logit, 1 <= k <= row.size(). Sets ids and n, not e. block_max: of the row, from
  // RowKernels::block_max.
  void top_k(const RowKernels& kernels, std::span<const float> row, std::span<const float> block_max, std::int64_t k,
             Candidates& out);
  // Candidates that surely hold the tokens of the whole row that top_p() will keep. e [vocab_size] of the whole row.
  static void before_top_p(const RowKernels& kernels, std::span<const float> e, Weight total, Weight wanted,
                           Candidates& out);
  // Keeps the shortest beginning (at least one token) whose weight is >= wanted; returns its weight. The order is that
  // of the logits `row` [vocab_size].
  Weight top_p(std::span<const float> row, Weight wanted, Candidates& candidates);
  // Keeps e >= floor, so the likeliest (e = 1) always; returns their weight.
  static Weight min_p(float floor, Candidates& candidates);

 private:
  struct Bin {
    Weight weight = 0;
    std::int64_t count = 0;
  };
  static constexpr int kBinBits = 10;
  // Sets the range of keys_ [low, high] that holds the border of top-p; returns the weight above high.
  Weight find_border(const Candidates& candidates, Weight wanted, std::uint32_t& low, std::uint32_t& high);

  std::vector<float> values_;         // block maxima or candidate logits, reordered
  std::vector<std::uint32_t> keys_;   // ordered_bits() of the candidates' logits
  std::vector<std::int32_t> border_;  // places in the candidates
  std::array<Bin, 1 << kBinBits> bins_{};
};

}  // namespace banyan::sampling
