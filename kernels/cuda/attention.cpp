#include "kernels/cuda/attention.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <string>

#include "banyan/error.hpp"
#include "kernels/cuda/attention_merge.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/tile_table.hpp"

namespace banyan::kernels::cuda {
namespace {

constexpr double kLn2 = 0.693147180559945309417;
// Warps that merge on a multiprocessor at a time.
constexpr unsigned kMergeWarpsPerSm = 32;

std::uint32_t power_of_two(std::int64_t n) { return n > 0 ? std::bit_ceil(static_cast<std::uint32_t>(n)) : 0; }

// Persistent blocks: no more than there is work for. Blocks that find none cost a launch of few rows microseconds.
unsigned n_blocks(unsigned most, std::int64_t n) { return static_cast<unsigned>(std::min<std::int64_t>(most, n)); }

}  // namespace

bool supports(const TensorShape& s) {
  return s.n_heads_kv > 0 && s.n_heads_q > 0 && s.n_heads_q % s.n_heads_kv == 0 &&
         find_tile_kernel(TileKind::wide, s.head_dim, s.kv_type).function != nullptr;
}

bool has_warpgroup_tiles() {
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  if (major != 9) return false;
  // Code that the driver made from PTX of an older architecture has no wgmma in it.
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, find_tile_kernel(TileKind::warpgroup, 128, DType::bf16).function),
        "cudaFuncGetAttributes");
  return attributes.ptxVersion >= 90;
}

LaunchSet launches_of(const WorkItems& work) {
  LaunchSet set;
  set.n_phases = work.n_phases();
  for (int kind = 0; kind < kTileKinds; ++kind) {
    for (int phase = 0; phase < work.n_phases(); ++phase) {
      const auto range = work.header().items[phase][kind];
      set.n_items[kind] = std::max(set.n_items[kind], power_of_two(range.end - range.begin));
    }
  }
  set.n_merge_rows = power_of_two(std::ssize(work.merge_rows()));
  return set;
}

TileAttention::TileAttention(const TensorShape& shape) : shape_(shape) {
  if (!supports(shape)) {
    throw Error(ErrorCode::unsupported, "attention on tensor cores",
                std::to_string(shape.n_heads_q) + " / " + std::to_string(shape.n_heads_kv) + " heads of " +
                    std::to_string(shape.head_dim) + " dims, KV in " + std::string(to_string(shape.kv_type)) +
                    "; head dims 64, 80, 96, 128, 256 and KV in bf16, f16 or f8_e4m3 are");
  }
  int device = 0, n_sms = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  n_merge_warps_ = kMergeWarpsPerSm * static_cast<unsigned>(n_sms);
  for (int kind = 0; kind < kTileKinds; ++kind) {
    TileKernel found = find_tile_kernel(static_cast<TileKind>(kind), shape.head_dim, shape.kv_type);
    if (kind == static_cast<int>(TileKind::warpgroup) && (found.function == nullptr || !has_warpgroup_tiles())) {
      found = find_tile_kernel(TileKind::wide, shape.head_dim, shape.kv_type);
    }
    check(cudaFuncSetAttribute(found.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(found.shared_bytes)),
          "attention: shared memory of a tile kernel");
    int blocks_per_sm = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, found.function,
                                                        static_cast<int>(found.n_threads), found.shared_bytes),
          "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    assert(blocks_per_sm > 0);
    kernels_[kind] = {found.function, found.n_threads, static_cast<unsigned>(blocks_per_sm * n_sms),
                      found.shared_bytes};
  }
}

void TileAttention::launch(const AttentionTensors& t, const DeviceWork& work, const PartialMemory& partials,
                           const LaunchSet& launches, cudaStream_t stream) const {
  assert(t.kv.head_dim == shape_.head_dim && t.kv.type == shape_.kv_type && t.n_heads_q == shape_.n_heads_q);
  assert(t.scale > 0.0F && (t.o_type == DType::bf16 || t.o_type == DType::f32));
  TileParams p{};
  p.q = t.q;
  p.o = t.o;
  p.lse = t.lse;
  p.k = t.kv.base;
  const std::int64_t n_rows = t.kv.n_heads_kv * t.kv.n_slots;
  p.v = static_cast<const std::byte*>(t.kv.base) + dtype_bytes(t.kv.type, n_rows * t.kv.head_dim);
  if (t.kv.type == DType::f8_e4m3) {
    p.k_scales = t.kv.scales;
    p.v_scales = t.kv.scales + n_rows;
  }
  p.n_slots = t.kv.n_slots;
  p.work = work;
  p.partial_o = partials.o;
  p.partial_state = partials.state;
  p.n_heads_q = static_cast<std::int32_t>(t.n_heads_q);
  p.n_heads_kv = static_cast<std::int32_t>(t.kv.n_heads_kv);
  p.group = p.n_heads_q / p.n_heads_kv;
  p.scale_log2 = static_cast<float>(double{t.scale} / kLn2);
  p.o_is_f32 = t.o_type == DType::f32;
  for (p.phase = 0; p.phase < launches.n_phases; ++p.phase) {
    for (int kind = kTileKinds - 1; kind >= 0; --kind) {  // wide ones first
      if (launches.n_items[kind] == 0) continue;
      const Kernel& kernel = kernels_[kind];
      p.kind = kind;
      p.ticket = partials.tickets + kind;
      void* arguments[] = {&p};
      check(cudaLaunchKernel(kernel.function, n_blocks(kernel.n_blocks, launches.n_items[kind] * t.kv.n_heads_kv),
                             kernel.n_threads, arguments, kernel.shared_bytes, stream),
            "attention on tensor cores");
    }
  }
  if (launches.n_merge_rows == 0) return;
  launch_merge({t.o, t.lse, partials.o, partials.state, work, p.n_heads_q, static_cast<std::int32_t>(shape_.head_dim),
                p.o_is_f32},
               n_blocks(n_merge_warps_, launches.n_merge_rows * t.n_heads_q), stream);
}

}  // namespace banyan::kernels::cuda
