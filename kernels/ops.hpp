// Every operation of a forward step, declared once. Raw pointers, shapes and nothing else: knows neither trees, plans
// nor models. Layer 4.
//
// A Backend is one place to compute: the CPU, or a CUDA device. For each operation there is a plain reference version
// and a fast one; which one runs is a choice made once, when the backend is made. Pointers to tensors are in the
// backend's memory; the arrays of a step (StepArrays) are in the host's, and go to the device once a step, in
// begin_step(), because all layers read the same ones. Calls are asynchronous where the device is: synchronize() waits.
//
// Two kinds of tensors: sums and results (the residual stream, logits, lse, norm weights) are f32 everywhere.
// Activations, declared void*, are in the backend's own type, activation_type(): f32 on the CPU, bf16 on CUDA.
//
// Bits: with `deterministic`, each output row of every operation depends on its own input row alone -- not on n_rows,
// on its place among the rows, nor on the number of threads. RMSNorm, rope, silu, embed always keep that; matmul has
// a fixed blocking for it; attention walks keys in tiles that end at multiples of kTilePositions path positions, in
// order, so with calls cut there the bits follow from the path.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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

// K and V of one layer: base + ((kv * n_heads_kv + head) * n_slots + slot) * head_dim, kv 0 = K, 1 = V. In f8_e4m3 a
// row is codes (e4m3.hpp) that count times scales[(kv * n_heads_kv + head) * n_slots + slot].
struct KvView {
  void* base = nullptr;
  DType type = DType::f32;  // f32, f16, bf16, f8_e4m3
  std::int64_t n_slots = 0, n_heads_kv = 0, head_dim = 0;
  float* scales = nullptr;  // f8_e4m3 alone
};

// The same in one piece of memory, scales behind the codes. The piece is a multiple of kKvAlignment.
constexpr std::int64_t kKvAlignment = 64;
std::int64_t kv_layer_bytes(DType type, std::int64_t n_slots, std::int64_t n_heads_kv, std::int64_t head_dim);
KvView kv_layer(void* base, DType type, std::int64_t n_slots, std::int64_t n_heads_kv, std::int64_t head_dim);
// Of one K or V row, with its scale.
std::int64_t kv_row_bytes(DType type, std::int64_t head_dim);

// Tokens that a step before drew and the host has not seen: of query i at first[i * stride], in the backend's memory.
struct DrawnTokens {
  const std::int32_t* first = nullptr;  // null: there are none
  std::int64_t stride = 1;
};

// What all layers of a step share: a plan, as arrays in host memory that stay as they are until the step is through.
// Operations that need none of an array leave it empty.
struct StepArrays {
  std::int64_t n_rows = 0;
  std::span<const TokenId> tokens{};  // [n_rows]; drawn_token(i): as `drawn` says
  DrawnTokens drawn{};
  std::span<const std::int32_t> positions{};   // [n_rows] path positions
  std::span<const std::int64_t> kv_slots{};    // [n_rows] where K and V go; -1: nowhere
  std::span<const std::int32_t> logit_rows{};  // rows whose logits are wanted
  std::span<const SlotRun> runs{};
  std::span<const AttentionCall> calls{};      // per row in array order root -> leaf
  std::int64_t n_heads_q = 0, n_heads_kv = 0;  // of the step's attention; 0: there is none
  std::int64_t head_dim = 0;
};

struct AttentionArgs {
  const void* q = nullptr;  // [n_rows, n_heads_q, head_dim] activations, rope applied
  void* o = nullptr;        // [n_rows, n_heads_q, head_dim] activations; rows in no call get 0
  float* lse = nullptr;     // [n_rows, n_heads_q] natural log; rows in no call get -inf; null: not wanted
  std::int64_t n_heads_q = 0;
  KvView kv;  // n_heads_q % kv.n_heads_kv == 0; query head h reads KV head h / (n_heads_q / n_heads_kv)
  float scale = 1.0F;
};

struct BackendOptions {
  int n_threads = 0;     // 0: all cores of the process's affinity mask
  int device_index = 0;  // which CUDA device
  bool deterministic = false;
  bool reference = false;  // plain versions of everything: the oracle of the fast ones
  // For what a device measures of itself and keeps between runs; "": nothing is kept. Not used when deterministic.
  std::string cache_folder = {};
  std::function<void(std::string_view)> notice = {};  // hears of what is no error; may be empty
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string describe() const = 0;  // "cpu avx512-bf16, 2 threads"

  virtual DType activation_type() const = 0;  // f32 or bf16

  virtual void* allocate(std::int64_t bytes) = 0;  // 64-byte aligned; throws Error{out_of_memory} with sizes
  virtual void release(void* p) noexcept = 0;
  virtual std::int64_t free_bytes() const = 0;  // of memory that allocate() could give now, about
  // Between host memory and the backend's. Both wait until the bytes have arrived.
  virtual void upload(void* dst, const void* host, std::int64_t bytes) = 0;
  virtual void download(void* host, const void* src, std::int64_t bytes) = 0;
  virtual void copy(void* dst, const void* src, std::int64_t bytes) = 0;  // within the backend's memory
  // Uniform random numbers in [-1, 1), of f32, bf16, f16 or f8_e4m3: contents for benches.
  virtual void fill_random(void* dst, DType type, std::int64_t n, std::uint64_t seed) = 0;
  virtual void synchronize() = 0;

  // Packs W [n_out, n_in], rows f32 in host memory, delivered row block by row block so that no second whole copy is
  // needed: `fill(row_begin, row_end, dst)` writes rows into dst; several threads call it at once, and it must not
  // throw. `type` f32 or bf16.
  struct RowSource {
    virtual ~RowSource() = default;
    virtual void fill(std::int64_t row_begin, std::int64_t row_end, float* dst) const = 0;
  };
  virtual std::unique_ptr<Matrix> pack(std::int64_t n_out, std::int64_t n_in, DType type, const RowSource& rows) = 0;

  // The operations below work on the rows of this step until the next begin_step().
  virtual void begin_step(const StepArrays& step) = 0;
  // Calls `operations`, which puts operations of this step on the backend, or replays what it put there in an earlier
  // step. So they may depend on nothing but the step's counts of rows and on `version`, which the caller changes with
  // each pointer or argument of its own that changes; embed() is not to be among them. One such run a step.
  virtual void run(std::uint64_t /*version*/, const std::function<void()>& operations) { operations(); }

  // y[r] = W x[r] + bias.  x [n_rows, n_in], y [n_rows, n_out] activations; bias [n_out] f32 or null.
  virtual void matmul(const Matrix& w, const void* x, void* y, std::int64_t n_rows, const float* bias) = 0;
  // The same into sums: y[r] = (accumulate ? y[r] : 0) + W x[r] + bias, y f32.
  virtual void matmul_f32(const Matrix& w, const void* x, float* y, std::int64_t n_rows, const float* bias,
                          bool accumulate) = 0;
  // x [n_rows, dim] = rows of the matrix `table` [vocab_size, dim] named by the step's tokens (asserted in range).
  virtual void embed(const Matrix& table, float* x) = 0;
  // y = x / sqrt(mean(x^2) + eps) * w, per row of dim; y activations.
  virtual void rms_norm(const float* x, const float* w, void* y, std::int64_t n_rows, std::int64_t dim, float eps) = 0;
  // Takes fused qkv rows [n_rows, (n_heads_q + 2 n_heads_kv) * head_dim]: RMS-norms each q and k head where there are
  // weights for it, rotates them (half-split pairs (i, i + head_dim/2), angle positions[r] * inv_freq[i], scaled by
  // `magnitude`), writes q [n_rows, n_heads_q, head_dim] and stores k, v at the step's kv_slots of the KV view, rounded
  // to its type. qkv and q are activations. head_dim is at most kMaxHeadDim.
  struct RopeKvArgs {
    const void* qkv = nullptr;
    void* q = nullptr;
    const float* inv_freq = nullptr;  // [head_dim / 2]
    float magnitude = 1.0F;
    std::int64_t n_heads_q = 0;
    KvView kv;
    const float* q_norm = nullptr;  // [head_dim] f32, null: none
    const float* k_norm = nullptr;
    float norm_eps = 0.0F;
  };
  virtual void rope_kv(const RopeKvArgs& args) = 0;
  virtual void attention(const AttentionArgs& args) = 0;
  // y [n_rows, dim] = silu(gate_up[:, :dim]) * gate_up[:, dim:],  gate_up [n_rows, 2 dim]; both activations
  virtual void silu_mul(const void* gate_up, void* y, std::int64_t n_rows, std::int64_t dim) = 0;
  // dst [n_logit_rows, dim] = the rows of x [n_rows, dim] that the step names in logit_rows
  virtual void gather_logit_rows(const float* x, float* dst, std::int64_t dim) = 0;
};

// Rows of random numbers, uniform in [-bound, bound), a function of (seed, row, column) alone: a device makes them
// itself.
struct UniformRows final : Backend::RowSource {
  UniformRows(std::int64_t n_in, std::uint64_t seed, float bound) : n_in(n_in), seed(seed), bound(bound) {}
  void fill(std::int64_t row_begin, std::int64_t row_end, float* dst) const override;
  std::int64_t n_in;
  std::uint64_t seed;
  float bound;
};

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options = {});
// Throws Error{usage} if there is no such device, as in builds without CUDA.
std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options = {});
int n_cuda_devices();  // that answer; 0 in builds without CUDA

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
