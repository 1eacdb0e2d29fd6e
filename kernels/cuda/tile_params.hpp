// The parameters of the attention kernels, passed by value. Plain data for device code; internal to kernels/cuda.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/work_layout.hpp"

namespace banyan::kernels::cuda {

struct TileParams {
  const void* q;
  void* o;
  float* lse;
  const void* k;  // of one layer: [n_heads_kv, n_slots, head_dim]
  const void* v;
  const float* k_scales;  // [n_heads_kv, n_slots], of f8_e4m3
  const float* v_scales;
  std::int64_t n_slots;
  DeviceWork work;
  float* partial_o;
  float* partial_state;
  std::uint32_t* ticket;
  std::int32_t n_heads_q, n_heads_kv, group;
  std::int32_t phase, kind;  // of the items to do
  float scale_log2;          // scale / ln 2
  bool o_is_f32;
};

// A kernel that takes one TileParams.
struct TileKernel {
  const void* function = nullptr;
  unsigned n_threads = 0;
  std::size_t shared_bytes = 0;
};

struct MergeParams {
  void* o;
  float* lse;
  const float* partial_o;
  const float* partial_state;
  DeviceWork work;
  std::int32_t n_heads_q, head_dim;
  bool o_is_f32;
};

}  // namespace banyan::kernels::cuda
