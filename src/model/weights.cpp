#include "model/weights.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <fmt/format.h>
#include <initializer_list>
#include <span>
#include <utility>

namespace banyan {
namespace {

// One tensor of a fused matrix. Rows of q and k in GGUF's order stand pairwise: row i + j * head_dim/2 of a head (i <
// head_dim/2, j = 0 or 1) is its row 2i + j in the file.
struct Piece {
  const Tensor* tensor;
  std::int64_t interleaved_head_dim = 0;  // 0: rows stand in order

  std::int64_t file_row(std::int64_t row) const {
    if (interleaved_head_dim == 0) return row;
    const std::int64_t half = interleaved_head_dim / 2;
    const std::int64_t in_head = row % interleaved_head_dim;
    return row - in_head + 2 * (in_head % half) + in_head / half;
  }
};

// The smallest range that has both; an empty one has no place.
std::span<const std::byte> around(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.empty()) return b;
  return {std::min(a.data(), b.data()), std::max(a.data() + a.size(), b.data() + b.size())};
}

// The rows of some tensors, one below the other, dequantised on demand. What was read is given back.
class FusedRows final : public kernels::Backend::RowSource {
 public:
  explicit FusedRows(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {
    for (const Piece& piece : pieces_) {
      assert(piece.tensor->shape.size() == 2 && piece.tensor->shape[1] == n_in());
      n_out_ += piece.tensor->shape[0];
    }
  }
  std::int64_t n_out() const { return n_out_; }
  std::int64_t n_in() const { return pieces_.front().tensor->shape[1]; }

  void fill(std::int64_t row_begin, std::int64_t row_end, float* dst) const override {
    std::int64_t first = 0;  // row of the piece's first row
    for (const Piece& piece : pieces_) {
      const std::int64_t end = first + piece.tensor->shape[0];
      std::span<const std::byte> read;
      for (; row_begin < std::min(end, row_end); ++row_begin, dst += n_in()) {
        const std::int64_t file_row = piece.file_row(row_begin - first);
        dequantize_row(*piece.tensor, file_row, dst);
        read = around(read, row_of(*piece.tensor, file_row));
      }
      forget_pages(read);
      first = end;
    }
  }

 private:
  std::vector<Piece> pieces_;
  std::int64_t n_out_ = 0;
};

Compute resolve(const LoadOptions& options) {
  if (options.compute != Compute::automatic) return options.compute;
  if (options.device == Device::cuda) return Compute::bf16;
  return !options.reference && kernels::cpu_multiplies_bf16() ? Compute::bf16 : Compute::f32;
}

// Tensors of older files that hold what is computed from the configuration.
bool is_redundant(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

std::string plural(std::int64_t n, std::string_view noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

}  // namespace

// Turns the tensors of a checkpoint into the model's matrices and vectors. describe() is for afterwards.
class LoadedModel::Loader {
 public:
  Loader(LoadedModel& model, const Checkpoint& checkpoint) : model_(model), checkpoint_(checkpoint) {}

  void load() {
    const ModelConfig& c = model_.config_;
    const TensorNames& names = *checkpoint_.names;
    if (!checkpoint_.random_seed) check_names();
    model_.embed_ = matrix({{&tensor(names.embed, {c.vocab_size, c.hidden_size})}});
    load_head();
    model_.final_norm_ = vector(names.final_norm, c.hidden_size);
    for (std::int64_t i = 0; i < c.n_layers; ++i) load_layer(i);
    load_inv_freq();  // behind the tensors, whose shapes have proved head_dim
  }

 private:
  void check_names() const {
    const ModelConfig& c = model_.config_;
    const TensorNames& names = *checkpoint_.names;
    for (const auto& [name, t] : checkpoint_.tensors()) {
      if (!is_llama_tensor(names, c.n_layers, name) && !is_redundant(name)) {
        throw Error(
            ErrorCode::unsupported, t.where,
            fmt::format("is not a part of the Llama models that banyan can run ({})", plural(c.n_layers, "layer")));
      }
    }
  }

 public:
  std::string describe() const {
    const ModelConfig& c = model_.config_;
    std::string eos;
    for (const TokenId id : model_.eos_ids_) eos += fmt::format("{}{}", eos.empty() ? "" : ", ", id);

    std::string text;
    const auto line = [&](std::string_view key, const std::string& value) {
      text += fmt::format("{:<14}{}\n", key, value);
    };
    line("file", checkpoint_.path);
    line("format", checkpoint_.format);
    if (!c.name.empty()) line("name", c.name);
    line("architecture", fmt::format("{}, {}, hidden {}, intermediate {}, vocabulary {}", c.architecture,
                                     plural(c.n_layers, "layer"), c.hidden_size, c.intermediate_size, c.vocab_size));
    line("attention",
         fmt::format("{} x {}, {}", plural(c.n_heads_q, "query head"), c.head_dim, plural(c.n_heads_kv, "KV head")));
    line("rope", fmt::format("theta {}, unscaled, {} positions", c.rope_theta, c.max_positions));
    line("head", c.tied_embeddings ? "tied to the embedding table" : "its own matrix");
    line("weights", describe_weights());
    line("compute", fmt::format("{}, {} bytes in memory, {}", model_.compute_ == Compute::bf16 ? "bf16" : "f32",
                                model_.weight_bytes_, model_.backend_->describe()));
    line("tokenizer", describe_tokenizer());
    line("eos ids", eos.empty() ? "none" : eos);
    if (!note_.empty()) text += note_ + "\n";
    return text;
  }

 private:
  std::string describe_weights() const {
    if (checkpoint_.random_seed) return fmt::format("random, seed {}", *checkpoint_.random_seed);
    std::map<std::string_view, std::int64_t> n_of_type;
    std::int64_t file_bytes = 0, n_weights = 0;
    for (const auto& [name, t] : checkpoint_.tensors()) {
      ++n_of_type[to_string(t.type)];
      file_bytes += t.bytes;
      n_weights += t.n_elements();
    }
    std::string types;
    for (const auto& [type, n] : n_of_type) types += fmt::format("{}{} {}", types.empty() ? "" : ", ", n, type);
    return fmt::format("{} in {} tensors ({}), {} bytes in the file", n_weights, checkpoint_.tensors().size(), types,
                       file_bytes);
  }

  // Of random weights a tensor is its name and shape.
  const Tensor& tensor(std::string_view name, const std::vector<std::int64_t>& shape) {
    if (checkpoint_.random_seed) {
      return made_.insert_or_assign(std::string(name), Tensor{.where = std::string(name), .shape = shape})
          .first->second;
    }
    const auto found = checkpoint_.tensors().find(name);
    if (found == checkpoint_.tensors().end()) {
      throw Error(ErrorCode::bad_file, fmt::format("{}: tensor '{}'", checkpoint_.path, name), "is absent");
    }
    if (found->second.shape != shape) {
      throw Error(
          ErrorCode::bad_file, found->second.where,
          fmt::format("has shape {}, the configuration says {}", shape_text(found->second.shape), shape_text(shape)));
    }
    return found->second;
  }

  std::unique_ptr<kernels::Matrix> matrix(std::vector<Piece> pieces) {
    const FusedRows rows(std::move(pieces));
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

  const float* vector(std::string_view name, std::int64_t n) {
    std::vector<float> values(static_cast<std::size_t>(n), 1.0F);
    if (!checkpoint_.random_seed) {
      const Tensor& source = tensor(name, {n});
      dequantize(source.type, source.data, n, values.data());
    }
    return upload(values);
  }

  // A file may hold a head although the configuration ties it to the embedding table, or lack one although it does not.
  // Tied wins where it is said, whatever else the file holds: that is what the model was trained as.
  void load_head() {
    const ModelConfig& c = model_.config_;
    const std::string_view name = checkpoint_.names->head;
    if (!c.tied_embeddings) {
      model_.head_ = matrix({{&tensor(name, {c.vocab_size, c.hidden_size})}});
    } else if (!checkpoint_.random_seed && checkpoint_.tensors().contains(name)) {
      const Tensor& extra = tensor(name, {c.vocab_size, c.hidden_size});
      note_ = fmt::format(
          "note          {} is ignored: the configuration ties the head to the embedding table{}", name,
          same_values(extra, tensor(checkpoint_.names->embed, extra.shape)) ? "" : ", from which it differs");
    }
  }

  static bool same_values(const Tensor& a, const Tensor& b) {
    std::vector<float> row_a(static_cast<std::size_t>(a.shape[1])), row_b(row_a.size());
    for (std::int64_t row = 0; row < a.shape[0]; ++row) {
      dequantize_row(a, row, row_a.data());
      dequantize_row(b, row, row_b.data());
      if (row_a != row_b) return false;
    }
    return true;
  }

  void load_inv_freq() {
    const ModelConfig& c = model_.config_;
    std::vector<float> inv_freq;
    for (std::int64_t i = 0; i < c.head_dim / 2; ++i) {
      inv_freq.push_back(
          static_cast<float>(std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim))));
    }
    model_.inv_freq_ = upload(inv_freq);
  }

  void load_layer(std::int64_t i) {
    const ModelConfig& c = model_.config_;
    const TensorNames& names = *checkpoint_.names;
    const std::string prefix = fmt::format("{}{}.", names.layers, i);
    const auto full = [&](std::string_view name) { return prefix + std::string(name); };
    const std::int64_t q_rows = c.n_heads_q * c.head_dim, kv_rows = c.n_heads_kv * c.head_dim;
    const std::int64_t interleaved = checkpoint_.interleaved_qk ? c.head_dim : 0;
    LayerWeights layer;
    layer.attn_norm = vector(full(names.attn_norm), c.hidden_size);
    layer.qkv = matrix({{&tensor(full(names.q), {q_rows, c.hidden_size}), interleaved},
                        {&tensor(full(names.k), {kv_rows, c.hidden_size}), interleaved},
                        {&tensor(full(names.v), {kv_rows, c.hidden_size})}});
    layer.attn_out = matrix({{&tensor(full(names.attn_out), {c.hidden_size, q_rows})}});
    layer.ffn_norm = vector(full(names.ffn_norm), c.hidden_size);
    layer.gate_up = matrix({{&tensor(full(names.gate), {c.intermediate_size, c.hidden_size})},
                            {&tensor(full(names.up), {c.intermediate_size, c.hidden_size})}});
    layer.down = matrix({{&tensor(full(names.down), {c.hidden_size, c.intermediate_size})}});
    model_.layers_.push_back(std::move(layer));
  }

  std::string describe_tokenizer() const {
    if (!model_.tokenizer_) return "none in the file";
    const TokenizerSpec& spec = model_.tokenizer_->spec();
    const bool bpe = spec.model == TokenizerSpec::Model::bpe;
    return fmt::format("{}{}, {} pieces, bos {}{}", bpe ? "bpe, pre-tokenizer " : "spm", bpe ? spec.pre : "",
                       spec.pieces.size(), spec.bos, spec.add_bos ? " (added)" : "");
  }

  LoadedModel& model_;
  const Checkpoint& checkpoint_;
  TensorMap made_;              // of random weights
  std::uint64_t n_random_ = 0;  // matrices made so far
  std::string note_;
};

LoadedModel::LoadedModel(const Checkpoint& checkpoint, const LoadOptions& options, BackendFactory factory)
    : options_(options), factory_(std::move(factory)), compute_(resolve(options)), backend_(make_backend()) {
  config_ = checkpoint.config;
  tokenizer_ = checkpoint.tokenizer;
  eos_ids_ = checkpoint.eos_ids;
  Loader loader(*this, checkpoint);
  loader.load();
  description_ = loader.describe();
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
