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
  if (n_slots < 1) throw Error(ErrorCode::usage, "KV slots", fmt::format("{} is not positive", n_slots));
  check_type(type);
  layer_bytes_ = kernels::kv_layer_bytes(type, n_slots, n_heads_kv_, head_dim_);
  base_ = backend_.allocate(checked_mul(layer_bytes_, n_layers_, "KV bytes"));
}

KvStore::~KvStore() { backend_.release(base_); }

kernels::KvView KvStore::layer(std::int64_t i) const {
  return kernels::kv_layer(static_cast<std::byte*>(base_) + i * layer_bytes_, type_, n_slots_, n_heads_kv_, head_dim_);
}

void KvStore::fill_randomly() {
  for (std::int64_t i = 0; i < n_layers_; ++i) {
    const kernels::KvView view = layer(i);
    const std::int64_t n_rows = 2 * n_heads_kv_ * n_slots_;
    const auto seed = static_cast<std::uint64_t>(i);
    backend_.fill_random(view.base, type_, n_rows * head_dim_, seed);
    if (view.scales != nullptr) backend_.fill_random(view.scales, DType::f32, n_rows, seed);
  }
}

void KvStore::check_type(DType type) {
  if (type != DType::f32 && type != DType::bf16 && type != DType::f16 && type != DType::f8_e4m3) {
    throw Error(ErrorCode::unsupported, "kv_type",
                fmt::format("{}; known: f32, bf16, f16, f8_e4m3 (fp8)", to_string(type)));
  }
}

std::int64_t KvStore::bytes_per_token(const ModelConfig& config, DType type) {
  check_type(type);
  return 2 * config.n_layers * config.n_heads_kv * kernels::kv_row_bytes(type, config.head_dim);
}

namespace {

// Scratch in a backend's memory that keeps the largest size it was asked for.
class Buffer {
 public:
  Buffer(kernels::Backend& backend, DType type) : backend_(backend), type_(type) {}
  ~Buffer() { backend_.release(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // At least n elements; what was in it is lost when it grows. True: it did.
  bool reserve(std::int64_t n) {
    if (n <= size_) return false;
    backend_.release(std::exchange(data_, nullptr));
    size_ = 0;
    data_ = backend_.allocate(dtype_bytes(type_, n));
    size_ = n;
    return true;
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
  bool skip_attention = false, recorded = true;
  std::uint64_t version = 0;  // of what is recorded: grows with each change of an address or a setting

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

  void check(const Plan& plan, bool has_drawn) const;
  void reserve(std::int64_t n_rows);
  void attention_block(std::int64_t n_rows, const LayerWeights& layer, const kernels::KvView& view);
  void ffn_block(std::int64_t n_rows, const LayerWeights& layer);
  void head();
  void run(std::int64_t n_rows);  // all that follows the embedding
};

void Forward::Impl::check(const Plan& plan, bool has_drawn) const {
  for (std::size_t r = 0; r < plan.tokens.size(); ++r) {
    if (has_drawn && is_drawn_token(plan.tokens[r])) continue;
    if (plan.tokens[r] < 0 || plan.tokens[r] >= config.vocab_size) {
      throw Error(ErrorCode::bad_input, fmt::format("row {}", r),
                  fmt::format("token id {} is not in the vocabulary of {}", plan.tokens[r], config.vocab_size));
    }
  }
}

void Forward::Impl::reserve(std::int64_t n_rows) {
  const std::int64_t q_dim = config.n_heads_q * config.head_dim;
  const std::pair<Buffer*, std::int64_t> sizes[] = {{&x, n_rows * config.hidden_size},
                                                    {&normed, n_rows * config.hidden_size},
                                                    {&qkv, n_rows * (q_dim + 2 * config.n_heads_kv * config.head_dim)},
                                                    {&q, n_rows * q_dim},
                                                    {&attended, n_rows * q_dim},
                                                    {&gate_up, n_rows * 2 * config.intermediate_size},
                                                    {&ffn, n_rows * config.intermediate_size},
                                                    {&last, n_logits * config.hidden_size},
                                                    {&hidden, n_logits * config.hidden_size},
                                                    {&logits, n_logits * model->head().n_out}};
  for (const auto& [buffer, size] : sizes) version += buffer->reserve(size) ? 1 : 0;
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

void Forward::Impl::run(std::int64_t n_rows) {
  for (std::int64_t i = 0; i < config.n_layers; ++i) {
    const LayerWeights& layer = model->layers()[static_cast<std::size_t>(i)];
    attention_block(n_rows, layer, kv.layer(i));
    ffn_block(n_rows, layer);
  }
  head();
}

Forward::Forward(std::shared_ptr<const Model> model, DType kv_type, std::int64_t n_slots)
    : impl_(std::make_unique<Impl>(std::move(model), kv_type, n_slots)) {}
Forward::~Forward() = default;

void Forward::submit(const Plan& plan, const kernels::DrawnTokens& drawn) {
  Impl& f = *impl_;
  f.check(plan, drawn.first != nullptr);
  f.n_logits = static_cast<std::int64_t>(plan.logit_rows.size());
  const std::int64_t n_rows = plan.n_rows();
  f.reserve(n_rows);
  f.backend->begin_step({.n_rows = n_rows,
                         .tokens = plan.tokens,
                         .drawn = drawn,
                         .positions = plan.positions,
                         .kv_slots = plan.kv_slots,
                         .logit_rows = plan.logit_rows,
                         .runs = plan.runs,
                         .calls = plan.calls,
                         .n_heads_q = f.config.n_heads_q,
                         .n_heads_kv = f.config.n_heads_kv,
                         .head_dim = f.config.head_dim});
  f.backend->embed(f.model->embed(), f.x.f32());  // by itself: where it finds drawn tokens changes from step to step
  if (f.recorded) {
    f.backend->run(f.version, [&f, n_rows] { f.run(n_rows); });
  } else {
    f.run(n_rows);
  }
}

const float* Forward::device_logits() const { return impl_->logits.f32(); }
kernels::Backend& Forward::backend() { return *impl_->backend; }

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
void Forward::set_recorded(bool recorded) { impl_->recorded = recorded; }
void Forward::set_skip_attention(bool skip) {
  impl_->skip_attention = skip;
  ++impl_->version;
}
void Forward::fill_kv_randomly() { impl_->kv.fill_randomly(); }

}  // namespace banyan
