// The device sampler: one block answers one query after the other, with the algorithm of sample_row.hpp.
//
// Two blocks of 512 threads on a multiprocessor: while one waits for memory the other computes, and the rows in work
// (264 on an H200, 128 KB each at a vocabulary of 32K) stay in the L2 cache for their later passes.
#include <algorithm>

#include "kernels/cuda/block.cuh"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/sample.hpp"
#include "kernels/cuda/sample_row.hpp"

namespace banyan::kernels::cuda {
namespace {

constexpr int kBlocksPerMultiprocessor = 2;

// Rows of the workspace begin at multiples of 16 bytes.
__host__ __device__ constexpr std::int64_t padded_row(std::int64_t vocab_size) { return (vocab_size + 3) / 4 * 4; }

struct BlockScratch {
  RowScratch row;
  std::uint64_t partial[Block::kWarps];
};

__global__ __launch_bounds__(Block::kThreads, kBlocksPerMultiprocessor) void sample_kernel(const SampleArgs a) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto& scratch = *reinterpret_cast<BlockScratch*>(shared);
  RowSampler<Block> sampler(Block(scratch.partial), scratch.row);
  float* edited = nullptr;
  std::uint32_t* counts = nullptr;
  if (a.penalty_workspace != nullptr) {
    const std::int64_t padded = padded_row(a.vocab_size);
    edited = reinterpret_cast<float*>(a.penalty_workspace) + 2 * padded * blockIdx.x;
    counts = reinterpret_cast<std::uint32_t*>(edited + padded);
  }
  for (std::int32_t i = static_cast<std::int32_t>(blockIdx.x); i < a.n_queries; i += gridDim.x) {
    const RowQuery& q = a.queries[i];
    sampler.answer(q, a.logits + q.row * a.row_stride, a.vocab_size, a.history, edited, counts, a.choices + i, a.tops);
  }
}

}  // namespace

std::int64_t penalty_workspace_bytes(std::int64_t vocab_size, int n_multiprocessors) {
  return n_multiprocessors * 2 * padded_row(vocab_size) * static_cast<std::int64_t>(sizeof(float));
}

void launch_sample(const SampleArgs& args, int n_multiprocessors, cudaStream_t stream) {
  if (args.n_queries == 0) return;
  constexpr int kSharedBytes = sizeof(BlockScratch);
  // Above the default limit of 48 KB; per device, and cheap to say again.
  check(cudaFuncSetAttribute(sample_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "cudaFuncSetAttribute(sample)");
  const int per_multiprocessor = args.penalty_workspace != nullptr ? 1 : kBlocksPerMultiprocessor;
  const int n_blocks = std::min(args.n_queries, per_multiprocessor * n_multiprocessors);
  sample_kernel<<<n_blocks, Block::kThreads, kSharedBytes, stream>>>(args);
  check_launch("sample");
}

}  // namespace banyan::kernels::cuda
