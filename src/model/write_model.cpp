#include "model/write_model.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tokens/pre_tokenizer.hpp"

namespace banyan {
namespace {

using Json = nlohmann::ordered_json;

Error no_words(const Checkpoint& model, const std::string& what) {
  return {ErrorCode::unsupported, model.path, what + " cannot be said in the other form of file"};
}

std::uint32_t u32(std::int64_t value) { return static_cast<std::uint32_t>(value); }

// --- GGUF ----------------------------------------------------------------------------------------------------------

// Numbers of tokenizer.ggml.token_type.
std::int32_t kind_number(TokenKind kind) {
  constexpr std::array kKinds{TokenKind::normal,       TokenKind::unknown, TokenKind::control,
                              TokenKind::user_defined, TokenKind::unused,  TokenKind::byte};
  return static_cast<std::int32_t>(std::ranges::find(kKinds, kind) - kKinds.begin()) + 1;
}

void add_rope(GgufWriter& out, const Checkpoint& model, const std::string& prefix) {
  const Rope& rope = model.spec.rope;
  out.add_f32(prefix + "rope.freq_base", static_cast<float>(rope.theta));
  out.add_u32(prefix + "rope.dimension_count", u32(rope.n_dims));
  switch (rope.type) {
    case Rope::Type::plain:
    case Rope::Type::llama3: break;
    case Rope::Type::linear: out.add_string(prefix + "rope.scaling.type", "linear"); break;
    case Rope::Type::yarn:
      out.add_string(prefix + "rope.scaling.type", "yarn");
      out.add_u32(prefix + "rope.scaling.original_context_length", u32(rope.original_positions));
      out.add_f32(prefix + "rope.scaling.yarn_beta_fast", static_cast<float>(rope.beta_fast));
      out.add_f32(prefix + "rope.scaling.yarn_beta_slow", static_cast<float>(rope.beta_slow));
      out.add_f32(prefix + "rope.scaling.yarn_attn_factor",
                  static_cast<float>(rope.magnitude / yarn_magnitude(rope.factor)));
      break;
    case Rope::Type::longrope: throw no_words(model, "rope of type longrope");
  }
  if (rope.type == Rope::Type::linear || rope.type == Rope::Type::yarn) {
    out.add_f32(prefix + "rope.scaling.factor", static_cast<float>(rope.factor));
  }
}

// --- Hugging Face --------------------------------------------------------------------------------------------------

Json rope_scaling(const Checkpoint& model) {
  const Rope& rope = model.spec.rope;
  if (!rope.divisors.empty()) throw no_words(model, "a list of rope's frequency factors");
  Json j = nullptr;
  switch (rope.type) {
    case Rope::Type::plain: break;
    case Rope::Type::linear: j = {{"rope_type", "linear"}, {"factor", rope.factor}}; break;
    case Rope::Type::llama3:
      j = {{"rope_type", "llama3"},
           {"factor", rope.factor},
           {"low_freq_factor", rope.low_freq_factor},
           {"high_freq_factor", rope.high_freq_factor},
           {"original_max_position_embeddings", rope.original_positions}};
      break;
    case Rope::Type::yarn:
      j = {{"rope_type", "yarn"},
           {"factor", rope.factor},
           {"beta_fast", rope.beta_fast},
           {"beta_slow", rope.beta_slow},
           {"truncate", rope.truncate},
           {"attention_factor", rope.magnitude},
           {"original_max_position_embeddings", rope.original_positions}};
      break;
    case Rope::Type::longrope: throw no_words(model, "rope of type longrope");
  }
  return j;
}

Json config_json(const Checkpoint& model, DType type) {
  const ModelSpec& spec = model.spec;
  const ModelConfig& c = spec.config;
  Json j{{"architectures", Json::array({std::string(spec.family->class_prefix) + "ForCausalLM"})},
         {"model_type", spec.family->name},
         {"torch_dtype", hf_type_name(type)},
         {"hidden_act", "silu"},
         {"num_hidden_layers", c.n_layers},
         {"hidden_size", c.hidden_size},
         {"intermediate_size", c.intermediate_size},
         {"num_attention_heads", c.n_heads_q},
         {"num_key_value_heads", c.n_heads_kv},
         {"head_dim", c.head_dim},
         {"vocab_size", c.vocab_size},
         {"max_position_embeddings", c.max_positions},
         {"rms_norm_eps", c.rms_eps},
         {"rope_theta", spec.rope.theta},
         {"rope_scaling", rope_scaling(model)},
         {"tie_word_embeddings", c.tied_embeddings}};
  if (spec.family->attention_bias_key) j["attention_bias"] = spec.attn_out_bias;
  if (spec.family->mlp_bias_key) j["mlp_bias"] = spec.mlp_bias;
  if (spec.family->partial_rotary) {
    j["partial_rotary_factor"] = static_cast<double>(spec.rope.n_dims) / static_cast<double>(c.head_dim);
  }
  if (!model.eos_ids.empty()) j["eos_token_id"] = model.eos_ids;
  if (!c.name.empty()) j["_name_or_path"] = c.name;
  return j;
}

Json pre_tokenizer_json(const PreTokenizerRule& rule) {
  const auto gpt2 = pre_tokenizer_rule("gpt-2", "").patterns.front();
  Json parts = Json::array();
  bool own_pattern = false;  // GPT-2's, which a byte level has by itself
  for (const std::string_view pattern : rule.patterns) {
    if (pattern == gpt2 && &pattern == &rule.patterns.back()) {
      own_pattern = true;
    } else if (pattern == R"(\p{N})") {
      parts.push_back({{"type", "Digits"}, {"individual_digits", true}});
    } else {
      parts.push_back(
          {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
    }
  }
  parts.push_back(
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own_pattern}});
  if (parts.size() == 1) return parts.front();
  return {{"type", "Sequence"}, {"pretokenizers", parts}};
}

Json tokenizer_json(const Checkpoint& model) {
  const TokenizerSpec& spec = model.tokenizer->spec();
  if (spec.model != TokenizerSpec::Model::bpe) {
    throw Error(ErrorCode::unsupported, model.path,
                "its sentencepiece vocabulary is not written to a Hugging Face directory; convert to a .gguf");
  }
  const PreTokenizerRule& rule = pre_tokenizer_rule(spec.pre, spec.where);
  Json added = Json::array(), vocab = Json::object();
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    const TokenKind kind = spec.kinds[i];
    if (kind == TokenKind::unused) continue;  // an id that the file leaves out
    vocab[spec.pieces[i]] = i;
    if (kind == TokenKind::normal) continue;
    added.push_back({{"id", i},
                     {"content", spec.pieces[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", kind != TokenKind::user_defined}});
  }
  const Json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", rule.nfc ? Json{{"type", "NFC"}} : Json()},
          {"pre_tokenizer", pre_tokenizer_json(rule)},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", rule.whole_words},
            {"vocab", vocab},
            {"merges", spec.merges}}}};
}

Json tokenizer_config_json(const TokenizerSpec& spec) {
  Json j{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"add_bos_token", spec.add_bos}};
  const auto name = [&](const char* key, TokenId id) {
    if (id != kNoToken) j[key] = spec.pieces[static_cast<std::size_t>(id)];
  };
  name("bos_token", spec.bos);
  name("eos_token", spec.eos.empty() ? kNoToken : spec.eos.front());
  name("unk_token", spec.unk);
  if (!spec.chat_template.empty()) j["chat_template"] = spec.chat_template;
  return j;
}

}  // namespace

std::string hf_type_name(DType type) {
  return type == DType::f32 ? "float32" : type == DType::f16 ? "float16" : "bfloat16";
}

void add_config(GgufWriter& out, const Checkpoint& model) {
  const ModelSpec& spec = model.spec;
  const ModelConfig& c = spec.config;
  if (c.reward_head) throw no_words(model, "the scalar head of a reward model");
  const std::string prefix = std::string(spec.family->gguf) + ".";
  out.add_string("general.architecture", spec.family->gguf);
  if (!c.name.empty()) out.add_string("general.name", c.name);
  out.add_u32(prefix + "block_count", u32(c.n_layers));
  out.add_u32(prefix + "context_length", u32(c.max_positions));
  out.add_u32(prefix + "embedding_length", u32(c.hidden_size));
  out.add_u32(prefix + "feed_forward_length", u32(c.intermediate_size));
  out.add_u32(prefix + "attention.head_count", u32(c.n_heads_q));
  out.add_u32(prefix + "attention.head_count_kv", u32(c.n_heads_kv));
  out.add_u32(prefix + "attention.key_length", u32(c.head_dim));
  out.add_u32(prefix + "attention.value_length", u32(c.head_dim));
  out.add_f32(prefix + "attention.layer_norm_rms_epsilon", c.rms_eps);
  out.add_u32(prefix + "vocab_size", u32(c.vocab_size));
  add_rope(out, model, prefix);
}

void add_tokenizer(GgufWriter& out, const Checkpoint& model) {
  if (!model.tokenizer) return out.add_string("tokenizer.ggml.model", "none");
  const TokenizerSpec& spec = model.tokenizer->spec();
  const bool spm = spec.model == TokenizerSpec::Model::spm;
  out.add_string("tokenizer.ggml.model", spm ? "llama" : "gpt2");
  out.add_string("tokenizer.ggml.pre", spm ? "default" : spec.pre);
  out.add_strings("tokenizer.ggml.tokens", spec.pieces);
  if (!spec.scores.empty()) out.add_floats("tokenizer.ggml.scores", spec.scores);
  std::vector<std::int32_t> kinds;
  for (const TokenKind kind : spec.kinds) kinds.push_back(kind_number(kind));
  out.add_ints("tokenizer.ggml.token_type", kinds);
  if (!spec.merges.empty()) out.add_strings("tokenizer.ggml.merges", spec.merges);
  const auto id = [&](const char* key, TokenId value) {
    if (value != kNoToken) out.add_u32(key, u32(value));
  };
  id("tokenizer.ggml.bos_token_id", spec.bos);
  id("tokenizer.ggml.unknown_token_id", spec.unk);
  // The first is the one that the tokenizer itself names; a GGUF has three names for such ids.
  std::vector<TokenId> eos = spec.eos;
  for (const TokenId more : model.eos_ids) {
    if (std::ranges::find(eos, more) == eos.end()) eos.push_back(more);
  }
  constexpr std::array kNames{"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                              "tokenizer.ggml.eom_token_id"};
  if (eos.size() > kNames.size()) throw no_words(model, fmt::format("{} end-of-text ids", eos.size()));
  for (std::size_t i = 0; i < eos.size(); ++i) id(kNames[i], eos[i]);
  out.add_bool("tokenizer.ggml.add_bos_token", spec.add_bos);
  out.add_bool("tokenizer.ggml.add_space_prefix", spm && spec.add_space_prefix);
  if (!spec.chat_template.empty()) out.add_string("tokenizer.chat_template", spec.chat_template);
}

std::vector<float> gguf_rope_divisors(const Rope& rope) {
  if (rope.type != Rope::Type::llama3) return rope.divisors;
  Rope plain = rope;
  plain.type = Rope::Type::plain;
  std::vector<float> out = rope_inv_freq(plain);
  const std::vector<float> scaled = rope_inv_freq(rope);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] /= scaled[i];
  return out;
}

std::map<std::string, std::string> hf_files(const Checkpoint& model, DType type) {
  // A name that is no UTF-8 loses the bytes that JSON has no words for: it is there for people alone.
  const auto config = config_json(model, type).dump(2, ' ', false, Json::error_handler_t::replace);
  std::map<std::string, std::string> files{{"config.json", config}};
  try {
    if (model.tokenizer) {
      files["tokenizer.json"] = tokenizer_json(model).dump(1);
      files["tokenizer_config.json"] = tokenizer_config_json(model.tokenizer->spec()).dump(2);
    }
  } catch (const nlohmann::json::exception&) {  // a piece that is no UTF-8, which JSON has no words for
    throw no_words(model, "a piece of its vocabulary");
  }
  if (!model.eos_ids.empty()) files["generation_config.json"] = Json{{"eos_token_id", model.eos_ids}}.dump(2);
  return files;
}

}  // namespace banyan
