// A backend of naive loops with double sums: the independent oracle of the forward pass. Shares no code with
// kernels/cpu.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops.hpp"

namespace banyan::test {

struct OracleMatrix final : kernels::Matrix {
  std::vector<float> values;  // [n_out, n_in], rounded to `type`
};

class OracleBackend final : public kernels::Backend {
 public:
  std::string describe() const override { return "oracle"; }
  void* allocate(std::int64_t size) override {
    void* p = std::aligned_alloc(64, static_cast<std::size_t>((size + 63) / 64 * 64));
    std::memset(p, 0xff, static_cast<std::size_t>(size));  // NaN in every type: what is read unwritten shows
    return p;
  }
  void release(void* p) noexcept override { std::free(p); }
  DType activation_type() const override { return DType::f32; }
  std::int64_t free_bytes() const override { return std::int64_t{1} << 40; }
  void fill_random(void*, DType, std::int64_t, std::uint64_t) override {}
  void upload(void* dst, const void* host, std::int64_t bytes) override {
    std::memcpy(dst, host, static_cast<std::size_t>(bytes));
  }
  void download(void* host, const void* src, std::int64_t bytes) override {
    std::memcpy(host, src, static_cast<std::size_t>(bytes));
  }
  void copy(void* dst, const void* src, std::int64_t bytes) override { upload(dst, src, bytes); }
  void begin_step(const kernels::StepArrays& step) override { step_ = step; }
  void synchronize() override {}

  std::unique_ptr<kernels::Matrix> pack(std::int64_t n_out, std::int64_t n_in, DType type,
                                        const RowSource& rows) override {
    auto m = std::make_unique<OracleMatrix>();
    m->n_out = n_out;
    m->n_in = n_in;
    m->type = type;
    m->values.resize(static_cast<std::size_t>(n_out * n_in));
    const std::int64_t n_block = 5;  // odd, so that blocks begin and end inside fused parts
    for (std::int64_t row = 0; row < n_out; row += n_block) {
      rows.fill(row, std::min(n_out, row + n_block), m->values.data() + row * n_in);
    }
    if (type == DType::bf16) {
      for (float& x : m->values) x = to_float(to_bf16(x));
    }
    m->bytes = n_out * n_in * 4;
    return m;
  }

  void matmul(const kernels::Matrix& w, const void* x, void* y, std::int64_t n_rows, const float* bias) override {
    matmul_f32(w, x, static_cast<float*>(y), n_rows, bias, false);
  }

  void matmul_f32(const kernels::Matrix& w, const void* input, float* y, std::int64_t n_rows, const float* bias,
                  bool accumulate) override {
    const auto* x = static_cast<const float*>(input);
    const auto& values = dynamic_cast<const OracleMatrix&>(w).values;
    for (std::int64_t r = 0; r < n_rows; ++r) {
      for (std::int64_t o = 0; o < w.n_out; ++o) {
        double sum = bias != nullptr ? bias[o] : 0.0;
        for (std::int64_t i = 0; i < w.n_in; ++i) {
          sum += static_cast<double>(values[static_cast<std::size_t>(o * w.n_in + i)]) * x[r * w.n_in + i];
        }
        float& out = y[r * w.n_out + o];
        out = static_cast<float>(accumulate ? out + sum : sum);
      }
    }
  }

  void embed(const kernels::Matrix& table, float* x) override {
    const auto& values = dynamic_cast<const OracleMatrix&>(table).values;
    for (const TokenId token : step_.tokens) {
      for (std::int64_t i = 0; i < table.n_in; ++i) {
        *x++ = values[static_cast<std::size_t>(token * table.n_in + i)];
      }
    }
  }

  void rms_norm(const float* x, const float* w, void* out, std::int64_t n_rows, std::int64_t dim, float eps) override {
    auto* y = static_cast<float*>(out);
    for (std::int64_t r = 0; r < n_rows; ++r, x += dim, y += dim) {
      double squares = 0;
      for (std::int64_t i = 0; i < dim; ++i) squares += static_cast<double>(x[i]) * x[i];
      const double scale = 1.0 / std::sqrt(squares / static_cast<double>(dim) + eps);
      for (std::int64_t i = 0; i < dim; ++i) y[i] = static_cast<float>(x[i] * scale * w[i]);
    }
  }

  void rope_kv(const RopeKvArgs& a) override {
    const std::int64_t d = a.kv.head_dim, n_kv = a.kv.n_heads_kv;
    std::vector<float> head(static_cast<std::size_t>(d));
    for (std::int64_t r = 0; r < step_.n_rows; ++r) {
      const std::int64_t slot = step_.kv_slots[static_cast<std::size_t>(r)];
      const auto position = static_cast<double>(step_.positions[static_cast<std::size_t>(r)]);
      const float* row = static_cast<const float*>(a.qkv) + r * (a.n_heads_q + 2 * n_kv) * d;
      for (std::int64_t h = 0; h < a.n_heads_q + n_kv; ++h) {
        const std::vector<double> x = normed(row + h * d, h < a.n_heads_q ? a.q_norm : a.k_norm, d, a.norm_eps);
        for (std::int64_t i = 0; i < d / 2; ++i) {
          const double angle = position * a.inv_freq[i];
          const double c = std::cos(angle) * a.magnitude, s = std::sin(angle) * a.magnitude;
          const double u = x[static_cast<std::size_t>(i)], v = x[static_cast<std::size_t>(i + d / 2)];
          head[static_cast<std::size_t>(i)] = static_cast<float>(u * c - v * s);
          head[static_cast<std::size_t>(i + d / 2)] = static_cast<float>(v * c + u * s);
        }
        for (std::int64_t i = 0; i < d; ++i) {
          const float value = head[static_cast<std::size_t>(i)];
          if (h < a.n_heads_q) {
            static_cast<float*>(a.q)[(r * a.n_heads_q + h) * d + i] = value;
          } else {
            store(a.kv, 0, h - a.n_heads_q, slot, i, value);
          }
        }
      }
      for (std::int64_t h = 0; h < n_kv; ++h) {
        for (std::int64_t i = 0; i < d; ++i) {
          store(a.kv, 1, h, slot, i, row[(a.n_heads_q + n_kv + h) * d + i]);
        }
      }
    }
  }

  // One softmax over all keys that the row sees in all its calls: no partials, no merge.
  void attention(const kernels::AttentionArgs& a) override {
    const std::int64_t d = a.kv.head_dim, group = a.n_heads_q / a.kv.n_heads_kv;
    const auto* q = static_cast<const float*>(a.q);
    auto* o = static_cast<float*>(a.o);
    for (std::int64_t r = 0; r < step_.n_rows; ++r) {
      const std::vector<std::int64_t> slots = visible_slots(r);
      for (std::int64_t h = 0; h < a.n_heads_q; ++h) {
        std::vector<double> scores;
        double top = -std::numeric_limits<double>::infinity(), sum = 0;
        for (const std::int64_t slot : slots) {
          double dot = 0;
          for (std::int64_t i = 0; i < d; ++i) {
            dot += static_cast<double>(q[(r * a.n_heads_q + h) * d + i]) * load(a.kv, 0, h / group, slot, i);
          }
          scores.push_back(dot * a.scale);
          top = std::max(top, scores.back());
        }
        for (double& s : scores) sum += s = std::exp(s - top);
        for (std::int64_t i = 0; i < d; ++i) {
          double out = 0;
          for (std::size_t k = 0; k < slots.size(); ++k) out += scores[k] / sum * load(a.kv, 1, h / group, slots[k], i);
          o[(r * a.n_heads_q + h) * d + i] = static_cast<float>(out);
        }
        if (a.lse != nullptr) a.lse[r * a.n_heads_q + h] = static_cast<float>(top + std::log(sum));
      }
    }
  }

  void silu_mul(const void* input, void* result, std::int64_t n_rows, std::int64_t dim) override {
    const auto* gate_up = static_cast<const float*>(input);
    auto* y = static_cast<float*>(result);
    for (std::int64_t r = 0; r < n_rows; ++r) {
      for (std::int64_t i = 0; i < dim; ++i) {
        const double gate = gate_up[r * 2 * dim + i], up = gate_up[r * 2 * dim + dim + i];
        y[r * dim + i] = static_cast<float>(gate / (1.0 + std::exp(-gate)) * up);
      }
    }
  }

  void gather_logit_rows(const float* x, float* dst, std::int64_t dim) override {
    for (const std::int32_t row : step_.logit_rows) {
      std::memcpy(dst, x + row * dim, sizeof(float) * static_cast<std::size_t>(dim));
      dst += dim;
    }
  }

 private:
  // x / sqrt(mean(x^2) + eps) * w, or x where w is null.
  static std::vector<double> normed(const float* x, const float* w, std::int64_t n, float eps) {
    std::vector<double> out(x, x + n);
    if (w == nullptr) return out;
    double squares = 0;
    for (const double value : out) squares += value * value;
    for (double& value : out) value = value / std::sqrt(squares / static_cast<double>(n) + eps) * *w++;
    return out;
  }
  static std::int64_t place(const kernels::KvView& kv, int k_or_v, std::int64_t head, std::int64_t slot,
                            std::int64_t i) {
    return ((k_or_v * kv.n_heads_kv + head) * kv.n_slots + slot) * kv.head_dim + i;
  }
  static void store(const kernels::KvView& kv, int k_or_v, std::int64_t head, std::int64_t slot, std::int64_t i,
                    float x) {
    if (slot < 0) return;
    const std::int64_t at = place(kv, k_or_v, head, slot, i);
    if (kv.type == DType::f32) static_cast<float*>(kv.base)[at] = x;
    if (kv.type == DType::f16) static_cast<f16*>(kv.base)[at] = to_f16(x);
    if (kv.type == DType::bf16) static_cast<bf16*>(kv.base)[at] = to_bf16(x);
  }
  static double load(const kernels::KvView& kv, int k_or_v, std::int64_t head, std::int64_t slot, std::int64_t i) {
    const std::int64_t at = place(kv, k_or_v, head, slot, i);
    if (kv.type == DType::f32) return static_cast<const float*>(kv.base)[at];
    if (kv.type == DType::f16) return to_float(static_cast<const f16*>(kv.base)[at]);
    return to_float(static_cast<const bf16*>(kv.base)[at]);
  }
  std::vector<std::int64_t> visible_slots(std::int64_t row) const {
    std::vector<std::int64_t> slots;
    for (const AttentionCall& call : step_.calls) {
      if (row < call.row_begin || row >= call.row_end) continue;
      std::int64_t position = call.kv_position;
      for (std::int64_t run = call.run_begin; run < call.run_end; ++run) {
        const SlotRun& slot_run = step_.runs[static_cast<std::size_t>(run)];
        for (std::int64_t k = 0; k < slot_run.n; ++k, ++position) {
          if (position <= step_.positions[static_cast<std::size_t>(row)]) slots.push_back(slot_run.first + k);
        }
      }
    }
    return slots;
  }

  kernels::StepArrays step_;
};

inline std::unique_ptr<kernels::Backend> make_oracle_backend(const kernels::BackendOptions&) {
  return std::make_unique<OracleBackend>();
}

}  // namespace banyan::test
