#include <array>
#include <fmt/format.h>

#include "base/json.hpp"
#include "model/checkpoint.hpp"

namespace banyan {
namespace {

// What both file forms must satisfy; `where` names the file.
void check(const ModelConfig& c, const std::string& where) {
  const auto positive = [&](std::int64_t value, const char* name) {
    if (value < 1) throw Error(ErrorCode::bad_file, where + ": " + name, fmt::format("{} is not positive", value));
  };
  positive(c.n_layers, "number of layers");
  positive(c.n_heads_q, "number of query heads");
  positive(c.n_heads_kv, "number of KV heads");
  positive(c.head_dim, "head size");
  positive(c.hidden_size, "hidden size");
  positive(c.intermediate_size, "intermediate size");
  positive(c.vocab_size, "vocabulary size");
  positive(c.max_positions, "context length");
  if (c.n_heads_q % c.n_heads_kv != 0) {
    throw Error(ErrorCode::bad_file, where + ": number of KV heads",
                fmt::format("{} query heads are not a multiple of {} KV heads", c.n_heads_q, c.n_heads_kv));
  }
  if (c.head_dim % 2 != 0) {
    throw Error(ErrorCode::bad_file, where + ": head size", fmt::format("{} is odd; rope turns pairs", c.head_dim));
  }
  if (!(c.rms_eps > 0.0F && c.rms_eps < 1.0F)) {
    throw Error(ErrorCode::bad_file, where + ": RMS epsilon", fmt::format("{} is not in (0, 1)", c.rms_eps));
  }
  if (!(c.rope_theta >= 1.0 && c.rope_theta < 1e15)) {
    throw Error(ErrorCode::bad_file, where + ": rope theta", fmt::format("{} is not in [1, 1e15)", c.rope_theta));
  }
  // 2^31 of each is far above any model and keeps the products of two of them in 63 bits.
  for (const std::int64_t value :
       {c.n_layers, c.n_heads_q, c.head_dim, c.hidden_size, c.intermediate_size, c.vocab_size, c.max_positions}) {
    if (value >> 31 != 0) throw Error(ErrorCode::bad_file, where, fmt::format("a size of {} is beyond 2^31", value));
  }
  checked_mul(c.n_heads_q, c.head_dim, where + ": heads x head size");
}

Error unsupported(const std::string& where, std::string_view key, const std::string& message) {
  return {ErrorCode::unsupported, fmt::format("{}: key '{}'", where, key), message};
}

// {"rope_type": …} or, in older files, {"type": …}: only the unscaled kind is known, whatever else a block of that kind
// is filled with. A block that names no kind may hold rope_theta alone.
void check_rope_object(const nlohmann::json& rope, const char* key, const std::string& where) {
  if (!rope.is_object()) throw Error(ErrorCode::bad_file, where + ": key '" + key + "'", "is no object");
  bool named = false;
  for (const char* name : {"rope_type", "type"}) {
    const auto type = find_string(rope, name, where + ": " + key);
    if (type && *type != "default") {
      throw unsupported(where, fmt::format("{}.{}", key, name), fmt::format("rope type '{}' is not supported", *type));
    }
    named = named || type;
  }
  for (const auto& [name, value] : rope.items()) {
    if (!named && name != "rope_theta" && !value.is_null()) {
      throw unsupported(where, fmt::format("{}.{}", key, name), "scaled rope is not supported");
    }
  }
}

void refuse_variants(const nlohmann::json& json, const std::string& where) {
  if (const auto type = find_string(json, "model_type", where); type.value_or("") != "llama") {
    throw unsupported(where, "model_type", fmt::format("'{}' is not supported; 'llama' is", type.value_or("(absent)")));
  }
  if (json.contains("architectures") && json["architectures"].is_array()) {
    for (const auto& name : json["architectures"]) {
      if (name != "LlamaForCausalLM") {
        throw unsupported(where, "architectures", fmt::format("{} is not supported; LlamaForCausalLM is", name.dump()));
      }
    }
  }
  if (const auto act = find_string(json, "hidden_act", where); act && *act != "silu") {
    throw unsupported(where, "hidden_act", fmt::format("'{}' is not supported; 'silu' is", *act));
  }
  for (const char* key : {"attention_bias", "mlp_bias", "rope_interleaved", "use_qk_norm", "use_sliding_window"}) {
    if (find_bool(json, key, where).value_or(false)) throw unsupported(where, key, "true is not supported");
  }
  for (const char* key : {"num_local_experts", "num_experts", "quantization_config", "attn_logit_softcapping",
                          "final_logit_softcapping"}) {
    if (json.contains(key) && !json[key].is_null()) throw unsupported(where, key, "is not supported");
  }
  for (const char* key : {"partial_rotary_factor", "embedding_multiplier", "residual_multiplier", "logits_scaling"}) {
    if (const auto value = find_float(json, key, where); value && *value != 1.0) {
      throw unsupported(where, key, fmt::format("{} is not supported; 1 is", *value));
    }
  }
}

std::int64_t required(const nlohmann::json& json, const char* key, const std::string& where) {
  const auto value = find_int(json, key, where);
  if (!value) throw Error(ErrorCode::bad_file, fmt::format("{}: key '{}'", where, key), "is absent");
  return *value;
}

}  // namespace

ModelConfig config_from_json(const std::string& path) {
  const auto json = read_json_object(path);
  refuse_variants(json, path);
  ModelConfig c;
  c.architecture = "llama";
  c.name = find_string(json, "_name_or_path", path).value_or("");
  c.n_layers = required(json, "num_hidden_layers", path);
  c.hidden_size = required(json, "hidden_size", path);
  c.intermediate_size = required(json, "intermediate_size", path);
  c.vocab_size = required(json, "vocab_size", path);
  c.n_heads_q = required(json, "num_attention_heads", path);
  // Defaults of the format, where a file leaves a key out.
  c.n_heads_kv = find_int(json, "num_key_value_heads", path).value_or(c.n_heads_q);
  c.head_dim = find_int(json, "head_dim", path).value_or(c.n_heads_q > 0 ? c.hidden_size / c.n_heads_q : 0);
  c.max_positions = find_int(json, "max_position_embeddings", path).value_or(2048);
  c.rms_eps = static_cast<float>(find_float(json, "rms_norm_eps", path).value_or(1e-6));
  c.tied_embeddings = find_bool(json, "tie_word_embeddings", path).value_or(false);
  c.rope_theta = find_float(json, "rope_theta", path).value_or(10000.0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!json.contains(key) || json[key].is_null()) continue;
    check_rope_object(json[key], key, path);
    c.rope_theta = find_float(json[key], "rope_theta", path).value_or(c.rope_theta);
  }
  if (const auto window = find_int(json, "sliding_window", path); window && *window < c.max_positions) {
    throw unsupported(path, "sliding_window",
                      fmt::format("a window of {} in a context of {} is not supported", *window, c.max_positions));
  }
  check(c, path);
  return c;
}

namespace {

// Keys that change the arithmetic, with the value that means "no change".
struct NeutralInt {
  std::string_view key;
  std::int64_t neutral;
};
constexpr std::array kNeutralInts{NeutralInt{"expert_count", 0}, NeutralInt{"expert_used_count", 0}};
struct NeutralFloat {
  std::string_view key;
  double neutral;
};
constexpr std::array kNeutralFloats{
    NeutralFloat{"rope.scale_linear", 1.0},      NeutralFloat{"rope.scaling.attn_factor", 1.0},
    NeutralFloat{"attention.clamp_kqv", 0.0},    NeutralFloat{"attention.max_alibi_bias", 0.0},
    NeutralFloat{"attn_logit_softcapping", 0.0}, NeutralFloat{"final_logit_softcapping", 0.0},
    NeutralFloat{"attention.scale", 0.0},        NeutralFloat{"logit_scale", 0.0},
    NeutralFloat{"embedding_scale", 0.0},        NeutralFloat{"residual_scale", 0.0},
};

void refuse_variants(const GgufFile& file, std::int64_t max_positions) {
  const std::string prefix = "llama.";
  for (const auto& [key, neutral] : kNeutralInts) {
    if (const auto value = file.find_int(prefix + std::string(key)); value && *value != neutral) {
      throw unsupported(file.path(), prefix + std::string(key), fmt::format("{} is not supported", *value));
    }
  }
  for (const auto& [key, neutral] : kNeutralFloats) {
    if (const auto value = file.find_float(prefix + std::string(key)); value && *value != neutral) {
      throw unsupported(file.path(), prefix + std::string(key), fmt::format("{} is not supported", *value));
    }
  }
  if (const auto type = file.find_string("llama.rope.scaling.type"); type && *type != "none") {
    throw unsupported(file.path(), "llama.rope.scaling.type", fmt::format("rope type '{}' is not supported", *type));
  }
  if (const auto window = file.find_int("llama.attention.sliding_window");
      window && *window != 0 && *window < max_positions) {
    throw unsupported(file.path(), "llama.attention.sliding_window",
                      fmt::format("a window of {} in a context of {} is not supported", *window, max_positions));
  }
  if (!file.find_bool("llama.attention.causal").value_or(true)) {
    throw unsupported(file.path(), "llama.attention.causal", "false is not supported");
  }
}

std::int64_t required(const GgufFile& file, std::string_view key) {
  if (file.is_array(key)) {
    throw unsupported(file.path(), key, "one value for each layer is not supported");
  }
  const auto value = file.find_int(key);
  if (!value) throw file.key_error(key, "is absent");
  return *value;
}

}  // namespace

ModelConfig config_from_gguf(const GgufFile& file) {
  ModelConfig c;
  c.architecture = file.find_string("general.architecture").value_or("(absent)");
  if (c.architecture != "llama") {
    throw unsupported(file.path(), "general.architecture",
                      fmt::format("'{}' is not supported; 'llama' is", c.architecture));
  }
  c.name = file.find_string("general.name").value_or("");
  c.n_layers = required(file, "llama.block_count");
  c.hidden_size = required(file, "llama.embedding_length");
  c.intermediate_size = required(file, "llama.feed_forward_length");
  c.n_heads_q = required(file, "llama.attention.head_count");
  c.n_heads_kv =
      file.has("llama.attention.head_count_kv") ? required(file, "llama.attention.head_count_kv") : c.n_heads_q;
  c.max_positions = required(file, "llama.context_length");
  const std::int64_t even_split = c.n_heads_q > 0 ? c.hidden_size / c.n_heads_q : 0;
  c.head_dim = file.find_int("llama.attention.key_length").value_or(even_split);
  for (const char* key : {"llama.attention.value_length", "llama.rope.dimension_count"}) {
    if (const auto value = file.find_int(key); value && *value != c.head_dim) {
      throw unsupported(file.path(), key, fmt::format("{} differs from the head size {}", *value, c.head_dim));
    }
  }
  const auto eps = file.find_float("llama.attention.layer_norm_rms_epsilon");
  if (!eps) throw file.key_error("llama.attention.layer_norm_rms_epsilon", "is absent");
  c.rms_eps = static_cast<float>(*eps);
  c.rope_theta = file.find_float("llama.rope.freq_base").value_or(10000.0);
  refuse_variants(file, c.max_positions);

  // The vocabulary's size is that of the embedding table; a key that says otherwise contradicts the file.
  const auto table = file.tensors().find(kGgufNames.embed);
  if (table == file.tensors().end() || table->second.shape.size() != 2) {
    throw Error(ErrorCode::bad_file, fmt::format("{}: tensor '{}'", file.path(), kGgufNames.embed),
                "is absent or no matrix (a vocabulary-only file has a tokenizer but no model)");
  }
  c.vocab_size = table->second.shape[0];
  if (const auto size = file.find_int("llama.vocab_size"); size && *size != c.vocab_size) {
    throw file.key_error("llama.vocab_size",
                         fmt::format("{} differs from the {} rows of the embedding table", *size, c.vocab_size));
  }
  c.tied_embeddings = !file.tensors().contains(kGgufNames.head);
  check(c, file.path());
  return c;
}

}  // namespace banyan
