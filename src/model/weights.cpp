#include "model/weights.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <span>
#include <utility>

#include "model/describe.hpp"
#include "model/model_tensors.hpp"
#include "model/rope.hpp"

namespace banyan {
namespace {

// Where the rows of a q or k head stand in the file, and what they are multiplied by. The rope kernel turns pairs
// (i, i + head_dim / 2) of the whole head; where only n_dims of a head turn, the others become pairs with frequency 0,
// which the kernel multiplies by its magnitude: they are divided by it here.
class HeadOrder {
 public:
  HeadOrder(const ModelSpec& spec, bool interleaved, float magnitude) : head_dim_(spec.config.head_dim) {
    const std::int64_t half = head_dim_ / 2, turning = spec.rope.n_dims / 2;
    for (std::int64_t row = 0; row < head_dim_; ++row) {
      const std::int64_t pair = row % half, second = row / half;
      if (interleaved) {
        places_.push_back({2 * pair + second, 1.0F});
      } else if (pair < turning) {
        places_.push_back({second * turning + pair, 1.0F});
      } else {
        places_.push_back({2 * turning + second * (half - turning) + pair - turning, 1.0F / magnitude});
      }
    }
  }

  struct Place {
    std::int64_t row;
    float scale;
  };
  // Of a row of a matrix, or an element of a vector, that is heads one below the other.
  Place find(std::int64_t row) const {
    const std::int64_t in_head = row % head_dim_;
    const auto [place, scale] = places_[static_cast<std::size_t>(in_head)];
    return {row - in_head + place, scale};
  }
  bool is_identity() const {
    for (std::int64_t row = 0; row < head_dim_; ++row) {
      if (find(row).row != row || find(row).scale != 1.0F) return false;
    }
    return true;
  }

 private:
  std::int64_t head_dim_;
  std::vector<Place> places_;  // [head_dim], within a head
};

// Read pages are given back in pieces of this size: each giving back interrupts the other threads.
constexpr std::int64_t kForgetBytes = 4 << 20;

// The pieces of the tensor that end in its rows [begin, end).
std::span<const std::byte> pieces_ending_in(const Tensor& t, std::int64_t begin, std::int64_t end) {
  const std::int64_t row_bytes = t.bytes / t.shape[0];
  const std::int64_t first = begin * row_bytes / kForgetBytes * kForgetBytes;
  const std::int64_t last = end == t.shape[0] ? t.bytes : end * row_bytes / kForgetBytes * kForgetBytes;
  return {t.data + first, static_cast<std::size_t>(std::max<std::int64_t>(0, last - first))};
}

// The rows of some tensors, one below the other, dequantised on demand. The first n_ordered rows are those of heads.
// What was read is given back.
class StackedRows final : public kernels::Backend::RowSource {
 public:
  explicit StackedRows(const Stack& tensors, const HeadOrder* order = nullptr, std::int64_t n_ordered = 0)
      : tensors_(tensors), order_(order), n_ordered_(n_ordered) {
    for (const Tensor* t : tensors_) {
      assert(t->shape.size() == 2 && t->shape[1] == n_in());
      n_out_ += t->shape[0];
    }
  }
  std::int64_t n_out() const { return n_out_; }
  std::int64_t n_in() const { return tensors_.front()->shape[1]; }

  void fill(std::int64_t row_begin, std::int64_t row_end, float* dst) const override {
    auto tensor = tensors_.begin();
    std::int64_t first = 0;  // row of *tensor in the stack
    for (std::int64_t row = row_begin; row < row_end;) {
      for (; row - first >= (*tensor)->shape[0]; ++tensor) first += (*tensor)->shape[0];
      const std::int64_t begin = row, end = std::min(row_end, first + (*tensor)->shape[0]);
      for (; row < end; ++row, dst += n_in()) {
        const auto [from, scale] = row < n_ordered_ ? order_->find(row) : HeadOrder::Place{row, 1.0F};
        dequantize_row(**tensor, from - first, dst);
        for (std::int64_t i = 0; scale != 1.0F && i < n_in(); ++i) dst[i] *= scale;
      }
      forget_pages(pieces_ending_in(**tensor, begin - first, end - first));
    }
  }

 private:
  const Stack& tensors_;
  const HeadOrder* order_;
  std::int64_t n_ordered_;
  std::int64_t n_out_ = 0;
};

Compute resolve(const LoadOptions& options) {
  if (options.compute != Compute::automatic) return options.compute;
  if (options.device == Device::cuda) return Compute::bf16;
  return !options.reference && kernels::cpu_multiplies_bf16() ? Compute::bf16 : Compute::f32;
}

}  // namespace

// Turns the tensors of a checkpoint into the model's matrices and vectors.
class LoadedModel::Loader {
 public:
  Loader(LoadedModel& model, const Checkpoint& checkpoint, const ModelTensors& tensors)
      : model_(model), checkpoint_(checkpoint), spec_(checkpoint.spec), tensors_(tensors) {}

  void load() {
    model_.embed_ = matrix({tensors_.embed});
    if (tensors_.head != nullptr) model_.head_ = matrix({tensors_.head});
    model_.final_norm_ = norm(tensors_.final_norm);
    std::vector<float> frequencies = rope_inv_freq(spec_.rope);
    frequencies.resize(static_cast<std::size_t>(spec_.config.head_dim / 2), 0.0F);
    inv_freq_ = upload(frequencies);
    no_rope_ = upload(std::vector<float>(frequencies.size(), 0.0F));
    for (std::size_t i = 0; i < tensors_.layers.size(); ++i) load_layer(tensors_.layers[i], spec_.layer_has_rope[i]);
  }

 private:
  std::unique_ptr<kernels::Matrix> matrix(const Stack& tensors, const HeadOrder* order = nullptr,
                                          std::int64_t n_ordered = 0) {
    const StackedRows rows(tensors, order, n_ordered);
    const DType type = model_.compute_ == Compute::bf16 ? DType::bf16 : DType::f32;
    auto packed = checkpoint_.random_seed
                      ? model_.backend_->pack(rows.n_out(), rows.n_in(), type, random_rows(rows.n_in()))
                      : model_.backend_->pack(rows.n_out(), rows.n_in(), type, rows);
    model_.weight_bytes_ += packed->bytes;
    return packed;
  }

  // Of variance 1 / n_in: outputs are as large as inputs, so nothing overflows and logits are those of a flat model.
  kernels::UniformRows random_rows(std::int64_t n_in) {
    return {n_in, *checkpoint_.random_seed + ++n_random_, std::sqrt(3.0F / static_cast<float>(n_in))};
  }

  const float* upload(const std::vector<float>& values) {
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(float));
    void* p = model_.backend_->allocate(bytes);
    model_.vectors_.emplace_back(p, Release{model_.backend_.get()});
    model_.weight_bytes_ += bytes;
    model_.backend_->upload(p, values.data(), bytes);
    return static_cast<const float*>(p);
  }

  const float* norm(const Tensor* t) { return t == nullptr ? nullptr : upload(values_of({t}, 1.0F)); }

  // Null for an empty stack.
  const float* bias(const Stack& tensors, const HeadOrder* order = nullptr, std::int64_t n_ordered = 0) {
    if (tensors.empty()) return nullptr;
    const std::vector<float> in_file = values_of(tensors, 0.0F);
    std::vector<float> values = in_file;
    for (std::int64_t row = 0; row < n_ordered; ++row) {
      const auto [from, scale] = order->find(row);
      values[static_cast<std::size_t>(row)] = in_file[static_cast<std::size_t>(from)] * scale;
    }
    return upload(values);
  }

  // All values of some vectors, one behind the other; of random weights all are `made`.
  std::vector<float> values_of(const Stack& tensors, float made) const {
    std::vector<float> values;
    for (const Tensor* t : tensors) {
      const auto begin = values.size();
      values.resize(begin + static_cast<std::size_t>(t->shape[0]), made);
      if (!checkpoint_.random_seed) dequantize(t->type, t->data, t->shape[0], values.data() + begin);
    }
    return values;
  }

  void load_layer(const LayerTensors& t, bool has_rope) {
    const ModelConfig& c = spec_.config;
    LayerWeights layer;
    layer.rope_magnitude = has_rope ? static_cast<float>(spec_.rope.magnitude) : 1.0F;
    layer.inv_freq = has_rope ? inv_freq_ : no_rope_;
    const bool interleaved = checkpoint_.format == kGgufFormat && spec_.family->gguf_interleaved;
    const HeadOrder order(spec_, interleaved, layer.rope_magnitude);
    const std::int64_t n_ordered = (c.n_heads_q + c.n_heads_kv) * c.head_dim;
    layer.attn_norm = norm(t.attn_norm);
    layer.ffn_norm = norm(t.ffn_norm);
    layer.q_norm = norm(t.q_norm);
    layer.k_norm = norm(t.k_norm);
    assert(t.q_norm == nullptr || order.is_identity());  // the norm's weights would have to follow
    layer.qkv = matrix(t.qkv.weight, &order, n_ordered);
    layer.qkv_bias = bias(t.qkv.bias, &order, n_ordered);
    layer.attn_out = matrix(t.attn_out.weight);
    layer.attn_out_bias = bias(t.attn_out.bias);
    layer.gate_up = matrix(t.gate_up.weight);
    layer.gate_up_bias = bias(t.gate_up.bias);
    layer.down = matrix(t.down.weight);
    layer.down_bias = bias(t.down.bias);
    model_.layers_.push_back(std::move(layer));
  }

  LoadedModel& model_;
  const Checkpoint& checkpoint_;
  const ModelSpec& spec_;
  const ModelTensors& tensors_;
  std::uint64_t n_random_ = 0;       // matrices made so far
  const float* inv_freq_ = nullptr;  // [head_dim / 2]
  const float* no_rope_ = nullptr;   // [head_dim / 2] zeros
};

LoadedModel::LoadedModel(const Checkpoint& checkpoint, const LoadOptions& options, BackendFactory factory)
    : options_(options), factory_(std::move(factory)), compute_(resolve(options)), backend_(make_backend()) {
  const ModelTensors tensors = find_model_tensors(checkpoint);
  config_ = checkpoint.spec.config;
  tokenizer_ = checkpoint.tokenizer;
  eos_ids_ = checkpoint.eos_ids;
  Loader(*this, checkpoint, tensors).load();
  description_ = banyan::describe(
      checkpoint, tensors, {.compute = compute_, .weight_bytes = weight_bytes_, .backend = backend_->describe()});
}

std::unique_ptr<kernels::Backend> LoadedModel::make_backend() const {
  return factory_({.n_threads = options_.n_threads,
                   .device_index = options_.device_index,
                   .deterministic = options_.deterministic,
                   .reference = options_.reference});
}

double LoadedModel::flops_per_row() const {
  double flops = 0;
  for (const LayerWeights& layer : layers_) {
    for (const auto* w : {&layer.qkv, &layer.attn_out, &layer.gate_up, &layer.down}) {
      flops += kernels::matmul_flops(1, (*w)->n_out, (*w)->n_in);
    }
  }
  return flops;
}

namespace {

// `automatic` becomes the device that is there.
LoadOptions with_device(LoadOptions options) {
  if (options.device == Device::automatic) {
    const bool wants_cpu = options.compute == Compute::f32 || options.reference;
    options.device = !wants_cpu && kernels::n_cuda_devices() > 0 ? Device::cuda : Device::cpu;
  }
  if (options.device == Device::cuda && options.compute == Compute::f32) {
    throw Error(ErrorCode::unsupported, "compute", "f32 is not there on CUDA devices; bf16 is");
  }
  return options;
}

std::shared_ptr<const Model> make_model(const Checkpoint& checkpoint, const LoadOptions& options) {
  const LoadOptions resolved = with_device(options);
  return std::make_shared<LoadedModel>(
      checkpoint, resolved, resolved.device == Device::cuda ? kernels::make_cuda_backend : kernels::make_cpu_backend);
}

}  // namespace

std::shared_ptr<const Model> Model::load(const std::string& path, const LoadOptions& options) {
  return make_model(open_checkpoint(path), options);
}

std::shared_ptr<const Model> Model::random(const std::string& config_path, std::uint64_t seed,
                                           const LoadOptions& options) {
  return make_model(random_checkpoint(config_path, seed), options);
}

}  // namespace banyan
