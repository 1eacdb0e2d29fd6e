#include "kernels/cpu/fast.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/team.hpp"
#include "kernels/cpu/attention_units.hpp"
#include "kernels/cpu/host_backend.hpp"
#include "kernels/cpu/packed_matrix.hpp"

namespace banyan::kernels {
namespace {

// Sharing a job out costs about a microsecond; pieces of elementwise work are worth it from this many elements on.
constexpr std::int64_t kElementsPerPiece = 16 * 1024;
// The same for products, in multiply-adds.
constexpr std::int64_t kProductPerPiece = 512 * 1024;
// A few pieces per thread, so that a thread that is held up does not hold up the others.
constexpr std::int64_t kPiecesPerThread = 4;
// Rows of x that are multiplied with all panels before the next: as much of x as stays in half a level 2 cache.
constexpr std::int64_t kRowChunkBytes = 256 * 1024;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Share `i` of n in [0, total], as equal as whole pieces allow.
std::int64_t share(std::int64_t total, std::int64_t i, std::int64_t n) { return total * i / n; }

class FastBackend final : public HostBackend {
 public:
  FastBackend(const IsaOps& isa, int n_threads) : isa_(isa), team_(n_threads) {}

  std::string describe() const override {
    const int n = team_.n_threads();
    return "cpu " + std::string(isa_.name) + ", " + std::to_string(n) + (n == 1 ? " thread" : " threads");
  }

  std::unique_ptr<Matrix> pack(std::int64_t n_out, std::int64_t n_in, DType type, const RowSource& rows) override {
    return std::make_unique<PackedMatrix>(n_out, n_in, type, rows, team_);
  }

  void begin_step(const StepArrays& step) override {
    HostBackend::begin_step(step);
    is_cut_ = false;
    angles_ = {};
  }
  void matmul_f32(const Matrix& matrix, const void* x, float* y, std::int64_t n_rows, const float* bias,
                  bool accumulate) override;
  void rope_kv(const RopeKvArgs& args) override;
  void attention(const AttentionArgs& args) override;

  void embed(const Matrix& table, float* x) override {
    const auto& w = static_cast<const PackedMatrix&>(table);
    over_rows(step().n_rows, 8 * w.n_in, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) w.row(step().tokens[static_cast<std::size_t>(r)], x + r * w.n_in);
    });
  }

  void rms_norm(const float* x, const float* w, void* out, std::int64_t n_rows, std::int64_t dim, float eps) override {
    auto* y = static_cast<float*>(out);
    over_rows(n_rows, dim, [&](std::int64_t begin, std::int64_t end) {
      isa_.rms_norm(x + begin * dim, w, y + begin * dim, end - begin, dim, eps);
    });
  }

  void silu_mul(const void* input, void* out, std::int64_t n_rows, std::int64_t dim) override {
    const auto* gate_up = static_cast<const float*>(input);
    auto* y = static_cast<float*>(out);
    over_rows(n_rows, 2 * dim, [&](std::int64_t begin, std::int64_t end) {
      isa_.silu_mul(gate_up + begin * 2 * dim, y + begin * dim, end - begin, dim);
    });
  }

  void gather_logit_rows(const float* x, float* dst, std::int64_t dim) override {
    const auto& rows = step().logit_rows;
    over_rows(std::ssize(rows), dim, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::copy_n(x + rows[static_cast<std::size_t>(i)] * dim, dim, dst + i * dim);
      }
    });
  }

 private:
  // Runs body(begin, end) over the rows, in as many pieces as the work is worth.
  template <class Body>
  void over_rows(std::int64_t n_rows, std::int64_t elements_per_row, const Body& body) {
    const std::int64_t n = n_pieces(n_rows * elements_per_row, kElementsPerPiece);
    team_.run(n, [&](std::int64_t i, int) { body(share(n_rows, i, n), share(n_rows, i + 1, n)); });
  }

  std::int64_t n_pieces(std::int64_t work, std::int64_t work_per_piece) const {
    const int n = team_.n_threads();
    return n == 1 ? 1 : std::clamp<std::int64_t>(work / work_per_piece, 1, kPiecesPerThread * n);
  }

  const void* product_input(const PackedMatrix& w, const float* x, std::int64_t n_rows);
  void product_chunk(const PackedMatrix& w, PanelProduct rows, float* y, const float* bias, std::int64_t piece,
                     std::int64_t n_total) const;
  void product_panel(const PackedMatrix& w, const PanelProduct& rows, float* y, const float* bias,
                     std::int64_t panel) const;
  void want_angles(const RopeKvArgs& args);

  const IsaOps& isa_;
  Team team_;
  Scratch bf16_rows_, attention_scratch_;
  // Of the step, for all its layers: made by the first that asks.
  AttentionUnits units_;
  bool is_cut_ = false;
  struct Angles {
    const float* inv_freq = nullptr;
    float magnitude = 0.0F;
    bool operator==(const Angles&) const = default;
  } angles_;               // whose cosine_ and sine_ hold
  Scratch cosine_, sine_;  // [n_rows, head_dim / 2]
};

// --- products ------------------------------------------------------------------------------------------------------

// x in the form that the products read: itself, or rounded to bf16 with an even number of elements a row.
const void* FastBackend::product_input(const PackedMatrix& w, const float* x, std::int64_t n_rows) {
  if (w.type == DType::f32) return x;
  auto* rounded = bf16_rows_.reserve<std::byte>(n_rows * w.n_in_padded() * isa_.bf16_row_bytes);
  over_rows(n_rows, w.n_in, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      isa_.round_bf16(x + r * w.n_in, rounded + r * w.n_in_padded() * isa_.bf16_row_bytes, w.n_in, w.n_in_padded());
    }
  });
  return rounded;
}

// Rows [0, rows.n_rows) against one panel; the last panel of a matrix may have fewer columns than the kernels write.
void FastBackend::product_panel(const PackedMatrix& w, const PanelProduct& rows, float* y, const float* bias,
                                std::int64_t panel) const {
  const std::int64_t column = panel * kPanelColumns, n_columns = std::min(kPanelColumns, w.n_out - column);
  const auto gemm = w.type == DType::f32 ? isa_.gemm_f32 : isa_.gemm_bf16;
  PanelProduct p = rows;
  p.b = w.panel(panel);
  p.prefetch = panel + 1 < w.n_panels() ? w.panel(panel + 1) : nullptr;
  if (n_columns % 16 == 0) {
    p.c = y + column;
    p.c_stride = w.n_out;
    p.n_columns = n_columns;
    p.bias = bias == nullptr ? nullptr : bias + column;
    gemm(p);
    return;
  }
  constexpr std::int64_t kRows = 12;
  float c[kRows * kPanelColumns], padded_bias[kPanelColumns] = {};
  if (bias != nullptr) std::copy_n(bias + column, n_columns, padded_bias);
  p.c = c;
  p.c_stride = kPanelColumns;
  p.n_columns = ceil_div(n_columns, 16) * 16;
  p.bias = bias == nullptr ? nullptr : padded_bias;
  const std::int64_t row_bytes = p.a_stride * (w.type == DType::f32 ? std::int64_t{4} : isa_.bf16_row_bytes);
  for (std::int64_t first = 0; first < rows.n_rows; first += kRows) {
    p.n_rows = std::min(kRows, rows.n_rows - first);
    p.a = static_cast<const std::byte*>(rows.a) + first * row_bytes;
    std::fill_n(c, kRows * kPanelColumns, 0.0F);
    for (std::int64_t r = 0; r < p.n_rows && p.load_c; ++r) {
      std::copy_n(y + (first + r) * w.n_out + column, n_columns, c + r * kPanelColumns);
    }
    gemm(p);
    for (std::int64_t r = 0; r < p.n_rows; ++r) {
      std::copy_n(c + r * kPanelColumns, n_columns, y + (first + r) * w.n_out + column);
    }
  }
}

// Piece `piece` of the (panel, row) cells: whole panels, and part of the rows of the first and of the last.
void FastBackend::product_chunk(const PackedMatrix& w, PanelProduct rows, float* y, const float* bias,
                                std::int64_t piece, std::int64_t n_total) const {
  constexpr std::int64_t kGrain = 6;  // rows of one register tile
  const std::int64_t n_rows = rows.n_rows, n_blocks = ceil_div(n_rows, kGrain);
  const std::int64_t begin = share(w.n_panels() * n_blocks, piece, n_total);
  const std::int64_t end = share(w.n_panels() * n_blocks, piece + 1, n_total);
  const std::int64_t row_bytes = rows.a_stride * (w.type == DType::f32 ? std::int64_t{4} : isa_.bf16_row_bytes);
  const auto* a = static_cast<const std::byte*>(rows.a);
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t panel = i / n_blocks, n = std::min(n_blocks - i % n_blocks, end - i);
    const std::int64_t first = i % n_blocks * kGrain, last = std::min(n_rows, first + n * kGrain);
    rows.a = a + first * row_bytes;
    rows.n_rows = last - first;
    product_panel(w, rows, y + first * w.n_out, bias, panel);
    i += n;
  }
}

void FastBackend::matmul_f32(const Matrix& matrix, const void* x, float* y, std::int64_t n_rows, const float* bias,
                             bool accumulate) {
  const auto& w = static_cast<const PackedMatrix&>(matrix);
  if (n_rows <= 0) return;
  PanelProduct p;
  p.a = product_input(w, static_cast<const float*>(x), n_rows);
  p.a_stride = w.type == DType::f32 ? w.n_in : w.n_in_padded();
  p.k = w.n_in;
  p.load_c = accumulate;
  const std::int64_t row_bytes = p.a_stride * (w.type == DType::f32 ? std::int64_t{4} : isa_.bf16_row_bytes);
  const std::int64_t n_chunk = std::max<std::int64_t>(48, kRowChunkBytes / row_bytes);
  for (std::int64_t first = 0; first < n_rows; first += n_chunk) {
    PanelProduct chunk = p;
    chunk.a = static_cast<const std::byte*>(p.a) + first * row_bytes;
    chunk.n_rows = std::min(n_chunk, n_rows - first);
    const std::int64_t n = n_pieces(chunk.n_rows * w.n_in * w.n_out, kProductPerPiece);
    team_.run(n, [&](std::int64_t i, int) { product_chunk(w, chunk, y + first * w.n_out, bias, i, n); });
  }
}

// --- rotation and KV -----------------------------------------------------------------------------------------------

void FastBackend::want_angles(const RopeKvArgs& a) {
  if (std::exchange(angles_, {a.inv_freq, a.magnitude}) == Angles{a.inv_freq, a.magnitude}) return;
  const std::int64_t half = a.kv.head_dim / 2, n_rows = step().n_rows;
  float* cosine = cosine_.reserve<float>(n_rows * half);
  float* sine = sine_.reserve<float>(n_rows * half);
  over_rows(n_rows, 16 * half, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const auto position = static_cast<float>(step().positions[static_cast<std::size_t>(r)]);
      for (std::int64_t i = 0; i < half; ++i) {
        const float angle = position * a.inv_freq[i];
        cosine[r * half + i] = std::cos(angle) * a.magnitude;
        sine[r * half + i] = std::sin(angle) * a.magnitude;
      }
    }
  });
}

void FastBackend::rope_kv(const RopeKvArgs& args) {
  want_angles(args);
  RopeRows rows;
  rows.qkv = static_cast<const float*>(args.qkv);
  rows.cosine = cosine_.data<float>();
  rows.sine = sine_.data<float>();
  rows.q = static_cast<float*>(args.q);
  rows.kv_slots = step().kv_slots.data();
  rows.n_heads_q = args.n_heads_q;
  rows.n_heads_kv = args.kv.n_heads_kv;
  rows.head_dim = args.kv.head_dim;
  rows.kv = args.kv.base;
  rows.kv_type = args.kv.type;
  rows.kv_scales = args.kv.scales;
  rows.n_slots = args.kv.n_slots;
  rows.q_norm = args.q_norm;
  rows.k_norm = args.k_norm;
  rows.norm_eps = args.norm_eps;
  over_rows(step().n_rows, (args.n_heads_q + 2 * args.kv.n_heads_kv) * args.kv.head_dim,
            [&](std::int64_t begin, std::int64_t end) {
              RopeRows part = rows;
              part.row_begin = begin;
              part.row_end = end;
              isa_.rope_kv(part);
            });
}

// --- attention -----------------------------------------------------------------------------------------------------

void FastBackend::attention(const AttentionArgs& a) {
  assert(a.n_heads_q == step().n_heads_q && a.kv.n_heads_kv == step().n_heads_kv);
  assert(a.n_heads_q % a.kv.n_heads_kv == 0 && a.kv.head_dim <= kMaxHeadDim);
  const std::int64_t n_rows = step().n_rows;
  if (n_rows <= 0) return;
  if (!std::exchange(is_cut_, true)) units_.cut(step(), team_.n_threads());
  const std::int64_t group = a.n_heads_q / a.kv.n_heads_kv, n_blocks = units_.n_blocks();
  const std::int64_t scratch_bytes = attention_scratch_bytes(units_.rows_per_block() * group, a.kv.head_dim);
  auto* scratch = attention_scratch_.reserve<std::byte>(scratch_bytes * team_.n_threads());
  const std::int64_t plane_bytes = dtype_bytes(a.kv.type, a.kv.n_slots * a.kv.head_dim);
  const auto* base = static_cast<const std::byte*>(a.kv.base);
  team_.run(n_blocks * a.kv.n_heads_kv, [&](std::int64_t i, int thread) {
    const std::int64_t head = i / n_blocks, block = i % n_blocks;
    AttentionUnit u;
    u.runs = step().runs.data();
    u.calls = step().calls.data();
    u.call_index = units_.calls(block).data();
    u.n_calls = std::ssize(units_.calls(block));
    u.positions = step().positions.data();
    u.row_begin = block * units_.rows_per_block();
    u.row_end = std::min(n_rows, u.row_begin + units_.rows_per_block());
    u.n_heads_q = a.n_heads_q;
    u.first_head = head * group;
    u.group = group;
    u.head_dim = a.kv.head_dim;
    u.k = base + head * plane_bytes;
    u.v = base + (a.kv.n_heads_kv + head) * plane_bytes;
    u.kv_type = a.kv.type;
    if (a.kv.scales != nullptr) {
      u.k_scales = a.kv.scales + head * a.kv.n_slots;
      u.v_scales = a.kv.scales + (a.kv.n_heads_kv + head) * a.kv.n_slots;
    }
    u.scale = a.scale;
    u.q = static_cast<const float*>(a.q);
    u.o = static_cast<float*>(a.o);
    u.lse = a.lse;
    u.scratch = scratch + thread * scratch_bytes;
    isa_.attention(u);
  });
}

}  // namespace

std::unique_ptr<Backend> make_fast_backend(const IsaOps& isa, int n_threads) {
  return std::make_unique<FastBackend>(isa, n_threads);
}

}  // namespace banyan::kernels
