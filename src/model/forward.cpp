#include "model/forward.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "model/weights.hpp"

namespace banyan {

KvStore::KvStore(kernels::Backend& backend, const ModelConfig& config, DType type, std::int64_t n_slots)
    : backend_(backend),
      type_(type),
      n_slots_(n_slots),
      n_layers_(config.n_layers),
      n_heads_kv_(config.n_heads_kv),
      head_dim_(config.head_dim) {
  if (type != DType::f32 && type != DType::f16 && type != DType::bf16) {
    throw Error(ErrorCode::usage, "kv type", fmt::format("{} is not f32, f16 or bf16", to_string(type)));
  }
  if (n_slots < 1) throw Error(ErrorCode::usage, "KV slots", fmt::format("{} is not positive", n_slots));
  layer_bytes_ = checked_mul(bytes_per_token(config, type) / n_layers_, n_slots, "KV bytes of a layer");
  base_ = backend_.allocate(checked_mul(layer_bytes_, n_layers_, "KV bytes"));
}

KvStore::~KvStore() { backend_.release(base_); }

kernels::KvView KvStore::layer(std::int64_t i) const {
  return {.base = static_cast<std::byte*>(base_) + i * layer_bytes_,
          .type = type_,
          .n_slots = n_slots_,
          .n_heads_kv = n_heads_kv_,
          .head_dim = head_dim_};
}

void KvStore::fill_randomly() {
  for (std::int64_t i = 0; i < n_layers_; ++i) {
    backend_.fill_random(layer(i).base, type_, 2 * n_heads_kv_ * n_slots_ * head_dim_, static_cast<std::uint64_t>(i));
  }
}

std::int64_t KvStore::bytes_per_token(const ModelConfig& config, DType type) {
  return dtype_bytes(type, 2 * config.n_layers * config.n_heads_kv * config.head_dim);
}

namespace {

// Scratch in a backend's memory that keeps the largest size it was asked for.
class Buffer {
 public:
  Buffer(kernels::Backend& backend, DType type) : backend_(backend), type_(type) {}
  ~Buffer() { backend_.release(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // At least n elements; what was in it is lost when it grows.
  void reserve(std::int64_t n) {
    if (n <= size_) return;
    backend_.release(std::exchange(data_, nullptr));
    size_ = 0;
    data_ = backend_.allocate(dtype_bytes(type_, n));
    size_ = n;
  }
  void* data() const { return data_; }
  float* f32() const { return static_cast<float*>(data_); }  // of buffers of that type

 private:
  kernels::Backend& backend_;
  DType type_;
  void* data_ = nullptr;
  std::int64_t size_ = 0;
};

std::shared_ptr<const LoadedModel> as_loaded(std::shared_ptr<const Model> model) {
  auto loaded = std::dynamic_pointer_cast<const LoadedModel>(std::move(model));
  if (!loaded) throw Error(ErrorCode::unsupported, "model", "has no weights that this build can compute with");
  return loaded;
}

}  // namespace

struct Forward::Impl {
  Impl(std::shared_ptr<const Model> m, DType kv_type, std::int64_t n_slots)
      : model(as_loaded(std::move(m))),
        config(model->config()),
        backend(model->make_backend()),
        kv(*backend, config, kv_type, n_slots) {}

  std::shared_ptr<const LoadedModel> model;
  const ModelConfig& config;
  std::unique_ptr<kernels::Backend> backend;
  KvStore kv;
  bool skip_attention = false;

  const DType activation = backend->activation_type();
  Buffer x{*backend, DType::f32};         // [n_rows, hidden_size]  the residual stream
  Buffer normed{*backend, activation};    // [n_rows, hidden_size]
  Buffer qkv{*backend, activation};       // [n_rows, (n_heads_q + 2 n_heads_kv) head_dim]
  Buffer q{*backend, activation};         // [n_rows, n_heads_q, head_dim]
  Buffer attended{*backend, activation};  // [n_rows, n_heads_q, head_dim]
  Buffer gate_up{*backend, activation};   // [n_rows, 2 intermediate_size]
  Buffer ffn{*backend, activation};       // [n_rows, intermediate_size]
  Buffer last{*backend, DType::f32};      // [n_logits, hidden_size]  rows of x
  Buffer hidden{*backend, activation};    // [n_logits, hidden_size]
  Buffer logits{*backend, DType::f32};    // [n_logits, vocab_size], or [n_logits, 1] with a scalar head
  std::int64_t n_logits = 0;
  std::vector<float> host_logits;  // of a device's

  void check(const Plan& plan) const;
  void reserve(std::int64_t n_rows);
  void attention_block(std::int64_t n_rows, const LayerWeights& layer, const kernels::KvView& view);
  void ffn_block(std::int64_t n_rows, const LayerWeights& layer);
  void head();
};

void Forward::Impl::check(const Plan& plan) const {
  for (std::size_t r = 0; r < plan.tokens.size(); ++r) {
    if (plan.tokens[r] < 0 || plan.tokens[r] >= config.vocab_size) {
      throw Error(ErrorCode::bad_input, fmt::format("row {}", r),
                  fmt::format("token id {} is not in the vocabulary of {}", plan.tokens[r], config.vocab_size));
    }
  }
}

void Forward::Impl::reserve(std::int64_t n_rows) {
  const std::int64_t q_dim = config.n_heads_q * config.head_dim;
  x.reserve(n_rows * config.hidden_size);
  normed.reserve(n_rows * config.hidden_size);
  qkv.reserve(n_rows * (q_dim + 2 * config.n_heads_kv * config.head_dim));
  q.reserve(n_rows * q_dim);
  attended.reserve(n_rows * q_dim);
  gate_up.reserve(n_rows * 2 * config.intermediate_size);
  ffn.reserve(n_rows * config.intermediate_size);
  last.reserve(n_logits * config.hidden_size);
  hidden.reserve(n_logits * config.hidden_size);
  logits.reserve(n_logits * model->head().n_out);
}

// x += W_o attention(rope(W_qkv norm(x)))
void Forward::Impl::attention_block(std::int64_t n_rows, const LayerWeights& layer, const kernels::KvView& view) {
  backend->rms_norm(x.f32(), layer.attn_norm, normed.data(), n_rows, config.hidden_size, config.rms_eps);
  backend->matmul(*layer.qkv, normed.data(), qkv.data(), n_rows, layer.qkv_bias);
  backend->rope_kv({.qkv = qkv.data(),
                    .q = q.data(),
                    .inv_freq = layer.inv_freq,
                    .magnitude = layer.rope_magnitude,
                    .n_heads_q = config.n_heads_q,
                    .kv = view,
                    .q_norm = layer.q_norm,
                    .k_norm = layer.k_norm,
                    .norm_eps = config.rms_eps});
  if (!skip_attention) {
    backend->attention({.q = q.data(),
                        .o = attended.data(),
                        .n_heads_q = config.n_heads_q,
                        .kv = view,
                        .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim))});
  }
  // Without attention q stands in for its output: same shape, and finite.
  const void* attention_out = skip_attention ? q.data() : attended.data();
  backend->matmul_f32(*layer.attn_out, attention_out, x.f32(), n_rows, layer.attn_out_bias, true);
}

// x += W_down (silu(W_gate norm(x)) * W_up norm(x))
void Forward::Impl::ffn_block(std::int64_t n_rows, const LayerWeights& layer) {
  backend->rms_norm(x.f32(), layer.ffn_norm, normed.data(), n_rows, config.hidden_size, config.rms_eps);
  backend->matmul(*layer.gate_up, normed.data(), gate_up.data(), n_rows, layer.gate_up_bias);
  backend->silu_mul(gate_up.data(), ffn.data(), n_rows, config.intermediate_size);
  backend->matmul_f32(*layer.down, ffn.data(), x.f32(), n_rows, layer.down_bias, true);
}

void Forward::Impl::head() {
  if (n_logits == 0) return;
  backend->gather_logit_rows(x.f32(), last.f32(), config.hidden_size);
  backend->rms_norm(last.f32(), model->final_norm(), hidden.data(), n_logits, config.hidden_size, config.rms_eps);
  backend->matmul_f32(model->head(), hidden.data(), logits.f32(), n_logits, nullptr, false);
}

Forward::Forward(std::shared_ptr<const Model> model, DType kv_type, std::int64_t n_slots)
    : impl_(std::make_unique<Impl>(std::move(model), kv_type, n_slots)) {}
Forward::~Forward() = default;

void Forward::submit(const Plan& plan) {
  Impl& f = *impl_;
  f.check(plan);
  f.n_logits = static_cast<std::int64_t>(plan.logit_rows.size());
  const std::int64_t n_rows = plan.n_rows();
  f.reserve(n_rows);
  f.backend->begin_step({.n_rows = n_rows,
                         .tokens = plan.tokens,
                         .positions = plan.positions,
                         .kv_slots = plan.kv_slots,
                         .logit_rows = plan.logit_rows,
                         .runs = plan.runs,
                         .calls = plan.calls,
                         .n_heads_q = f.config.n_heads_q,
                         .n_heads_kv = f.config.n_heads_kv});
  f.backend->embed(f.model->embed(), f.x.f32());
  for (std::int64_t i = 0; i < f.config.n_layers; ++i) {
    const LayerWeights& layer = f.model->layers()[static_cast<std::size_t>(i)];
    f.attention_block(n_rows, layer, f.kv.layer(i));
    f.ffn_block(n_rows, layer);
  }
  f.head();
}

const float* Forward::device_logits() const { return impl_->logits.f32(); }
const kernels::Backend& Forward::backend() const { return *impl_->backend; }

std::span<const float> Forward::logits() {
  Impl& f = *impl_;
  const auto n = static_cast<std::size_t>(f.n_logits * f.model->head().n_out);
  f.backend->synchronize();
  if (f.model->options().device == Device::cpu) return {f.logits.f32(), n};
  f.host_logits.resize(n);
  if (n > 0) f.backend->download(f.host_logits.data(), f.logits.data(), static_cast<std::int64_t>(n * sizeof(float)));
  return f.host_logits;
}

std::span<const float> Forward::hidden() const {
  return {static_cast<const float*>(impl_->hidden.data()),
          static_cast<std::size_t>(impl_->n_logits * impl_->config.hidden_size)};
}

const KvStore& Forward::kv() const { return impl_->kv; }
void Forward::set_skip_attention(bool skip) { impl_->skip_attention = skip; }
void Forward::fill_kv_randomly() { impl_->kv.fill_randomly(); }

}  // namespace banyan
