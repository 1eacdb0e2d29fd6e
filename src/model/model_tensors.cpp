#include "model/model_tensors.hpp"

#include <fmt/format.h>
#include <set>
#include <utility>

namespace banyan {
namespace {

// Tensors of older files that hold what is computed from the configuration.
bool is_redundant(std::string_view name) { return name.ends_with(".rotary_emb.inv_freq"); }

class Finder {
 public:
  explicit Finder(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint), spec_(checkpoint.spec), names_(*checkpoint.names) {}

  void find() {
    const ModelConfig& c = spec_.config;
    ModelTensors& m = found_;
    m.embed = weight(names_.embed, {c.vocab_size, c.hidden_size});
    m.final_norm = weight(names_.final_norm, {c.hidden_size});
    find_head();
    for (std::int64_t i = 0; i < c.n_layers; ++i) m.layers.push_back(layer(i));
    if (checkpoint_.random_seed) return;
    mark_rope_factors();
    refuse_unread();
  }
  ModelTensors result() { return std::move(found_); }

 private:
  const Tensor* tensor(const std::string& name, const std::vector<std::int64_t>& shape) {
    if (checkpoint_.random_seed) {
      return &found_.made.emplace_back(Tensor{.where = name, .shape = shape});
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
    read_.insert(name);
    return &found->second;
  }
  const Tensor* weight(std::string_view part, const std::vector<std::int64_t>& shape) {
    return tensor(std::string(part) + ".weight", shape);
  }

  // A file may hold a head although the configuration ties it to the embedding table, or lack one although it does not.
  // Tied wins where it is said, whatever else the file holds: that is what the model was trained as.
  void find_head() {
    ModelTensors& m = found_;
    const ModelConfig& c = spec_.config;
    const std::vector<std::int64_t> shape{c.vocab_size, c.hidden_size};
    if (c.reward_head) {
      m.head = weight(names_.score, {1, c.hidden_size});
    } else if (!c.tied_embeddings) {
      m.head = weight(names_.head, shape);
    } else if (!checkpoint_.random_seed && checkpoint_.tensors().contains(std::string(names_.head) + ".weight")) {
      m.unused_head = weight(names_.head, shape);
    }
  }

  struct Part {
    std::string_view name;
    std::int64_t n_out;
  };
  LinearTensors linear(const std::string& prefix, const std::vector<Part>& parts, std::int64_t n_in, bool has_bias) {
    LinearTensors out;
    for (const auto& [name, n_out] : parts) {
      const std::string full = prefix + std::string(name);
      out.weight.push_back(weight(full, {n_out, n_in}));
      if (has_bias) out.bias.push_back(tensor(full + ".bias", {n_out}));
    }
    return out;
  }

  LayerTensors layer(std::int64_t i) {
    const ModelConfig& c = spec_.config;
    const std::string prefix = fmt::format("{}{}.", names_.layers, i);
    const auto vector = [&](std::string_view name, std::int64_t n) { return weight(prefix + std::string(name), {n}); };
    const std::int64_t q = c.n_heads_q * c.head_dim, kv = c.n_heads_kv * c.head_dim, ffn = c.intermediate_size;
    const bool fused = spec_.family->fused;
    const std::vector<Part> qkv_parts = fused ? std::vector<Part>{{names_.qkv, q + 2 * kv}}
                                              : std::vector<Part>{{names_.q, q}, {names_.k, kv}, {names_.v, kv}};
    const std::vector<Part> gate_up_parts =
        fused ? std::vector<Part>{{names_.gate_up, 2 * ffn}} : std::vector<Part>{{names_.gate, ffn}, {names_.up, ffn}};
    LayerTensors layer;
    layer.attn_norm = vector(names_.attn_norm, c.hidden_size);
    layer.ffn_norm = vector(names_.ffn_norm, c.hidden_size);
    if (spec_.family->qk_norm) {
      layer.q_norm = vector(names_.q_norm, c.head_dim);
      layer.k_norm = vector(names_.k_norm, c.head_dim);
    }
    layer.qkv = linear(prefix, qkv_parts, c.hidden_size, spec_.qkv_bias);
    layer.attn_out = linear(prefix, {{names_.attn_out, c.hidden_size}}, q, spec_.attn_out_bias);
    layer.gate_up = linear(prefix, gate_up_parts, c.hidden_size, spec_.mlp_bias);
    layer.down = linear(prefix, {{names_.down, c.hidden_size}}, ffn, spec_.mlp_bias);
    return layer;
  }

  // Those that the configuration was read from, and the list that longrope needs but banyan does not use.
  void mark_rope_factors() {
    if (checkpoint_.format != kGgufFormat || spec_.rope.divisors.empty()) return;
    const auto mark = [&](std::string_view name) { read_.insert(std::string(name) + ".weight"); };
    if (spec_.rope.type == Rope::Type::longrope) {
      mark(kGgufRopeShort);
      mark(kGgufRopeLong);
    } else {
      mark(kGgufRopeFreqs);
    }
  }

  void refuse_unread() const {
    for (const auto& [name, t] : checkpoint_.tensors()) {
      if (read_.contains(name) || is_redundant(name)) continue;
      throw Error(ErrorCode::unsupported, t.where,
                  fmt::format("is not a part of a '{}' model of {} layers that banyan can run{}", spec_.family->name,
                              spec_.config.n_layers, spec_.config.reward_head ? " with a scalar head" : ""));
    }
  }

  const Checkpoint& checkpoint_;
  const ModelSpec& spec_;
  const TensorNames& names_;
  ModelTensors found_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace

ModelTensors find_model_tensors(const Checkpoint& checkpoint) {
  Finder finder(checkpoint);
  finder.find();
  return finder.result();
}

}  // namespace banyan
