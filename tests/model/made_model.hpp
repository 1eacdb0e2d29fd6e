// Random Llamas made at test time, written in both file forms by the project's own writers.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "model/gguf_writer.hpp"
#include "model/safetensors_writer.hpp"
#include "model_test.hpp"

namespace banyan::test {

struct MadeTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// Weights by Hugging Face's names, in its row order.
struct MadeModel {
  ModelConfig config;
  std::map<std::string, MadeTensor> weights;

  MadeModel(std::int64_t n_heads_q, std::int64_t n_heads_kv, bool head, std::uint32_t seed = 7) {
    config = {.architecture = "llama",
              .name = "made",
              .n_layers = 2,
              .n_heads_q = n_heads_q,
              .n_heads_kv = n_heads_kv,
              .head_dim = 8,
              .hidden_size = 32,
              .intermediate_size = 64,
              .vocab_size = 48,
              .max_positions = 128};
    std::mt19937 random(seed);
    const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
      std::int64_t n = 1;
      for (const std::int64_t dim : shape) n *= dim;
      std::normal_distribution<float> draw(shape.size() == 1 ? 1.0F : 0.0F, 0.4F);
      MadeTensor tensor{.shape = std::move(shape), .values = std::vector<float>(static_cast<std::size_t>(n))};
      // Values that f16 and bf16 hold exactly, so that every type of file gives the same weights.
      for (float& x : tensor.values) x = to_float(to_bf16(std::round(draw(random) * 64.0F) / 64.0F));
      weights[name] = std::move(tensor);
    };
    const ModelConfig& c = config;
    add("model.embed_tokens.weight", {c.vocab_size, c.hidden_size});
    add("model.norm.weight", {c.hidden_size});
    if (head) add("lm_head.weight", {c.vocab_size, c.hidden_size});
    for (std::int64_t i = 0; i < c.n_layers; ++i) {
      const std::string p = "model.layers." + std::to_string(i) + ".";
      add(p + "input_layernorm.weight", {c.hidden_size});
      add(p + "post_attention_layernorm.weight", {c.hidden_size});
      add(p + "self_attn.q_proj.weight", {c.n_heads_q * c.head_dim, c.hidden_size});
      add(p + "self_attn.k_proj.weight", {c.n_heads_kv * c.head_dim, c.hidden_size});
      add(p + "self_attn.v_proj.weight", {c.n_heads_kv * c.head_dim, c.hidden_size});
      add(p + "self_attn.o_proj.weight", {c.hidden_size, c.n_heads_q * c.head_dim});
      add(p + "mlp.gate_proj.weight", {c.intermediate_size, c.hidden_size});
      add(p + "mlp.up_proj.weight", {c.intermediate_size, c.hidden_size});
      add(p + "mlp.down_proj.weight", {c.hidden_size, c.intermediate_size});
    }
  }
};

inline std::string tensor_data(const MadeTensor& tensor, DType type) {
  std::string out;
  for (const float x : tensor.values) {
    const std::uint16_t half = type == DType::f16 ? to_f16(x).bits : to_bf16(x).bits;
    if (type == DType::f32) {
      out.append(reinterpret_cast<const char*>(&x), sizeof x);
    } else {
      out.append(reinterpret_cast<const char*>(&half), sizeof half);
    }
  }
  return out;
}

inline nlohmann::json config_json(const ModelConfig& c, bool tied) {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"num_hidden_layers", c.n_layers},
          {"hidden_size", c.hidden_size},
          {"intermediate_size", c.intermediate_size},
          {"num_attention_heads", c.n_heads_q},
          {"num_key_value_heads", c.n_heads_kv},
          {"head_dim", c.head_dim},
          {"vocab_size", c.vocab_size},
          {"max_position_embeddings", c.max_positions},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"tie_word_embeddings", tied}};
}

inline std::string shard_name(int i, int n) {
  return "model-0000" + std::to_string(i + 1) + "-of-0000" + std::to_string(n) + ".safetensors";
}

// A directory without a tokenizer; n_shards > 1 deals the tensors round and writes the index.
inline void write_hf(const MadeModel& model, const TempDir& dir, bool tied, int n_shards = 1, DType type = DType::f32) {
  write_file(dir / "config.json", config_json(model.config, tied).dump());
  std::vector<SafetensorsWriter> shards(static_cast<std::size_t>(n_shards));
  nlohmann::json weight_map;
  int at = 0;
  for (const auto& [name, tensor] : model.weights) {
    shards[static_cast<std::size_t>(at)].add(name, type, tensor.shape, tensor_data(tensor, type));
    weight_map[name] = shard_name(at, n_shards);
    at = (at + 1) % n_shards;
  }
  if (n_shards == 1) return write_file(dir / "model.safetensors", shards[0].bytes());
  for (int i = 0; i < n_shards; ++i) {
    write_file(dir / shard_name(i, n_shards), shards[static_cast<std::size_t>(i)].bytes());
  }
  write_file(dir / "model.safetensors.index.json", nlohmann::json{{"weight_map", weight_map}}.dump());
}

// GGUF's order of q and k, weights or biases: pair i of a head in rows 2i and 2i + 1.
inline MadeTensor interleaved(const MadeTensor& tensor, std::int64_t head_dim) {
  MadeTensor out = tensor;
  const std::int64_t n_in = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
  for (std::int64_t row = 0; row < tensor.shape[0]; ++row) {
    const std::int64_t pair = row % head_dim / 2, second = row % 2;
    const std::int64_t from = row / head_dim * head_dim + pair + second * head_dim / 2;
    std::copy_n(tensor.values.begin() + from * n_in, n_in, out.values.begin() + row * n_in);
  }
  return out;
}

inline void add_config(GgufWriter& out, const ModelConfig& c) {
  const auto u32 = [&](const char* key, std::int64_t value) { out.add_u32(key, static_cast<std::uint32_t>(value)); };
  out.add_string("general.architecture", "llama");
  u32("llama.block_count", c.n_layers);
  u32("llama.context_length", c.max_positions);
  u32("llama.embedding_length", c.hidden_size);
  u32("llama.feed_forward_length", c.intermediate_size);
  u32("llama.attention.head_count", c.n_heads_q);
  u32("llama.attention.head_count_kv", c.n_heads_kv);
  u32("llama.attention.key_length", c.head_dim);
  u32("llama.attention.value_length", c.head_dim);
  out.add_f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
}

inline void add_tensors(GgufWriter& out, const MadeModel& model, DType type = DType::f32) {
  static const std::map<std::string, std::string> parts{
      {"input_layernorm", "attn_norm"}, {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_proj", "attn_q"},   {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},   {"self_attn.o_proj", "attn_output"},
      {"mlp.gate_proj", "ffn_gate"},    {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},    {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},    {"lm_head", "output"}};
  for (const auto& [name, tensor] : model.weights) {
    std::string part = name.substr(0, name.rfind(".weight")), prefix;
    if (part.starts_with("model.layers.")) {
      const auto dot = part.find('.', 13);
      prefix = "blk." + part.substr(13, dot - 13) + ".";
      part = part.substr(dot + 1);
    }
    const bool turned = part == "self_attn.q_proj" || part == "self_attn.k_proj";
    const MadeTensor& t = turned ? interleaved(tensor, model.config.head_dim) : tensor;
    const DType stored = tensor.shape.size() == 1 ? DType::f32 : type;
    out.add_tensor(prefix + parts.at(part) + ".weight", stored, t.shape, tensor_data(t, stored));
  }
}

inline void write_gguf(const MadeModel& model, const std::string& path, DType type = DType::f32) {
  GgufWriter out;
  add_config(out, model.config);
  add_tensors(out, model, type);
  write_file(path, out.bytes());
}

// The text of the Error that `act` throws, "code: what"; "" if it throws none.
template <typename F>
std::string error_of(F&& act) {
  try {
    act();
    return "";
  } catch (const Error& e) {
    return std::string(to_string(e.code())) + ": " + e.what();
  }
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace banyan::test
