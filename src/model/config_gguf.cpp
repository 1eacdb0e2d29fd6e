// The configuration in a GGUF file's metadata: keys "ARCHITECTURE.…", with defaults as its format has them.
#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "model/config.hpp"

namespace banyan {
namespace {

// Looks up the keys that belong to one architecture.
class ArchKeys {
 public:
  ArchKeys(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + ".") {}

  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) const { return file_.has(full(key)); }
  std::optional<std::int64_t> find_int(std::string_view key) const { return file_.find_int(full(key)); }
  std::optional<double> find_float(std::string_view key) const { return file_.find_float(full(key)); }
  double number(std::string_view key, double standard) const { return find_float(key).value_or(standard); }
  std::optional<std::string_view> find_string(std::string_view key) const { return file_.find_string(full(key)); }
  std::optional<bool> find_bool(std::string_view key) const { return file_.find_bool(full(key)); }
  std::int64_t required(std::string_view key) const {
    if (file_.is_array(full(key))) throw refused(key, "one value for each layer is not supported");
    const auto value = find_int(key);
    if (!value) throw file_.key_error(full(key), "is absent");
    return *value;
  }
  Error refused(std::string_view key, const std::string& message) const {
    return unsupported(file_.path(), full(key), message);
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
};

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
    NeutralFloat{"rope.scaling.alpha", 0.0},
    NeutralFloat{"rope.scaling.yarn_log_multiplier", 0.0},
    NeutralFloat{"attention.clamp_kqv", 0.0},
    NeutralFloat{"attention.max_alibi_bias", 0.0},
    NeutralFloat{"attn_logit_softcapping", 0.0},
    NeutralFloat{"final_logit_softcapping", 0.0},
    NeutralFloat{"attention.scale", 0.0},
    NeutralFloat{"logit_scale", 0.0},
    NeutralFloat{"embedding_scale", 0.0},
    NeutralFloat{"residual_scale", 0.0},
    NeutralFloat{"attention.temperature_scale", 0.0},
};

void refuse_variants(const ArchKeys& keys) {
  for (const auto& [key, neutral] : kNeutralInts) {
    if (const auto value = keys.find_int(key); value && *value != neutral) {
      throw keys.refused(key, fmt::format("{} is not supported", *value));
    }
  }
  for (const auto& [key, neutral] : kNeutralFloats) {
    if (const auto value = keys.find_float(key); value && *value != neutral) {
      throw keys.refused(key, fmt::format("{} is not supported", *value));
    }
  }
  if (!keys.find_bool("attention.causal").value_or(true))
    throw keys.refused("attention.causal", "false is not supported");
}

std::vector<float> read_vector(const GgufFile& file, const std::string& name) {
  const Tensor& tensor = file.tensors().find(name)->second;
  if (tensor.shape.size() != 1 || tensor.type != DType::f32) {
    throw Error(ErrorCode::bad_file, tensor.where, "is no vector of F32");
  }
  std::vector<float> values(static_cast<std::size_t>(tensor.shape[0]));
  dequantize(tensor.type, tensor.data, tensor.shape[0], values.data());
  return values;
}

void read_longrope(const GgufFile& file, const ArchKeys& keys, const ModelConfig& c, Rope& rope) {
  const std::string name = std::string(kGgufRopeShort) + ".weight";
  if (!file.tensors().contains(name)) {
    throw Error(ErrorCode::bad_file, fmt::format("{}: tensor '{}'", file.path(), name), "is absent");
  }
  if (rope.factor != 1.0) throw keys.refused("rope.scaling.factor", "beside longrope's factors is not supported");
  rope.type = Rope::Type::longrope;
  rope.divisors = read_vector(file, name);
  if (const std::string long_name = std::string(kGgufRopeLong) + ".weight"; file.tensors().contains(long_name)) {
    rope.long_divisors = read_vector(file, long_name);
  }
  rope.original_positions = keys.required("rope.scaling.original_context_length");
  rope.long_positions = c.max_positions;
}

// Without a type, a factor means "linear"; an older key for it is rope.scale_linear.
Rope read_rope(const GgufFile& file, const ArchKeys& keys, const Family& family, const ModelConfig& c) {
  Rope rope{.theta = keys.number("rope.freq_base", 10000.0),
            .n_dims = keys.find_int("rope.dimension_count").value_or(c.head_dim),
            .magnitude = keys.number("rope.scaling.attn_factor", 1.0)};
  if (rope.n_dims != c.head_dim && !family.partial_rotary) {
    throw keys.refused("rope.dimension_count",
                       fmt::format("{} differs from the head size {}", rope.n_dims, c.head_dim));
  }
  const auto type = keys.find_string("rope.scaling.type").value_or("linear");
  rope.factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 1.0));
  if (rope.factor == 0.0) rope.factor = 1.0;  // "not set"
  if (type == "longrope" || file.tensors().contains(std::string(kGgufRopeShort) + ".weight")) {
    read_longrope(file, keys, c, rope);
  } else if (type == "yarn") {
    rope.type = Rope::Type::yarn;
    rope.original_positions = keys.find_int("rope.scaling.original_context_length").value_or(c.max_positions);
    rope.beta_fast = keys.number("rope.scaling.yarn_beta_fast", rope.beta_fast);
    rope.beta_slow = keys.number("rope.scaling.yarn_beta_slow", rope.beta_slow);
    // Below 0 it is "as the type has it", which is 1.
    if (const double extrapolation = keys.number("rope.scaling.yarn_ext_factor", 1.0);
        extrapolation >= 0.0 && extrapolation != 1.0) {
      throw keys.refused("rope.scaling.yarn_ext_factor", fmt::format("{} is not supported; 1 is", extrapolation));
    }
    rope.magnitude *= keys.number("rope.scaling.yarn_attn_factor", 1.0) * yarn_magnitude(rope.factor);
  } else if (type == "linear" && rope.factor != 1.0) {
    rope.type = Rope::Type::linear;
  } else if (type == "none") {
    rope.factor = 1.0;
  } else if (type != "linear") {
    throw keys.refused("rope.scaling.type",
                       fmt::format("'{}' is not supported; none, linear, yarn and longrope are", type));
  }
  // Llama 3.1's scaling, worked out by the writer of the file.
  if (const std::string name = std::string(kGgufRopeFreqs) + ".weight"; file.tensors().contains(name)) {
    if (family.gguf != "llama" || !rope.divisors.empty()) {
      throw Error(ErrorCode::unsupported, file.tensors().find(name)->second.where,
                  fmt::format("is not supported in a model of architecture '{}'", family.gguf));
    }
    rope.divisors = read_vector(file, name);
  }
  return rope;
}

ModelConfig read_sizes(const GgufFile& file, const ArchKeys& keys, const Family& family) {
  ModelConfig c;
  c.architecture = family.name;
  c.name = file.find_string("general.name").value_or("");
  c.n_layers = keys.required("block_count");
  c.hidden_size = keys.required("embedding_length");
  c.intermediate_size = keys.required("feed_forward_length");
  c.n_heads_q = keys.required("attention.head_count");
  c.n_heads_kv = keys.has("attention.head_count_kv") ? keys.required("attention.head_count_kv") : c.n_heads_q;
  c.max_positions = keys.required("context_length");
  const std::int64_t even_split = c.n_heads_q > 0 ? c.hidden_size / c.n_heads_q : 0;
  c.head_dim = keys.find_int("attention.key_length").value_or(even_split);
  if (const auto value = keys.find_int("attention.value_length"); value && *value != c.head_dim) {
    throw keys.refused("attention.value_length", fmt::format("{} differs from the head size {}", *value, c.head_dim));
  }
  const auto eps = keys.find_float("attention.layer_norm_rms_epsilon");
  if (!eps) throw file.key_error(keys.full("attention.layer_norm_rms_epsilon"), "is absent");
  c.rms_eps = static_cast<float>(*eps);

  // The vocabulary's size is that of the embedding table; a key that says otherwise contradicts the file.
  const std::string embed = std::string(kGgufNames.embed) + ".weight";
  const auto table = file.tensors().find(embed);
  if (table == file.tensors().end() || table->second.shape.size() != 2) {
    throw Error(ErrorCode::bad_file, fmt::format("{}: tensor '{}'", file.path(), embed),
                "is absent or no matrix (a vocabulary-only file has a tokenizer but no model)");
  }
  c.vocab_size = table->second.shape[0];
  if (const auto size = keys.find_int("vocab_size"); size && *size != c.vocab_size) {
    throw file.key_error(keys.full("vocab_size"),
                         fmt::format("{} differs from the {} rows of the embedding table", *size, c.vocab_size));
  }
  c.tied_embeddings = !file.tensors().contains(std::string(kGgufNames.head) + ".weight");
  check_sizes(c, file.path());
  return c;
}

}  // namespace

ModelSpec config_from_gguf(const GgufFile& file) {
  const auto architecture = file.find_string("general.architecture").value_or("(absent)");
  const Family* family = family_of_gguf(architecture);
  if (family == nullptr) {
    throw unsupported(file.path(), "general.architecture",
                      fmt::format("'{}' is not supported; known: {}", architecture, known_gguf_architectures()));
  }
  const ArchKeys keys(file, architecture);
  refuse_variants(keys);
  ModelSpec spec{.config = read_sizes(file, keys, *family), .family = family};
  ModelConfig& c = spec.config;
  spec.rope = read_rope(file, keys, *family, c);
  check_rope(spec.rope, c.head_dim, file.path());
  if (spec.rope.type == Rope::Type::longrope) c.max_positions = std::min(c.max_positions, spec.rope.original_positions);
  spec.layer_has_rope = rope_layers(c.n_layers, family->no_rope_interval);
  if (const auto window = keys.find_int("attention.sliding_window"); window && *window != 0) {
    refuse_window(*window, c, file.path(), keys.full("attention.sliding_window"));
  }
  // Metadata do not say which biases there are; the first layer does, and the others must be like it.
  const auto has_bias = [&](std::string_view part) {
    return file.tensors().contains(fmt::format("{}0.{}.bias", kGgufNames.layers, part));
  };
  spec.qkv_bias = family->qkv_bias || has_bias(kGgufNames.q);
  spec.attn_out_bias = has_bias(kGgufNames.attn_out);
  spec.mlp_bias = has_bias(kGgufNames.down);
  return spec;
}

}  // namespace banyan
