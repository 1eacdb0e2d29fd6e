// One block for each beam: group_topk.hpp.
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/group_topk.hpp"
#include "kernels/cuda/sample.hpp"

namespace banyan::kernels::cuda {
namespace {

constexpr int kSharedBytes = kBeamList * sizeof(BeamStep) + Block::kWarps * sizeof(std::uint64_t);

__global__ __launch_bounds__(Block::kThreads) void group_topk_kernel(const GroupTopkArgs a) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto* const list = reinterpret_cast<BeamStep*>(shared);
  const auto group = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t begin = a.group_begin[group], end = a.group_begin[group + 1];
  const BeamRows rows{a.queries + begin, a.choices + begin, a.tops, a.cumulative + begin, end - begin};
  group_topk(Block(reinterpret_cast<std::uint64_t*>(list + kBeamList)), list, rows, a.k,
             a.steps + static_cast<std::int64_t>(group) * a.k, a.n_steps + group);
}

}  // namespace

void launch_group_topk(const GroupTopkArgs& args, cudaStream_t stream) {
  if (args.n_groups == 0) return;
  check(cudaFuncSetAttribute(group_topk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "cudaFuncSetAttribute(group_topk)");
  group_topk_kernel<<<args.n_groups, Block::kThreads, kSharedBytes, stream>>>(args);
  check_launch("group_topk");
}

}  // namespace banyan::kernels::cuda
