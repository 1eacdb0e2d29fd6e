// Every operation of a forward step, declared once. Raw pointers, shapes and nothing else: knows neither trees, plans
// nor models. Layer 4.
//
// A Backend is one place to compute (the CPU now, CUDA later). For each operation there is a plain reference version
// and a fast one; which one runs is a choice made once, when the backend is made. All pointers are in the backend's
// memory. Activations and sums are f32 on the CPU. Calls are asynchronous where the device is: synchronize() waits.
//
// Bits: with `deterministic`, each output row of every operation depends on its own input row alone -- not on n_rows,
// on its place among the rows, nor on the number of threads. RMSNorm, rope, silu, embed always keep that; matmul has
// a fixed blocking for it; attention walks keys in tiles that end at multiples of kTilePositions path positions, in
// order, so with calls cut there the bits follow from the path.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "banyan/attention_types.hpp"
#include "banyan/types.hpp"

namespace banyan::kernels {

// A weight matrix in the form its backend multiplies with (packed; opaque). y = x W^T, W is [n_out, n_in].
class Matrix {
 public:
  virtual ~Matrix() = default;
  std::int64_t n_out = 0, n_in = 0;
  DType type = DType::f32;  // f32 or bf16: what is stored and multiplied
  std::int64_t bytes = 0;   // memory it takes
};

// K and V of one layer: base + ((kv * n_heads_kv + head) * n_slots + slot) * head_dim, kv 0 = K, 1 = V.
struct KvView {
  void* base = nullptr;
  DType type = DType::f32;  // f32, f16, bf16
  std::int64_t n_slots = 0, n_heads_kv = 0, head_dim = 0;
};

struct AttentionArgs {
  const float* q = nullptr;  // [n_rows, n_heads_q, head_dim], rope applied
  float* o = nullptr;        // [n_rows, n_heads_q, head_dim]; rows in no call get 0
  float* lse = nullptr;      // [n_rows, n_heads_q] natural log; rows in no call get -inf; null: not wanted
  const std::int32_t* positions = nullptr;  // [n_rows] path positions
  std::int64_t n_rows = 0, n_heads_q = 0;
  KvView kv;  // n_heads_q % kv.n_heads_kv == 0; query head h reads KV head h / (n_heads_q / n_heads_kv)
  std::span<const SlotRun> runs;
  std::span<const AttentionCall> calls;  // per row in array order root -> leaf
  float scale = 1.0F;
};

struct BackendOptions {
  int n_threads = 0;  // 0: all cores of the process's affinity mask
  bool deterministic = false;
  bool reference = false;  // plain versions of everything: the oracle of the fast ones
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string describe() const = 0;  // "cpu avx512-bf16, 2 threads"

  virtual void* allocate(std::int64_t bytes) = 0;  // 64-byte aligned; throws Error{out_of_memory} with sizes
  virtual void release(void* p) noexcept = 0;
  virtual void synchronize() = 0;

  // Packs W [n_out, n_in], rows f32 in host memory, delivered row block by row block so that no second whole copy is
  // needed: `fill(row_begin, row_end, dst)` writes rows into dst; several threads call it at once, and it must not
  // throw. `type` f32 or bf16.
  struct RowSource {
    virtual ~RowSource() = default;
    virtual void fill(std::int64_t row_begin, std::int64_t row_end, float* dst) const = 0;
  };
  virtual std::unique_ptr<Matrix> pack(std::int64_t n_out, std::int64_t n_in, DType type, const RowSource& rows) = 0;

  // y[r] = (accumulate ? y[r] : 0) + W x[r] + bias.  x [n_rows, n_in], y [n_rows, n_out] f32; bias [n_out] or null.
  virtual void matmul(const Matrix& w, const float* x, float* y, std::int64_t n_rows, const float* bias,
                      bool accumulate) = 0;
  // x [n_rows, dim] = rows of the matrix `table` [vocab_size, dim] named by tokens [n_rows] (asserted in range).
  virtual void embed(const Matrix& table, const TokenId* tokens, float* x, std::int64_t n_rows) = 0;
  // y = x / sqrt(mean(x^2) + eps) * w, per row of dim. May run in place. Used per head for q/k norms too.
  virtual void rms_norm(const float* x, const float* w, float* y, std::int64_t n_rows, std::int64_t dim, float eps) = 0;
  // Takes fused qkv rows [n_rows, (n_heads_q + 2 n_heads_kv) * head_dim]: rotates q and k (half-split pairs
  // (i, i + head_dim/2), angle positions[r] * inv_freq[i], scaled by `magnitude`), writes q [n_rows, n_heads_q,
  // head_dim] and stores k, v at kv_slots[r] of the KV view, rounded to its type; kv_slots[r] == -1 stores nothing.
  struct RopeKvArgs {
    const float* qkv = nullptr;
    float* q = nullptr;
    const std::int32_t* positions = nullptr;
    const std::int64_t* kv_slots = nullptr;
    const float* inv_freq = nullptr;  // [head_dim / 2]
    float magnitude = 1.0F;
    std::int64_t n_rows = 0, n_heads_q = 0;
    KvView kv;
  };
  virtual void rope_kv(const RopeKvArgs& args) = 0;
  virtual void attention(const AttentionArgs& args) = 0;
  // y [n_rows, dim] = silu(gate_up[:, :dim]) * gate_up[:, dim:],  gate_up [n_rows, 2 dim]
  virtual void silu_mul(const float* gate_up, float* y, std::int64_t n_rows, std::int64_t dim) = 0;
  // dst [n, dim] = the rows of src named by index [n]
  virtual void gather_rows(const float* src, const std::int32_t* index, float* dst, std::int64_t n,
                           std::int64_t dim) = 0;
};

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options = {});

// Whether this CPU has instructions for products of bf16; without them f32 is faster.
bool cpu_multiplies_bf16();

// What each operation moves and computes, for floors and roofs. One layer's attention is in plan's cost().
inline double matmul_flops(std::int64_t n_rows, std::int64_t n_out, std::int64_t n_in) {
  return 2.0 * static_cast<double>(n_rows) * static_cast<double>(n_out) * static_cast<double>(n_in);
}
inline double matmul_bytes(const Matrix& w, std::int64_t n_rows) {
  return static_cast<double>(w.bytes) + 4.0 * static_cast<double>(n_rows) * static_cast<double>(w.n_in + w.n_out);
}

}  // namespace banyan::kernels
