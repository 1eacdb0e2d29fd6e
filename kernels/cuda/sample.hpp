// The sampler's kernels. Layer 4; raw device pointers and a stream. All is asynchronous and allocates nothing.
//
// Bytes: a row is read from memory once (4 * vocab_size bytes), and again from the L2 cache as often as the query's
// options need (sample_row.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

#include "kernels/cuda/group_topk.hpp"

namespace banyan::kernels::cuda {

// Device memory, but for the counts. Queries answer row [queries[i].row * row_stride, + vocab_size) of logits.
struct SampleArgs {
  const float* logits = nullptr;
  std::int64_t row_stride = 0;  // floats; a multiple of 4 with 16-byte aligned logits is faster
  std::int32_t vocab_size = 0;  // 1 … sampling::kMaxVocab
  std::int32_t n_queries = 0;
  const RowQuery* queries = nullptr;       // [n_queries]
  const std::int32_t* history = nullptr;   // flat, as the queries say; ids in the vocabulary
  RowChoice* choices = nullptr;            // [n_queries], written
  RowTop* tops = nullptr;                  // flat, as the queries say; written
  std::byte* penalty_workspace = nullptr;  // penalty_workspace_bytes(), 0 before the first use; null: no penalties
};

// For queries with penalties: an edited row and token counts for each block. The kernel leaves the counts 0.
std::int64_t penalty_workspace_bytes(std::int64_t vocab_size, int n_multiprocessors);
void launch_sample(const SampleArgs& args, int n_multiprocessors, cudaStream_t stream);

// Device memory. Query i of [group_begin[g], group_begin[g + 1]) is a row of group g, of kind top, answered by
// launch_sample() with n_top = min(k, vocab_size).
struct GroupTopkArgs {
  const RowQuery* queries = nullptr;
  const RowChoice* choices = nullptr;
  const RowTop* tops = nullptr;
  const double* cumulative = nullptr;         // [n_queries]
  const std::int32_t* group_begin = nullptr;  // [n_groups + 1]
  std::int32_t n_groups = 0;
  std::int32_t k = 0;               // 1 … kMaxBeamK
  BeamStep* steps = nullptr;        // [n_groups, k], written as group_topk() says
  std::int32_t* n_steps = nullptr;  // [n_groups], too
};
void launch_group_topk(const GroupTopkArgs& args, cudaStream_t stream);

}  // namespace banyan::kernels::cuda
