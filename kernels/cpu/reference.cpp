#include "kernels/cpu/reference.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "banyan/lse.hpp"
#include "kernels/cpu/host_backend.hpp"
#include "kernels/e4m3.hpp"

namespace banyan::kernels {
namespace {

// Row-major, every value already rounded to the matrix's type.
struct ReferenceMatrix final : Matrix {
  std::vector<float> rows;  // [n_out, n_in]
};

float round_to(DType type, float x) { return type == DType::bf16 ? to_float(to_bf16(x)) : x; }

float load(const KvView& kv, std::int64_t i) {
  switch (kv.type) {
    case DType::f32: return static_cast<const float*>(kv.base)[i];
    case DType::bf16: return to_float(static_cast<const bf16*>(kv.base)[i]);
    case DType::f8_e4m3: return e4m3_value(static_cast<const std::uint8_t*>(kv.base)[i]) * kv.scales[i / kv.head_dim];
    default: return to_float(static_cast<const f16*>(kv.base)[i]);
  }
}

// x [head_dim] -> the row whose first element is `first`.
void store_row(const KvView& kv, std::int64_t first, const float* x) {
  float inverse = 1.0F;
  if (kv.type == DType::f8_e4m3) {
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < kv.head_dim; ++i) largest = std::max(largest, e4m3_magnitude(x[i]));
    const float scale = e4m3_scale(largest);
    kv.scales[first / kv.head_dim] = scale;
    inverse = 1.0F / scale;  // exact
  }
  for (std::int64_t i = 0; i < kv.head_dim; ++i) {
    switch (kv.type) {
      case DType::f32: static_cast<float*>(kv.base)[first + i] = x[i]; break;
      case DType::bf16: static_cast<bf16*>(kv.base)[first + i] = to_bf16(x[i]); break;
      case DType::f8_e4m3: static_cast<std::uint8_t*>(kv.base)[first + i] = e4m3_code(x[i] * inverse); break;
      default: static_cast<f16*>(kv.base)[first + i] = to_f16(x[i]); break;
    }
  }
}

// Index of the first element of a stored row; kv 0 = K, 1 = V.
std::int64_t kv_row(const KvView& kv, int which, std::int64_t head, std::int64_t slot) {
  return ((which * kv.n_heads_kv + head) * kv.n_slots + slot) * kv.head_dim;
}

// Softmax of one query head of one row, one key after the other. maximum and sum are relative to each other:
// sum = sum_j exp(score_j - maximum), o = sum_j exp(score_j - maximum) v_j.
struct RunningSoftmax {
  float maximum = kEmptyLse;
  float sum = 0.0F;
  float* o = nullptr;  // [head_dim]

  void add(float score, const KvView& kv, std::int64_t v_index) {
    if (score == kEmptyLse) return;  // weight exactly 0
    const float larger = std::max(maximum, score);
    const float correction = std::exp(maximum - larger);  // exp(-inf) = 0 at the first key
    const float p = std::exp(score - larger);
    for (std::int64_t i = 0; i < kv.head_dim; ++i) o[i] = o[i] * correction + p * load(kv, v_index + i);
    sum = sum * correction + p;
    maximum = larger;
  }

  float finish(std::int64_t head_dim) const {
    if (sum == 0.0F) return kEmptyLse;  // o is still 0
    for (std::int64_t i = 0; i < head_dim; ++i) o[i] /= sum;
    return maximum + std::log(sum);
  }
};

class ReferenceBackend final : public HostBackend {
 public:
  std::string describe() const override { return "cpu reference, 1 thread"; }

  std::unique_ptr<Matrix> pack(std::int64_t n_out, std::int64_t n_in, DType type, const RowSource& rows) override {
    assert(type == DType::f32 || type == DType::bf16);
    auto m = std::make_unique<ReferenceMatrix>();
    m->n_out = n_out;
    m->n_in = n_in;
    m->type = type;
    m->rows.resize(static_cast<std::size_t>(n_out * n_in));
    m->bytes = n_out * n_in * static_cast<std::int64_t>(sizeof(float));
    rows.fill(0, n_out, m->rows.data());
    for (float& x : m->rows) x = round_to(type, x);
    return m;
  }

  void matmul_f32(const Matrix& matrix, const void* input, float* y, std::int64_t n_rows, const float* bias,
                  bool accumulate) override {
    const auto& w = static_cast<const ReferenceMatrix&>(matrix);
    const auto* x = static_cast<const float*>(input);
    for (std::int64_t r = 0; r < n_rows; ++r) {
      for (std::int64_t n = 0; n < w.n_out; ++n) {
        float sum = accumulate ? y[r * w.n_out + n] : 0.0F;
        for (std::int64_t k = 0; k < w.n_in; ++k) {
          sum += round_to(w.type, x[r * w.n_in + k]) * w.rows[static_cast<std::size_t>(n * w.n_in + k)];
        }
        y[r * w.n_out + n] = sum + (bias != nullptr ? bias[n] : 0.0F);
      }
    }
  }

  void embed(const Matrix& table, float* x) override {
    const auto& w = static_cast<const ReferenceMatrix&>(table);
    for (const TokenId token : step().tokens) {
      assert(token >= 0 && token < w.n_out);
      x = std::copy_n(w.rows.data() + token * w.n_in, w.n_in, x);
    }
  }

  void rms_norm(const float* x, const float* w, void* out, std::int64_t n_rows, std::int64_t dim, float eps) override {
    auto* y = static_cast<float*>(out);
    for (std::int64_t r = 0; r < n_rows; ++r) {
      float sum = 0.0F;
      for (std::int64_t i = 0; i < dim; ++i) sum += x[r * dim + i] * x[r * dim + i];
      const float inverse = 1.0F / std::sqrt(sum / static_cast<float>(dim) + eps);
      for (std::int64_t i = 0; i < dim; ++i) y[r * dim + i] = x[r * dim + i] * inverse * w[i];
    }
  }

  void rope_kv(const RopeKvArgs& a) override {
    const std::int64_t d = a.kv.head_dim, n_heads = a.n_heads_q + 2 * a.kv.n_heads_kv;
    std::vector<float> x(static_cast<std::size_t>(d)), head;
    for (std::int64_t r = 0; r < step().n_rows; ++r) {
      const std::int64_t slot = step().kv_slots[static_cast<std::size_t>(r)];
      const auto position = static_cast<float>(step().positions[static_cast<std::size_t>(r)]);
      for (std::int64_t h = 0; h < n_heads; ++h) {
        const bool is_q = h < a.n_heads_q, is_v = h >= a.n_heads_q + a.kv.n_heads_kv;
        std::copy_n(static_cast<const float*>(a.qkv) + (r * n_heads + h) * d, d, x.data());
        const float* norm = is_v ? nullptr : is_q ? a.q_norm : a.k_norm;
        if (norm != nullptr) rms_norm(x.data(), norm, x.data(), 1, d, a.norm_eps);
        head = x;
        for (std::int64_t i = 0; i < d / 2 && !is_v; ++i) {
          const float angle = position * a.inv_freq[i];
          const float c = std::cos(angle) * a.magnitude, s = std::sin(angle) * a.magnitude;
          const auto first = static_cast<std::size_t>(i), second = static_cast<std::size_t>(i + d / 2);
          head[first] = x[first] * c - x[second] * s;
          head[second] = x[second] * c + x[first] * s;
        }
        if (is_q) {
          std::copy_n(head.data(), d, static_cast<float*>(a.q) + (r * a.n_heads_q + h) * d);
        } else if (slot >= 0) {
          assert(slot < a.kv.n_slots);
          const std::int64_t kv_head = (h - a.n_heads_q) % a.kv.n_heads_kv;
          store_row(a.kv, kv_row(a.kv, is_v ? 1 : 0, kv_head, slot), head.data());
        }
      }
    }
  }

  // Key after key along the path: the bits do not depend on how the path is cut into calls at all.
  void attention(const AttentionArgs& a) override {
    assert(a.n_heads_q % a.kv.n_heads_kv == 0);
    const std::int64_t d = a.kv.head_dim, group = a.n_heads_q / a.kv.n_heads_kv, n = step().n_rows * a.n_heads_q;
    const auto* q = static_cast<const float*>(a.q);
    auto* o = static_cast<float*>(a.o);
    std::fill_n(o, n * d, 0.0F);
    std::vector<RunningSoftmax> states(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) states[static_cast<std::size_t>(i)].o = o + i * d;
    for (const AttentionCall& call : step().calls) {
      for (std::int64_t r = call.row_begin; r < call.row_end; ++r) {
        const std::int64_t position = step().positions[static_cast<std::size_t>(r)];
        const std::int64_t n_visible = std::clamp<std::int64_t>(position + 1 - call.kv_position, 0, call.n_keys);
        for (std::int64_t h = 0; h < a.n_heads_q; ++h) {
          const std::int64_t row_head = r * a.n_heads_q + h;
          add_keys(a, call, n_visible, h / group, q + row_head * d, states[static_cast<std::size_t>(row_head)]);
        }
      }
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const float lse = states[static_cast<std::size_t>(i)].finish(d);
      if (a.lse != nullptr) a.lse[i] = lse;
    }
  }

  void silu_mul(const void* input, void* out, std::int64_t n_rows, std::int64_t dim) override {
    const auto* gate_up = static_cast<const float*>(input);
    auto* y = static_cast<float*>(out);
    for (std::int64_t r = 0; r < n_rows; ++r) {
      for (std::int64_t i = 0; i < dim; ++i) {
        const float gate = gate_up[r * 2 * dim + i];
        y[r * dim + i] = gate / (1.0F + std::exp(-gate)) * gate_up[r * 2 * dim + dim + i];
      }
    }
  }

  void gather_logit_rows(const float* x, float* dst, std::int64_t dim) override {
    for (const std::int32_t row : step().logit_rows) dst = std::copy_n(x + row * dim, dim, dst);
  }

 private:
  // The first n_visible keys of the call.
  void add_keys(const AttentionArgs& a, const AttentionCall& call, std::int64_t n_visible, std::int64_t kv_head,
                const float* q, RunningSoftmax& state) const {
    const std::int64_t d = a.kv.head_dim;
    std::int64_t n_left = n_visible;
    for (std::int64_t i = call.run_begin; i < call.run_end && n_left > 0; ++i) {
      const SlotRun run = step().runs[static_cast<std::size_t>(i)];
      const std::int64_t n = std::min(run.n, n_left);
      n_left -= n;
      for (std::int64_t slot = run.first; slot < run.first + n; ++slot) {
        const std::int64_t k_index = kv_row(a.kv, 0, kv_head, slot);
        float score = 0.0F;
        for (std::int64_t j = 0; j < d; ++j) score += q[j] * load(a.kv, k_index + j);
        state.add(score * a.scale, a.kv, kv_row(a.kv, 1, kv_head, slot));
      }
    }
  }
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace banyan::kernels
