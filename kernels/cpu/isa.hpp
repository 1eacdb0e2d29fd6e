// The vector kernels of one instruction set, as one table of plain function pointers. Knows nothing of matrices,
// threads or backends: every function runs on the calling thread and touches the ranges it is given.
//
// isa_table.hpp is compiled once per instruction set, each time with other -m flags, and fills the table; which table
// is used is chosen at run time (supported_isas). Nothing with external linkage but the table may come out of those
// translation units: an inline function that was compiled there with AVX-512 could be the copy that the linker keeps
// for everybody. So they use no inline function of banyan's headers or of the standard library.
//
// Bits: what a function computes for one row depends on that row alone, not on the other rows of the same call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "banyan/attention_types.hpp"
#include "banyan/types.hpp"

namespace banyan::kernels {

// B matrices of all products are cut into panels of 64 columns, and a panel holds its columns' k-th elements side by
// side: [k][64] in f32, [k/2][64][2] in bf16 (k rounded up with zeros).
constexpr std::int64_t kPanelColumns = 64;

// c[r][n] = start + sum_k a[r][k] b[k][n] for one panel of b: n < n_columns <= kPanelColumns, n_columns a multiple
// of 16. Each element is one chain of fused multiply-adds over ascending k. start: 0; with load_c, c[r][n]; with
// row_scale too, row_scale[r] * c[r][n]. bias[n], if any, is added last.
struct PanelProduct {
  const void* a = nullptr;    // [n_rows, a_stride]; f32 for gemm_f32, what round_bf16 wrote for gemm_bf16
  std::int64_t a_stride = 0;  // elements
  const void* b = nullptr;    // the panel
  float* c = nullptr;         // [n_rows, c_stride]
  std::int64_t c_stride = 0;  // elements
  std::int64_t n_rows = 0, n_columns = 0;
  std::int64_t k = 0;  // gemm_bf16: counts single elements; a and b are zero from k to the next even number
  bool load_c = false;
  const float* row_scale = nullptr;  // [n_rows]
  const float* bias = nullptr;       // [n_columns]
  const void* prefetch = nullptr;    // bytes of b's size that are wanted next in the cache; null: none
};

// One unit of attention: the queries of one KV head's group, of rows [row_begin, row_end), through all calls that touch
// these rows, in order. "Packed rows" are (row, head of group), head fastest.
struct AttentionUnit {
  const SlotRun* runs = nullptr;
  const AttentionCall* calls = nullptr;
  const std::int32_t* call_index = nullptr;  // [n_calls] the calls to walk, ascending
  std::int64_t n_calls = 0;
  const std::int32_t* positions = nullptr;  // [all rows]
  std::int64_t row_begin = 0, row_end = 0;
  std::int64_t n_heads_q = 0, first_head = 0, group = 0, head_dim = 0;
  const void* k = nullptr;  // [n_slots, head_dim] of this KV head
  const void* v = nullptr;
  DType kv_type = DType::f32;
  const float* k_scales = nullptr;  // [n_slots] f8_e4m3 alone
  const float* v_scales = nullptr;
  float scale = 1.0F;
  const float* q = nullptr;  // [all rows, n_heads_q, head_dim]
  float* o = nullptr;
  float* lse = nullptr;          // [all rows, n_heads_q] or null
  std::byte* scratch = nullptr;  // attention_scratch_bytes(...), aligned to 64
};
std::int64_t attention_scratch_bytes(std::int64_t n_packed_rows, std::int64_t head_dim);

// Cosines and sines of one step's rows, [n_rows, head_dim / 2] each.
struct RopeRows {
  const float* qkv = nullptr;  // [n_rows, (n_heads_q + 2 n_heads_kv) * head_dim]
  const float* cosine = nullptr;
  const float* sine = nullptr;
  float* q = nullptr;
  const std::int64_t* kv_slots = nullptr;
  std::int64_t row_begin = 0, row_end = 0, n_heads_q = 0, n_heads_kv = 0, head_dim = 0;
  void* kv = nullptr;
  DType kv_type = DType::f32;
  float* kv_scales = nullptr;  // [2, n_heads_kv, n_slots] f8_e4m3 alone
  std::int64_t n_slots = 0;
  const float* q_norm = nullptr;  // [head_dim], null: none
  const float* k_norm = nullptr;
  float norm_eps = 0.0F;
};

struct IsaOps {
  std::string_view name;
  std::int64_t bf16_row_bytes = 0;  // bytes of one element that round_bf16 writes
  void (*gemm_f32)(const PanelProduct&) = nullptr;
  void (*gemm_bf16)(const PanelProduct&) = nullptr;
  // Rounds x [n] to bf16 in the form gemm_bf16 reads, and writes zeros from n to n_padded.
  void (*round_bf16)(const float* x, void* dst, std::int64_t n, std::int64_t n_padded) = nullptr;
  void (*attention)(const AttentionUnit&) = nullptr;
  void (*rms_norm)(const float* x, const float* w, float* y, std::int64_t n_rows, std::int64_t dim,
                   float eps) = nullptr;
  void (*silu_mul)(const float* gate_up, float* y, std::int64_t n_rows, std::int64_t dim) = nullptr;
  void (*rope_kv)(const RopeRows&) = nullptr;
};

// Those that this CPU runs, the best first. The last is portable and always there.
std::vector<const IsaOps*> supported_isas();

}  // namespace banyan::kernels
