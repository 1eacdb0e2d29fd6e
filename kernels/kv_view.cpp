#include "kernels/ops.hpp"

namespace banyan::kernels {
namespace {

std::int64_t align(std::int64_t bytes) {
  return checked_add(bytes, kKvAlignment - 1, "KV bytes of a layer") / kKvAlignment * kKvAlignment;
}

// Of codes, or of elements that need no scale.
std::int64_t element_bytes(DType type, std::int64_t n_slots, std::int64_t n_heads_kv, std::int64_t head_dim) {
  const std::int64_t n_rows = checked_mul(2 * n_heads_kv, n_slots, "KV rows of a layer");
  return align(dtype_bytes(type, checked_mul(n_rows, head_dim, "KV elements of a layer")));
}

}  // namespace

std::int64_t kv_layer_bytes(DType type, std::int64_t n_slots, std::int64_t n_heads_kv, std::int64_t head_dim) {
  const std::int64_t bytes = element_bytes(type, n_slots, n_heads_kv, head_dim);
  if (type != DType::f8_e4m3) return bytes;
  return checked_add(bytes, align(dtype_bytes(DType::f32, 2 * n_heads_kv * n_slots)), "KV bytes of a layer");
}

KvView kv_layer(void* base, DType type, std::int64_t n_slots, std::int64_t n_heads_kv, std::int64_t head_dim) {
  KvView view{base, type, n_slots, n_heads_kv, head_dim};
  if (type == DType::f8_e4m3) {
    view.scales =
        reinterpret_cast<float*>(static_cast<std::byte*>(base) + element_bytes(type, n_slots, n_heads_kv, head_dim));
  }
  return view;
}

std::int64_t kv_row_bytes(DType type, std::int64_t head_dim) {
  return dtype_bytes(type, head_dim) + (type == DType::f8_e4m3 ? static_cast<std::int64_t>(sizeof(float)) : 0);
}

}  // namespace banyan::kernels
