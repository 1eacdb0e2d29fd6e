// The passes over a whole row of logits, for the vector units at hand. Layer 6, internal; raw pointers and sizes.
//
// One source (row_kernels.inl) is compiled once per instruction set. All give the same bits: every element sees the
// same IEEE operations in the same order (no fused multiply-add, which is why these files are compiled with
// -ffp-contract=off), maxima do not depend on order, and sums are of integers
// (kernels/sample_math.hpp) or run over lanes that are fixed in the source.
#pragma once

#include <cstdint>

#include "kernels/sample_math.hpp"

namespace banyan::sampling {

constexpr std::int64_t kBlock = 64;  // elements; block results let later passes skip most of a row
constexpr std::int64_t n_blocks(std::int64_t n) { return (n + kBlock - 1) / kBlock; }

struct RowKernels {
  const char* name;
  // block_max [n_blocks(n)] = maximum of each block of x [n]. Returns false if there is a NaN or +inf (maxima are then
  // meaningless). -inf is legal.
  bool (*block_max)(const float* x, std::int64_t n, float* block_max);
  // e [n] = 2^((x - max) * scale), 0 where it is below `floor`, at least 2^-126 elsewhere; block_weight
  // [n_blocks(n)] = sum of the weights of each block; returns their total. x may be e. x <= max, max finite; scale is
  // log2(e) / T.
  Weight (*weigh)(const float* x, std::int64_t n, float max, float scale, float floor, float* e, Weight* block_weight);
  // The sum of exp(x - max), in a fixed order: float lanes within a block, double lanes over blocks.
  double (*exp_sum)(const float* x, std::int64_t n, float max);
  // The indices i with x[i] >= bound, ascending, into ids [n]; returns their number.
  std::int64_t (*gather)(const float* x, std::int64_t n, float bound, std::int32_t* ids);
};

const RowKernels& portable_kernels();
// The fastest that this machine runs.
const RowKernels& best_kernels();

}  // namespace banyan::sampling
