#include "kernels/check.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <fmt/format.h>
#include <string>
#include <utility>

namespace banyan::kernels {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::vector<float> to_f32(DType type, const std::vector<std::byte>& bytes, std::int64_t n) {
  std::vector<float> values(at(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (type) {
      case DType::f32: values[i] = reinterpret_cast<const float*>(bytes.data())[i]; break;
      case DType::bf16: values[i] = to_float(reinterpret_cast<const bf16*>(bytes.data())[i]); break;
      case DType::f16: values[i] = to_float(reinterpret_cast<const f16*>(bytes.data())[i]); break;
      default: throw Error(ErrorCode::unsupported, "check", fmt::format("cannot read {}", to_string(type)));
    }
  }
  return values;
}

// The most by which rounding to a type changes a number: half a unit in the last place of the smallest mantissa, and
// near 0 half a step.
double rounding(DType type, double x) {
  switch (type) {
    case DType::bf16: return 0x1p-8 * std::fabs(x) + 0x1p-126;
    case DType::f16: return 0x1p-11 * std::fabs(x) + 0x1p-25;
    default: return 0.0;
  }
}

// f32 arithmetic of a few operations, a fast exponential or a sine: some units of 2^-24.
constexpr double kF32 = 0x1p-18;

// A sum of n products in f32, in any order, in blocks: each addition rounds by 2^-24 of what is there. In relation to
// the sum of the products' magnitudes, tests of the kernels find below 2^-19 at 1,536 terms; it grows with n at worst.
double sum_rounding(std::int64_t n) { return 0x1p-19 * (1.0 + static_cast<double>(n) / 2048.0); }

double norm(const float* x, std::int64_t n) {
  double squares = 0;
  for (std::int64_t i = 0; i < n; ++i) squares += double{x[i]} * double{x[i]};
  return std::sqrt(squares);
}

struct CheckMatrix final : Matrix {
  std::unique_ptr<Matrix> checked, reference;
  std::vector<float> row_norms;  // [n_out]
};

// Notes the norms of rows that pass through it.
struct NormedRows final : Backend::RowSource {
  NormedRows(const RowSource& rows, std::int64_t row_length, std::vector<float>& row_norms)
      : inner(rows), n_in(row_length), norms(row_norms) {}
  void fill(std::int64_t row_begin, std::int64_t row_end, float* dst) const override {
    inner.fill(row_begin, row_end, dst);
    for (std::int64_t r = row_begin; r < row_end; ++r) {
      norms[at(r)] = static_cast<float>(norm(dst + (r - row_begin) * n_in, n_in));
    }
  }
  const RowSource& inner;
  std::int64_t n_in;
  std::vector<float>& norms;
};

// The slots that a step names, numbered without gaps: the reference's KV holds these alone.
class StepSlots {
 public:
  void build(const StepArrays& step) {
    ranges_.clear();
    for (const SlotRun& run : step.runs) {
      if (run.n > 0) ranges_.push_back({run.first, run.n, 0});
    }
    for (const std::int64_t slot : step.kv_slots) {
      if (slot >= 0) ranges_.push_back({slot, 1, 0});
    }
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
    std::vector<Range> merged;
    for (const Range& r : ranges_) {
      if (!merged.empty() && r.first <= merged.back().first + merged.back().n) {
        merged.back().n = std::max(merged.back().n, r.first + r.n - merged.back().first);
      } else {
        merged.push_back(r);
      }
    }
    n_slots_ = 0;
    for (Range& r : merged) r.place = std::exchange(n_slots_, n_slots_ + r.n);
    ranges_ = std::move(merged);
  }
  struct Range {
    std::int64_t first, n, place;  // slots [first, first + n) are numbers [place, place + n)
  };
  const std::vector<Range>& ranges() const { return ranges_; }
  std::int64_t n_slots() const { return n_slots_; }
  std::int64_t place(std::int64_t slot) const {
    if (slot < 0) return -1;
    const auto behind = std::upper_bound(ranges_.begin(), ranges_.end(), slot,
                                         [](std::int64_t s, const Range& r) { return s < r.first; });
    return std::prev(behind)->place + slot - std::prev(behind)->first;
  }

 private:
  std::vector<Range> ranges_;  // by first; they do not touch
  std::int64_t n_slots_ = 0;
};

class CheckBackend final : public Backend {
 public:
  CheckBackend(std::unique_ptr<Backend> checked, std::unique_ptr<Backend> reference)
      : checked_(std::move(checked)), reference_(std::move(reference)) {
    assert(reference_->activation_type() == DType::f32);
  }

  std::string describe() const override {
    return "check of " + checked_->describe() + " against " + reference_->describe();
  }
  DType activation_type() const override { return checked_->activation_type(); }
  void* allocate(std::int64_t bytes) override { return checked_->allocate(bytes); }
  void release(void* p) noexcept override { checked_->release(p); }
  std::int64_t free_bytes() const override { return checked_->free_bytes(); }
  void upload(void* dst, const void* host, std::int64_t bytes) override { checked_->upload(dst, host, bytes); }
  void download(void* host, const void* src, std::int64_t bytes) override { checked_->download(host, src, bytes); }
  void copy(void* dst, const void* src, std::int64_t bytes) override { checked_->copy(dst, src, bytes); }
  void fill_random(void* dst, DType type, std::int64_t n, std::uint64_t seed) override {
    checked_->fill_random(dst, type, n, seed);
  }
  void synchronize() override { checked_->synchronize(); }

  std::unique_ptr<Matrix> pack(std::int64_t n_out, std::int64_t n_in, DType type, const RowSource& rows) override {
    auto m = std::make_unique<CheckMatrix>();
    m->n_out = n_out;
    m->n_in = n_in;
    m->type = type;
    m->row_norms.resize(at(n_out));
    m->checked = checked_->pack(n_out, n_in, type, rows);
    m->reference = reference_->pack(n_out, n_in, type, NormedRows(rows, n_in, m->row_norms));
    m->bytes = m->checked->bytes;
    return m;
  }

  void begin_step(const StepArrays& step) override;
  void matmul(const Matrix& w, const void* x, void* y, std::int64_t n_rows, const float* bias) override;
  void matmul_f32(const Matrix& w, const void* x, float* y, std::int64_t n_rows, const float* bias,
                  bool accumulate) override;
  void embed(const Matrix& table, float* x) override;
  void rms_norm(const float* x, const float* w, void* y, std::int64_t n_rows, std::int64_t dim, float eps) override;
  void rope_kv(const RopeKvArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void silu_mul(const void* gate_up, void* y, std::int64_t n_rows, std::int64_t dim) override;
  void gather_logit_rows(const float* x, float* dst, std::int64_t dim) override;

 private:
  std::vector<float> read(DType type, const void* data, std::int64_t n) {
    std::vector<std::byte> bytes(at(dtype_bytes(type, n)));
    checked_->download(bytes.data(), data, std::ssize(bytes));
    return to_f32(type, bytes, n);
  }
  std::vector<float> read_activations(const void* data, std::int64_t n) { return read(activation_type(), data, n); }
  std::vector<float> read_or_empty(const float* data, std::int64_t n) {
    return data != nullptr ? read(DType::f32, data, n) : std::vector<float>();
  }
  static const float* or_null(const std::vector<float>& v) { return v.empty() ? nullptr : v.data(); }

  // Elements [n_rows, dim]; tolerance(row, element, right).
  template <class Tolerance>
  void compare(const char* operation, const std::vector<float>& got, const std::vector<float>& right, std::int64_t dim,
               const Tolerance& tolerance) const;
  [[noreturn]] void differ(const char* operation, std::int64_t row, std::int64_t element, float got, float right,
                           double allowed) const;
  void compare_product(const CheckMatrix& w, const std::vector<float>& x, const std::vector<float>& before,
                       const std::vector<float>& bias, DType type, const void* y, const std::vector<float>& right);
  std::vector<float> read_kv(const KvView& kv);
  KvView reference_kv(const KvView& kv, std::vector<float>& values) const {
    return {values.data(), DType::f32, slots_.n_slots(), kv.n_heads_kv, kv.head_dim};
  }

  std::unique_ptr<Backend> checked_, reference_;

  // of the step
  std::int64_t n_rows_ = 0, n_logit_rows_ = 0;
  std::vector<std::int32_t> positions_;
  std::vector<std::int64_t> kv_slots_;  // the reference's numbers
  std::vector<SlotRun> runs_;           // the same
  StepSlots slots_;
  std::int64_t n_sums_ = 0;  // products added to the residual stream so far: two a layer
  bool in_head_ = false;
};

void CheckBackend::begin_step(const StepArrays& step) {
  n_rows_ = step.n_rows;
  n_logit_rows_ = std::ssize(step.logit_rows);
  positions_.assign(step.positions.begin(), step.positions.end());
  slots_.build(step);
  kv_slots_.assign(step.kv_slots.begin(), step.kv_slots.end());
  for (std::int64_t& slot : kv_slots_) slot = slots_.place(slot);
  runs_.assign(step.runs.begin(), step.runs.end());
  for (SlotRun& run : runs_) run.first = run.n > 0 ? slots_.place(run.first) : 0;
  n_sums_ = 0;
  in_head_ = false;
  checked_->begin_step(step);
  StepArrays mine = step;
  mine.kv_slots = kv_slots_;
  mine.runs = runs_;
  reference_->begin_step(mine);
}

void CheckBackend::differ(const char* operation, std::int64_t row, std::int64_t element, float got, float right,
                          double allowed) const {
  const std::string layer = in_head_ ? "head" : fmt::format("layer {}", n_sums_ / 2);
  std::string place = fmt::format("row {}", row);
  if (!in_head_ && row < std::ssize(positions_)) place += fmt::format(" (position {})", positions_[at(row)]);
  throw Error(ErrorCode::device, fmt::format("{}, {}, {}", layer, operation, place),
              fmt::format("element {} is {} on {}, {} on {}; {:.3g} apart is rounding, they are {:.3g}", element, got,
                          checked_->describe(), right, reference_->describe(), allowed,
                          std::fabs(double{got} - double{right})));
}

template <class Tolerance>
void CheckBackend::compare(const char* operation, const std::vector<float>& got, const std::vector<float>& right,
                           std::int64_t dim, const Tolerance& tolerance) const {
  for (std::int64_t i = 0; i < std::ssize(got); ++i) {
    const float a = got[at(i)], b = right[at(i)];
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double allowed = tolerance(i / dim, i % dim, double{b});
    if (!(std::fabs(double{a} - double{b}) <= allowed)) differ(operation, i / dim, i % dim, a, b, allowed);
  }
}

// --- products ------------------------------------------------------------------------------------------------------

// y = before + W x + bias. The sum's terms are at most |w| |x| together (Cauchy-Schwarz); a sum in 16 bits is rounded
// twice, without and with the bias.
void CheckBackend::compare_product(const CheckMatrix& w, const std::vector<float>& x, const std::vector<float>& before,
                                   const std::vector<float>& bias, DType type, const void* y,
                                   const std::vector<float>& right) {
  const std::int64_t n_rows = std::ssize(x) / w.n_in;
  std::vector<double> x_norms;
  for (std::int64_t r = 0; r < n_rows; ++r) x_norms.push_back(norm(x.data() + r * w.n_in, w.n_in));
  const std::string name = fmt::format("product with [{}, {}]", w.n_out, w.n_in);
  compare(name.c_str(), read(type, y, n_rows * w.n_out), right, w.n_out,
          [&](std::int64_t r, std::int64_t n, double value) {
            const double added = (before.empty() ? 0.0 : std::fabs(before[at(r * w.n_out + n)])) +
                                 (bias.empty() ? 0.0 : std::fabs(bias[at(n)]));
            return sum_rounding(w.n_in) * (w.row_norms[at(n)] * x_norms[at(r)] + added) +
                   rounding(type, 2 * std::fabs(value) + added);
          });
}

void CheckBackend::matmul(const Matrix& matrix, const void* x, void* y, std::int64_t n_rows, const float* bias) {
  const auto& w = static_cast<const CheckMatrix&>(matrix);
  const auto input = read_activations(x, n_rows * w.n_in), bias_values = read_or_empty(bias, w.n_out);
  std::vector<float> right(at(n_rows * w.n_out));
  reference_->matmul(*w.reference, input.data(), right.data(), n_rows, or_null(bias_values));
  checked_->matmul(*w.checked, x, y, n_rows, bias);
  compare_product(w, input, {}, bias_values, activation_type(), y, right);
}

void CheckBackend::matmul_f32(const Matrix& matrix, const void* x, float* y, std::int64_t n_rows, const float* bias,
                              bool accumulate) {
  const auto& w = static_cast<const CheckMatrix&>(matrix);
  const auto input = read_activations(x, n_rows * w.n_in), bias_values = read_or_empty(bias, w.n_out);
  const auto before = accumulate ? read(DType::f32, y, n_rows * w.n_out) : std::vector<float>();
  std::vector<float> right = before;
  right.resize(at(n_rows * w.n_out));
  reference_->matmul_f32(*w.reference, input.data(), right.data(), n_rows, or_null(bias_values), accumulate);
  checked_->matmul_f32(*w.checked, x, y, n_rows, bias, accumulate);
  compare_product(w, input, before, bias_values, DType::f32, y, right);
  n_sums_ += accumulate ? 1 : 0;
}

// --- rows ----------------------------------------------------------------------------------------------------------

void CheckBackend::embed(const Matrix& matrix, float* x) {
  const auto& table = static_cast<const CheckMatrix&>(matrix);
  std::vector<float> right(at(n_rows_ * table.n_in));
  reference_->embed(*table.reference, right.data());
  checked_->embed(*table.checked, x);
  compare("embed", read(DType::f32, x, n_rows_ * table.n_in), right, table.n_in, [](auto, auto, auto) { return 0.0; });
}

void CheckBackend::rms_norm(const float* x, const float* w, void* y, std::int64_t n_rows, std::int64_t dim, float eps) {
  const auto input = read(DType::f32, x, n_rows * dim), weights = read(DType::f32, w, dim);
  std::vector<float> right(at(n_rows * dim));
  reference_->rms_norm(input.data(), weights.data(), right.data(), n_rows, dim, eps);
  checked_->rms_norm(x, w, y, n_rows, dim, eps);
  compare("rms_norm", read_activations(y, n_rows * dim), right, dim,
          [&](auto, auto, double value) { return rounding(activation_type(), value) + kF32 * std::fabs(value); });
}

void CheckBackend::silu_mul(const void* gate_up, void* y, std::int64_t n_rows, std::int64_t dim) {
  const auto input = read_activations(gate_up, n_rows * 2 * dim);
  std::vector<float> right(at(n_rows * dim));
  reference_->silu_mul(input.data(), right.data(), n_rows, dim);
  checked_->silu_mul(gate_up, y, n_rows, dim);
  // A gate far below 0 leaves next to nothing, and a fast exponential flushes it to 0.
  compare("silu_mul", read_activations(y, n_rows * dim), right, dim, [&](std::int64_t r, std::int64_t i, double value) {
    return rounding(activation_type(), value) + kF32 * std::fabs(value) +
           1e-30 * std::fabs(double{input[at(r * 2 * dim + dim + i)]});
  });
}

void CheckBackend::gather_logit_rows(const float* x, float* dst, std::int64_t dim) {
  in_head_ = true;
  const auto input = read(DType::f32, x, n_rows_ * dim);
  std::vector<float> right(at(n_logit_rows_ * dim));
  reference_->gather_logit_rows(input.data(), right.data(), dim);
  checked_->gather_logit_rows(x, dst, dim);
  compare("gather_logit_rows", read(DType::f32, dst, n_logit_rows_ * dim), right, dim,
          [](auto, auto, auto) { return 0.0; });
}

// --- KV and attention ----------------------------------------------------------------------------------------------

// What the checked backend holds in the step's slots: [k | v][n_heads_kv][step slot][head_dim].
std::vector<float> CheckBackend::read_kv(const KvView& kv) {
  const std::int64_t d = kv.head_dim;
  std::vector<float> values(at(2 * kv.n_heads_kv * slots_.n_slots() * d));
  for (std::int64_t plane = 0; plane < 2 * kv.n_heads_kv; ++plane) {
    for (const auto& range : slots_.ranges()) {
      const std::int64_t begin = dtype_bytes(kv.type, (plane * kv.n_slots + range.first) * d);
      const auto piece = read(kv.type, static_cast<const std::byte*>(kv.base) + begin, range.n * d);
      std::copy(piece.begin(), piece.end(), values.begin() + (plane * slots_.n_slots() + range.place) * d);
    }
  }
  return values;
}

void CheckBackend::rope_kv(const RopeKvArgs& a) {
  const std::int64_t d = a.kv.head_dim, half = d / 2, n_heads = a.n_heads_q + 2 * a.kv.n_heads_kv;
  const auto qkv = read_activations(a.qkv, n_rows_ * n_heads * d), inv_freq = read(DType::f32, a.inv_freq, half);
  const auto q_norm = read_or_empty(a.q_norm, d), k_norm = read_or_empty(a.k_norm, d);
  std::vector<float> q(at(n_rows_ * a.n_heads_q * d)), kv = read_kv(a.kv);
  RopeKvArgs mine = a;
  mine.qkv = qkv.data();
  mine.q = q.data();
  mine.inv_freq = inv_freq.data();
  mine.q_norm = or_null(q_norm);
  mine.k_norm = or_null(k_norm);
  mine.kv = reference_kv(a.kv, kv);
  reference_->rope_kv(mine);
  checked_->rope_kv(a);

  // A turn by an angle that is off by e moves a pair of length l by l e; the CPU's angle is an f32 product, so e is
  // 2^-24 of the angle, and once more that for the other side.
  const auto turned = [&](const float* head, std::int64_t row, std::int64_t i, DType type) {
    const double length = std::hypot(head[i % half], head[i % half + half]);
    return length * (kF32 + 0x1p-23 * positions_[at(row)] * inv_freq[at(i % half)]) + rounding(type, double{head[i]});
  };
  compare("rope_kv, q", read_activations(a.q, std::ssize(q)), q, a.n_heads_q * d,
          [&](std::int64_t r, std::int64_t i, double) {
            return turned(q.data() + (r * a.n_heads_q + i / d) * d, r, i % d, activation_type());
          });
  const auto got = read_kv(a.kv);
  std::vector<std::int64_t> row_of(at(slots_.n_slots()),
                                   -1);  // what the step has not written is the same on both sides
  for (std::int64_t r = 0; r < std::ssize(kv_slots_); ++r) {
    if (kv_slots_[at(r)] >= 0) row_of[at(kv_slots_[at(r)])] = r;
  }
  for (std::int64_t plane = 0; plane < 2 * a.kv.n_heads_kv; ++plane) {
    for (std::int64_t slot = 0; slot < slots_.n_slots(); ++slot) {
      const std::int64_t begin = (plane * slots_.n_slots() + slot) * d, row = row_of[at(slot)];
      const bool is_k = plane < a.kv.n_heads_kv;
      for (std::int64_t i = 0; i < d; ++i) {
        const float x = got[at(begin + i)], right = kv[at(begin + i)];
        if (x == right || (std::isnan(x) && std::isnan(right))) continue;
        const double allowed = row < 0 ? 0.0
                               : is_k  ? turned(kv.data() + begin, row, i, a.kv.type)
                                       : rounding(a.kv.type, double{right});
        if (std::fabs(double{x} - double{right}) <= allowed) continue;
        const std::int64_t head = plane % a.kv.n_heads_kv;
        differ(row < 0 ? "rope_kv, a slot that is not the step's"
               : is_k  ? "rope_kv, k"
                       : "rope_kv, v",
               row < 0 ? slot : row, head * d + i, x, right, allowed);
      }
    }
  }
}

// o = sum of p v over sum of p. Weights are rounded to the keys' type on tensor cores (16 bits), which moves o by that
// part of the largest |v|; a score that is off by e, e being f32's rounding of terms of |q| |k| together, changes its
// weight by that part, and o by twice that of the largest |v|.
void CheckBackend::attention(const AttentionArgs& a) {
  const std::int64_t d = a.kv.head_dim, group = a.n_heads_q / a.kv.n_heads_kv;
  const auto q = read_activations(a.q, n_rows_ * a.n_heads_q * d);
  std::vector<float> kv = read_kv(a.kv), o(q.size()), lse(at(n_rows_ * a.n_heads_q));
  AttentionArgs mine = a;
  mine.q = q.data();
  mine.o = o.data();
  mine.lse = a.lse != nullptr ? lse.data() : nullptr;
  mine.kv = reference_kv(a.kv, kv);
  reference_->attention(mine);
  checked_->attention(a);

  std::vector<double> largest_k, largest_v;  // by KV head: norm of a key, element of a value
  for (std::int64_t h = 0; h < a.kv.n_heads_kv; ++h) {
    double k = 0, v = 0;
    const float* keys = kv.data() + h * slots_.n_slots() * d;
    const float* values = keys + a.kv.n_heads_kv * slots_.n_slots() * d;
    for (std::int64_t s = 0; s < slots_.n_slots(); ++s) k = std::max(k, norm(keys + s * d, d));
    for (std::int64_t i = 0; i < slots_.n_slots() * d; ++i) v = std::max(v, std::fabs(double{values[i]}));
    largest_k.push_back(k);
    largest_v.push_back(v);
  }
  // Of all weights together, in relation to the largest; those of halves may be below what a half can be small.
  const double weight_rounding = activation_type() == DType::f32 ? 0.0
                                 : a.kv.type == DType::f16 ? 0x1p-11 + 0x1p-25 * static_cast<double>(slots_.n_slots())
                                                           : 0x1p-8;
  std::vector<double> score_error;  // [n_rows, n_heads_q]
  for (std::int64_t i = 0; i < n_rows_ * a.n_heads_q; ++i) {
    const std::int64_t kv_head = i % a.n_heads_q / group;
    score_error.push_back(kF32 + 0x1p-19 * double{a.scale} * norm(q.data() + i * d, d) * largest_k[at(kv_head)]);
  }
  compare("attention", read_activations(a.o, std::ssize(o)), o, a.n_heads_q * d,
          [&](std::int64_t r, std::int64_t i, double value) {
            const std::int64_t head = i / d;
            return largest_v[at(head / group)] * (weight_rounding + 2 * score_error[at(r * a.n_heads_q + head)]) +
                   rounding(activation_type(), value);
          });
  if (a.lse == nullptr) return;
  compare("attention, lse", read(DType::f32, a.lse, std::ssize(lse)), lse, a.n_heads_q,
          [&](std::int64_t r, std::int64_t h, double value) {
            return score_error[at(r * a.n_heads_q + h)] + 0x1p-22 * std::fabs(value);
          });
}

}  // namespace

std::unique_ptr<Backend> make_check_backend(std::unique_ptr<Backend> checked, std::unique_ptr<Backend> reference) {
  return std::make_unique<CheckBackend>(std::move(checked), std::move(reference));
}

}  // namespace banyan::kernels
