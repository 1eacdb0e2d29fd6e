#include "model/describe.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace banyan {
namespace {

std::string plural(std::int64_t n, std::string_view noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

std::string megabytes(std::int64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

bool same_values(const Tensor& a, const Tensor& b) {
  std::vector<float> row_a(static_cast<std::size_t>(a.shape[1])), row_b(row_a.size());
  for (std::int64_t row = 0; row < a.shape[0]; ++row) {
    dequantize_row(a, row, row_a.data());
    dequantize_row(b, row, row_b.data());
    if (row_a != row_b) return false;
  }
  return true;
}

std::string attention(const ModelSpec& spec) {
  const ModelConfig& c = spec.config;
  std::string text =
      fmt::format("{} x {}, {}", plural(c.n_heads_q, "query head"), c.head_dim, plural(c.n_heads_kv, "KV head"));
  if (spec.family->qk_norm) text += ", q and k normed";
  if (spec.qkv_bias) text += spec.attn_out_bias ? ", q, k, v and output biases" : ", q, k and v biases";
  return text;
}

std::string rope(const ModelSpec& spec) {
  std::string text = describe(spec.rope, spec.config.head_dim);
  std::vector<std::size_t> without;
  for (std::size_t i = 0; i < spec.layer_has_rope.size(); ++i) {
    if (!spec.layer_has_rope[i]) without.push_back(i);
  }
  if (!without.empty()) text += fmt::format("; none in layers {}", fmt::join(without, ", "));
  return text;
}

std::string head(const ModelConfig& c) {
  if (c.reward_head) return "scalar: a reward model, for the verb `reward` alone";
  return c.tied_embeddings ? "tied to the embedding table" : "its own matrix";
}

std::string weights(const Checkpoint& checkpoint) {
  if (checkpoint.random_seed) return fmt::format("random, seed {}", *checkpoint.random_seed);
  const TensorMap& tensors = checkpoint.tensors();
  std::map<std::string_view, std::int64_t> n_of_type;
  std::int64_t file_bytes = 0, n_weights = 0;
  for (const auto& [name, t] : tensors) {
    ++n_of_type[to_string(t.type)];
    file_bytes += t.bytes;
    n_weights += t.n_elements();
  }
  std::string types;
  for (const auto& [type, n] : n_of_type) types += fmt::format("{}{} {}", types.empty() ? "" : ", ", n, type);
  return fmt::format("{} in {} ({}), {} in the file", n_weights,
                     plural(static_cast<std::int64_t>(tensors.size()), "tensor"), types, megabytes(file_bytes));
}

std::string tokenizer(const Checkpoint& checkpoint) {
  if (!checkpoint.tokenizer) return "none in the file";
  const TokenizerSpec& spec = checkpoint.tokenizer->spec();
  const bool bpe = spec.model == TokenizerSpec::Model::bpe;
  return fmt::format("{}{}, {} pieces, bos {}{}", bpe ? "bpe, pre-tokenizer " : "spm", bpe ? spec.pre : "",
                     spec.pieces.size(), spec.bos, spec.add_bos ? " (added)" : "");
}

}  // namespace

std::string describe(const Checkpoint& checkpoint, const ModelTensors& tensors, const LoadedFacts& facts) {
  const ModelSpec& spec = checkpoint.spec;
  const ModelConfig& c = spec.config;
  std::string text;
  const auto line = [&](std::string_view key, std::string_view value) {
    text += fmt::format("{:<14}{}\n", key, value);
  };
  line("file", checkpoint.path);
  line("format", checkpoint.format);
  if (!c.name.empty()) line("name", c.name);
  line("architecture",
       fmt::format("{}, {}, hidden {}, intermediate {}, vocabulary {}{}", c.architecture, plural(c.n_layers, "layer"),
                   c.hidden_size, c.intermediate_size, c.vocab_size, spec.mlp_bias ? ", feed-forward biases" : ""));
  line("attention", attention(spec));
  line("rope", rope(spec));
  line("context", plural(c.max_positions, "position"));
  line("head", head(c));
  line("weights", weights(checkpoint));
  line("compute", fmt::format("{}, {} in memory, {}", facts.compute == Compute::bf16 ? "bf16" : "f32",
                              megabytes(facts.weight_bytes), facts.backend));
  line("tokenizer", tokenizer(checkpoint));
  line("eos ids", checkpoint.eos_ids.empty() ? "none" : fmt::format("{}", fmt::join(checkpoint.eos_ids, ", ")));
  if (tensors.unused_head != nullptr) {
    line("note", fmt::format("{}.weight is ignored: the configuration ties the head to the embedding table{}",
                             checkpoint.names->head,
                             same_values(*tensors.unused_head, *tensors.embed) ? "" : ", from which it differs"));
  }
  return text;
}

}  // namespace banyan
