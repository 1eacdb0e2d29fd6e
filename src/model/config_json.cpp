// config.json of a Hugging Face directory. Keys are those of the transformers library, old names (rope_scaling, type)
// and new ones (rope_parameters, rope_type).
#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "base/json.hpp"
#include "model/config.hpp"

namespace banyan {
namespace {

using Json = nlohmann::json;

bool has(const Json& json, const char* key) { return json.contains(key) && !json[key].is_null(); }

Error absent(const char* key, const std::string& where) {
  return {ErrorCode::bad_file, fmt::format("{}: key '{}'", where, key), "is absent"};
}

std::int64_t required(const Json& json, const char* key, const std::string& where) {
  const auto value = find_int(json, key, where);
  if (!value) throw absent(key, where);
  return *value;
}

// --- which family, and what none of them has -----------------------------------------------------------------------

const Family& read_family(const Json& json, const std::string& where) {
  const auto type = find_string(json, "model_type", where);
  const Family* family = family_of_model_type(type.value_or(""));
  if (family == nullptr) {
    throw unsupported(where, "model_type",
                      fmt::format("'{}' is not supported; known: {}", type.value_or("(absent)"), known_model_types()));
  }
  return *family;
}

// True for a reward model: a head that gives one number.
bool read_reward_head(const Json& json, const Family& family, const std::string& where) {
  const std::string causal = std::string(family.class_prefix) + "ForCausalLM";
  const std::string reward = std::string(family.class_prefix) + "ForSequenceClassification";
  if (!has(json, "architectures")) return false;
  const Json& names = json["architectures"];
  if (!names.is_array()) throw Error(ErrorCode::bad_file, where + ": key 'architectures'", "is no list");
  bool is_reward = false;
  for (const Json& name : names) {
    if (name == reward) {
      is_reward = true;
    } else if (name != causal) {
      throw unsupported(where, "architectures",
                        fmt::format("{} is not supported for model_type '{}'; {} and {} are", name.dump(), family.name,
                                    causal, reward));
    }
  }
  if (!is_reward) return false;
  auto n_labels = find_int(json, "num_labels", where);
  if (!n_labels && has(json, "id2label")) n_labels = static_cast<std::int64_t>(json["id2label"].size());
  if (n_labels && *n_labels != 1) {
    throw unsupported(where, "id2label", fmt::format("{} labels are not supported; a reward model has 1", *n_labels));
  }
  return true;
}

void refuse_variants(const Json& json, const Family& family, const std::string& where) {
  for (const char* key : {"hidden_act", "hidden_activation", "activation_function"}) {
    if (const auto act = find_string(json, key, where); act && *act != "silu" && *act != "swish") {
      throw unsupported(where, key, fmt::format("'{}' is not supported; 'silu' is", *act));
    }
  }
  for (const char* key :
       {"rope_interleaved", "use_qk_norm", "qk_layernorm", "alibi", "parallel_attn", "lm_head_bias"}) {
    if (find_bool(json, key, where).value_or(false)) throw unsupported(where, key, "true is not supported");
  }
  const auto refuse_flag = [&](const char* key, bool heeded) {
    if (!heeded && find_bool(json, key, where).value_or(false)) {
      throw unsupported(where, key, fmt::format("true is not supported for model_type '{}'", family.name));
    }
  };
  refuse_flag("attention_bias", family.attention_bias_key);
  refuse_flag("mlp_bias", family.mlp_bias_key);
  for (const char* key : {"num_local_experts", "num_experts", "n_routed_experts", "quantization_config",
                          "compression_config", "attn_logit_softcapping", "final_logit_softcapping", "clip_qkv",
                          "query_pre_attn_scalar", "attention_chunk_size"}) {
    if (has(json, key)) throw unsupported(where, key, "is not supported");
  }
  for (const char* key :
       {"embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier", "logit_scale"}) {
    if (const auto value = find_float(json, key, where); value && *value != 1.0) {
      throw unsupported(where, key, fmt::format("{} is not supported; 1 is", *value));
    }
  }
}

// --- rope ----------------------------------------------------------------------------------------------------------

constexpr std::array kRopeKeys{"rope_type",       "type",
                               "rope_theta",      "partial_rotary_factor",
                               "factor",          "original_max_position_embeddings",
                               "beta_fast",       "beta_slow",
                               "mscale",          "mscale_all_dim",
                               "truncate",        "attention_factor",
                               "short_factor",    "long_factor",
                               "low_freq_factor", "high_freq_factor",
                               "finetuned"};

Rope::Type read_rope_type(const Json& rope, const Family& family, const std::string& where) {
  std::string name;
  for (const char* key : {"rope_type", "type"}) {
    const auto value = find_string(rope, key, where);
    if (!value) continue;
    if (!name.empty() && *value != name) {
      throw unsupported(where, key, fmt::format("'{}' contradicts rope_type '{}'", *value, name));
    }
    name = *value;
  }
  if (name.empty()) {
    for (const auto& [key, value] : rope.items()) {
      if (key != "rope_theta" && key != "partial_rotary_factor" && !value.is_null()) {
        throw unsupported(where, key, "stands in a block that names no rope_type");
      }
    }
    return Rope::Type::plain;
  }
  using enum Rope::Type;
  // Phi-3's first files call it "su".
  if (name == "longrope" || (name == "su" && family.partial_rotary)) return longrope;
  if (name == "default") return plain;
  if (name == "linear") return linear;
  if (name == "llama3") return llama3;
  if (name == "yarn") return yarn;
  throw unsupported(where, "rope_type",
                    fmt::format("'{}' is not supported; default, linear, llama3, yarn and longrope are", name));
}

std::vector<float> read_numbers(const Json& object, const char* key, const std::string& where) {
  if (!has(object, key)) throw absent(key, where);
  const Json& list = object[key];
  if (!list.is_array() || !std::ranges::all_of(list, [](const Json& value) { return value.is_number(); })) {
    throw Error(ErrorCode::bad_file, fmt::format("{}: key '{}'", where, key), "is no list of numbers");
  }
  std::vector<float> out;
  for (const Json& value : list) out.push_back(value.get<float>());
  return out;
}

// The parameters of one block, on top of `rope`, which has what stands outside of it.
Rope read_rope_object(const Json& object, const Family& family, const ModelConfig& c, Rope rope,
                      const std::string& where) {
  if (!object.is_object()) throw Error(ErrorCode::bad_file, where, "is no object");
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(kRopeKeys, key) == kRopeKeys.end() && !value.is_null()) {
      throw unsupported(where, key, "is not a rope parameter that banyan knows");
    }
  }
  const auto number = [&](const char* key) { return find_float(object, key, where); };
  const auto required_number = [&](const char* key) {
    const auto value = number(key);
    if (!value) throw absent(key, where);
    return *value;
  };
  rope.type = read_rope_type(object, family, where);
  rope.theta = number("rope_theta").value_or(rope.theta);
  if (rope.original_positions == 0) {
    rope.original_positions = find_int(object, "original_max_position_embeddings", where).value_or(c.max_positions);
  }
  const auto stretch =
      static_cast<double>(c.max_positions) / static_cast<double>(std::max<std::int64_t>(rope.original_positions, 1));
  switch (rope.type) {
    case Rope::Type::plain: break;
    case Rope::Type::linear: rope.factor = required_number("factor"); break;
    case Rope::Type::llama3:
      rope.factor = required_number("factor");
      rope.low_freq_factor = required_number("low_freq_factor");
      rope.high_freq_factor = required_number("high_freq_factor");
      break;
    case Rope::Type::yarn: {
      rope.factor = number("factor").value_or(stretch);
      const auto or_default = [](std::optional<double> x, double standard) {
        return x.value_or(0) == 0 ? standard : *x;
      };
      rope.beta_fast = or_default(number("beta_fast"), 32.0);
      rope.beta_slow = or_default(number("beta_slow"), 1.0);
      rope.truncate = find_bool(object, "truncate", where).value_or(true);
      const double mscale = number("mscale").value_or(0), all_dim = number("mscale_all_dim").value_or(0);
      const double computed = mscale != 0 && all_dim != 0
                                  ? yarn_magnitude(rope.factor, mscale) / yarn_magnitude(rope.factor, all_dim)
                                  : yarn_magnitude(rope.factor);
      rope.magnitude = number("attention_factor").value_or(computed);
      break;
    }
    case Rope::Type::longrope:
      rope.divisors = read_numbers(object, "short_factor", where);
      rope.long_divisors = read_numbers(object, "long_factor", where);
      if (rope.long_divisors.size() != rope.divisors.size()) {
        throw Error(ErrorCode::bad_file, where, "short_factor and long_factor differ in length");
      }
      rope.long_positions = c.max_positions;
      rope.magnitude = number("attention_factor")
                           .value_or(longrope_magnitude(number("factor").value_or(stretch), rope.original_positions));
      break;
  }
  if (rope.type == Rope::Type::plain || rope.type == Rope::Type::linear) rope.original_positions = 0;
  return rope;
}

// The share of a head that turns: named outside of the rope block in older files, inside in newer ones.
std::int64_t read_rotary_dims(const Json& json, const Family& family, const ModelConfig& c, const std::string& where) {
  double share = find_float(json, "partial_rotary_factor", where).value_or(1.0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (has(json, key) && json[key].is_object()) {
      share = find_float(json[key], "partial_rotary_factor", where).value_or(share);
    }
  }
  if (share == 1.0) return c.head_dim;
  if (!family.partial_rotary) {
    throw unsupported(where, "partial_rotary_factor",
                      fmt::format("{} is not supported for model_type '{}'", share, family.name));
  }
  if (!(share > 0.0 && share < 1.0)) {
    throw Error(ErrorCode::bad_file, where + ": key 'partial_rotary_factor'",
                fmt::format("{} is not in (0, 1]", share));
  }
  return static_cast<std::int64_t>(static_cast<double>(c.head_dim) * share);
}

Rope read_rope(const Json& json, const Family& family, const ModelConfig& c, const std::string& where) {
  Rope outside;
  outside.n_dims = read_rotary_dims(json, family, c, where);
  const auto theta = find_float(json, "rope_theta", where);
  outside.theta = theta.value_or(10000.0);
  std::optional<Rope> rope;
  bool theta_known = theta || family.may_leave_out;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!has(json, key)) continue;
    Rope start = outside;
    // Where it stands outside (Phi-3) it counts, whatever the block says.
    start.original_positions = find_int(json, "original_max_position_embeddings", where).value_or(0);
    const Rope read = read_rope_object(json[key], family, c, start, where + ": " + key);
    theta_known = theta_known || has(json[key], "rope_theta");
    if (rope && *rope != read) {
      throw Error(ErrorCode::bad_file, fmt::format("{}: key '{}'", where, key), "contradicts 'rope_scaling'");
    }
    rope = read;
  }
  if (!theta_known) throw absent("rope_theta", where);
  return rope.value_or(outside);
}

// --- layers --------------------------------------------------------------------------------------------------------

std::vector<bool> read_rope_layers(const Json& json, const Family& family, const ModelConfig& c,
                                   const std::string& where) {
  if (family.no_rope_interval == 0) return rope_layers(c.n_layers, 0);
  const auto interval = find_int(json, "no_rope_layer_interval", where).value_or(family.no_rope_interval);
  if (interval < 1) {
    throw Error(ErrorCode::bad_file, where + ": key 'no_rope_layer_interval'",
                fmt::format("{} is not positive", interval));
  }
  if (!has(json, "no_rope_layers")) return rope_layers(c.n_layers, interval);
  const Json& list = json["no_rope_layers"];  // despite its name: 1 has rope, 0 has none
  if (!list.is_array() || static_cast<std::int64_t>(list.size()) < c.n_layers) {
    throw Error(ErrorCode::bad_file, where + ": key 'no_rope_layers'",
                fmt::format("is no list of at least {} entries", c.n_layers));
  }
  std::vector<bool> has_rope;
  for (std::int64_t i = 0; i < c.n_layers; ++i) {
    const Json& entry = list[static_cast<std::size_t>(i)];
    if (entry != 0 && entry != 1) {
      throw Error(ErrorCode::bad_file, where + ": key 'no_rope_layers'", entry.dump() + " is neither 0 nor 1");
    }
    has_rope.push_back(entry == 1);
  }
  return has_rope;
}

// Refuses a window where some layer would use it and it is narrower than the context.
void check_windows(const Json& json, const Family& family, const ModelConfig& c, const std::string& where) {
  bool some_layer = !family.window_key || find_bool(json, "use_sliding_window", where).value_or(false);
  if (const auto full = find_int(json, "max_window_layers", where); full && *full >= c.n_layers) some_layer = false;
  if (has(json, "layer_types")) {
    const Json& types = json["layer_types"];
    some_layer = false;
    for (const Json& type : types) {
      if (type == "sliding_attention") {
        some_layer = true;
      } else if (type != "full_attention") {
        throw unsupported(where, "layer_types", type.dump() + " is not supported; full_attention is");
      }
    }
  }
  const auto window = find_int(json, "sliding_window", where);
  if (some_layer && window) refuse_window(*window, c, where, "sliding_window");
  if (some_layer && !window && has(json, "layer_types")) throw absent("sliding_window", where);
}

ModelConfig read_sizes(const Json& json, const Family& family, const std::string& path) {
  // A key that has a default only in files of a family that old ones are known of.
  const auto or_left_out = [&]<typename T>(std::optional<T> value, const char* key, T standard) {
    if (!value && !family.may_leave_out) throw absent(key, path);
    return value.value_or(standard);
  };
  ModelConfig c;
  c.architecture = family.name;
  c.name = find_string(json, "_name_or_path", path).value_or("");
  c.n_layers = required(json, "num_hidden_layers", path);
  c.hidden_size = required(json, "hidden_size", path);
  c.intermediate_size = required(json, "intermediate_size", path);
  c.vocab_size = required(json, "vocab_size", path);
  c.n_heads_q = required(json, "num_attention_heads", path);
  c.n_heads_kv = or_left_out(find_int(json, "num_key_value_heads", path), "num_key_value_heads", c.n_heads_q);
  c.head_dim = find_int(json, "head_dim", path).value_or(c.n_heads_q > 0 ? c.hidden_size / c.n_heads_q : 0);
  c.max_positions =
      or_left_out(find_int(json, "max_position_embeddings", path), "max_position_embeddings", std::int64_t{2048});
  c.rms_eps = static_cast<float>(or_left_out(find_float(json, "rms_norm_eps", path), "rms_norm_eps", 1e-6));
  c.tied_embeddings = find_bool(json, "tie_word_embeddings", path).value_or(family.tied_by_default);
  c.reward_head = read_reward_head(json, family, path);
  check_sizes(c, path);
  return c;
}

}  // namespace

ModelSpec config_from_json(const std::string& path) {
  const auto json = read_json_object(path);
  const Family& family = read_family(json, path);
  refuse_variants(json, family, path);
  ModelSpec spec{.config = read_sizes(json, family, path), .family = &family};
  ModelConfig& c = spec.config;
  spec.rope = read_rope(json, family, c, path);
  check_rope(spec.rope, c.head_dim, path);
  if (spec.rope.type == Rope::Type::longrope) c.max_positions = std::min(c.max_positions, spec.rope.original_positions);
  spec.layer_has_rope = read_rope_layers(json, family, c, path);
  check_windows(json, family, c, path);
  const bool attention_bias = find_bool(json, "attention_bias", path).value_or(false);
  spec.qkv_bias = family.qkv_bias || attention_bias;
  spec.attn_out_bias = attention_bias;
  spec.mlp_bias = find_bool(json, "mlp_bias", path).value_or(false);
  return spec;
}

}  // namespace banyan
