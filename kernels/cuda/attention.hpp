// Attention of one layer on a CUDA device: O and LSE of each row and query head over the keys that its calls give it.
// Raw device pointers, shapes, a stream; knows neither trees nor plans. Any thread may launch; launches only queue
// work.
//
// Two ways to the same result:
//   generic  one warp per row and query head walks the calls key after key. Any head_dim to 256, any group of heads, KV
//            in f32, bf16, f16 or f8_e4m3. Its bits depend on a row's path alone. The oracle of the other, and what
//            runs where that one does not apply.
//   tiles    tensor cores over the tiles of work_items.hpp, then the merge of partials. Its limits are in supports().
//            On Hopper many rows take its own matrix instructions, about twice as fast; not in deterministic items.
//
// Inside, scores are in base 2; LSE is the natural logarithm. Nothing visible is O = 0 and LSE = -inf. Every sum has
// one order: no floating-point atomics, the same launch gives the same bits. In deterministic work items the bits of a
// row follow from its path alone: a row is computed by the same instructions in each kind of tile.
#pragma once

#include <cstdint>
#include <cuda_runtime_api.h>

#include "kernels/cuda/work_items.hpp"
#include "kernels/ops.hpp"

namespace banyan::kernels::cuda {

struct TensorShape {  // of one layer's attention
  std::int64_t n_heads_q = 0, n_heads_kv = 0, head_dim = 0;
  DType kv_type = DType::bf16;
};

// What both ways read and write. All pointers are in device memory.
struct AttentionTensors {
  const bf16* q = nullptr;     // [n_rows, n_heads_q, head_dim], rope applied; 16-byte aligned
  void* o = nullptr;           // [n_rows, n_heads_q, head_dim]
  DType o_type = DType::bf16;  // or f32: the sums as they are, for tests and callers of their own
  float* lse = nullptr;        // [n_rows, n_heads_q]; null: not wanted
  std::int64_t n_rows = 0, n_heads_q = 0;
  KvView kv;           // 16-byte aligned
  float scale = 1.0F;  // > 0
};

// --- generic -------------------------------------------------------------------------------------------------------

struct DeviceCalls {
  const std::int32_t* positions = nullptr;  // [n_rows]
  const SlotRun* runs = nullptr;
  const AttentionCall* calls = nullptr;
  std::int64_t n_calls = 0;
};

// Throws Error{unsupported} for a head_dim above 256.
void attention_generic(const AttentionTensors& tensors, const DeviceCalls& calls, cudaStream_t stream);

// --- tiles ---------------------------------------------------------------------------------------------------------

// head_dim 64, 80, 96, 128 or 256; KV in bf16, f16 (queries beyond 65,504 become infinite) or f8_e4m3; any group.
bool supports(const TensorShape& shape);

// Of the current device, for WorkOptions: compute capability 9.0, in a build for sm_90a. Shapes without a kernel of
// this kind (head_dim 80, 96) have its items done by that of wide tiles.
bool has_warpgroup_tiles();

// Scratch memory. Layers that follow each other on one stream share it.
struct PartialMemory {
  float* o = nullptr;      // [n_partials, n_heads_q, head_dim], not divided by the sum
  float* state = nullptr;  // [n_partials, n_heads_q, 2]: maximum (base 2), sum
  // [kTileKinds], 0 before the first launch and after each. Work is handed out by counting; launches on several streams
  // at a time need counters of their own.
  std::uint32_t* tickets = nullptr;
};
constexpr std::int64_t partial_o_bytes(std::int64_t n_partials, const TensorShape& s) {
  return n_partials * s.n_heads_q * s.head_dim * 4;
}
constexpr std::int64_t partial_state_bytes(std::int64_t n_partials, const TensorShape& s) {
  return n_partials * s.n_heads_q * 2 * 4;
}
constexpr std::int64_t kTicketBytes = kTileKinds * 4;

// Which kernels to launch, and how large. All else that varies from step to step lies in DeviceWork, and a grid of any
// size does all the work there is, so launches captured in a graph serve every step whose set is the same: numbers are
// rounded up to powers of two. 0: nothing to launch.
struct LaunchSet {
  int n_phases = 1;
  std::uint32_t n_items[kTileKinds] = {};  // of a phase, for each KV head
  std::uint32_t n_merge_rows = 0;
};
LaunchSet launches_of(const WorkItems& work);

// The kernels for one shape, readied for the current device. Immutable.
class TileAttention {
 public:
  explicit TileAttention(const TensorShape& shape);  // throws Error{unsupported} where supports() says no

  void launch(const AttentionTensors& tensors, const DeviceWork& work, const PartialMemory& partials,
              const LaunchSet& launches, cudaStream_t stream) const;

 private:
  struct Kernel {
    const void* function = nullptr;
    unsigned n_threads = 0, n_blocks = 0;
    std::size_t shared_bytes = 0;
  };
  Kernel kernels_[kTileKinds];
  TensorShape shape_;
  unsigned n_merge_warps_ = 0;
};

}  // namespace banyan::kernels::cuda
