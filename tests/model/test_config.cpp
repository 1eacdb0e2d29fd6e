// What is let through, and what is refused by name, from both file forms.
#include <doctest/doctest.h>

#include "made_model.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

// The error of reading a config.json with these keys on top of a plain Llama's; null takes one away.
std::string json_error(const nlohmann::json& keys) {
  const TempDir dir("config_json");
  auto json = config_json(MadeModel(4, 2, true).config, false);
  for (const auto& [key, value] : keys.items()) {
    if (value.is_null()) {
      json.erase(key);
    } else {
      json[key] = value;
    }
  }
  write_file(dir / "config.json", json.dump());
  return error_of([&] { config_from_json(dir / "config.json"); });
}

// The error of reading a GGUF file that has these entries beside a plain Llama's.
template <typename F>
std::string gguf_error(F&& add) {
  const TempDir dir("config_gguf");
  const MadeModel model(4, 2, true);
  GgufWriter out;
  add_config(out, model.config);
  add_tensors(out, model);
  add(out);
  write_file(dir / "m.gguf", out.bytes());
  return error_of([&] { config_from_gguf(GgufFile(dir / "m.gguf")); });
}

nlohmann::json qwen2(std::initializer_list<std::pair<const char*, nlohmann::json>> more) {
  nlohmann::json keys{{"model_type", "qwen2"}, {"architectures", {"Qwen2ForCausalLM"}}};
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

}  // namespace

TEST_CASE("config: variants that banyan does not do are refused by name, from config.json") {
  const std::vector<std::pair<const char*, nlohmann::json>> refused{
      {"model_type", "mixtral"},
      {"model_type", "gemma2"},
      {"model_type", ""},
      {"architectures", {"LlamaForTokenClassification"}},
      {"architectures", {"MistralForCausalLM"}},
      {"hidden_act", "gelu"},
      {"hidden_act", "gelu_pytorch_tanh"},
      {"sliding_window", 64},
      {"layer_types", {"full_attention", "linear_attention"}},
      {"num_local_experts", 8},
      {"n_routed_experts", 64},
      {"partial_rotary_factor", 0.5},
      {"attn_logit_softcapping", 50.0},
      {"final_logit_softcapping", 30.0},
      {"query_pre_attn_scalar", 256},
      {"clip_qkv", 8.0},
      {"residual_multiplier", 0.22},
      {"logits_scaling", 8.0},
      {"rope_interleaved", true},
      {"use_qk_norm", true},
      {"lm_head_bias", true},
      {"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}},
  };
  for (const auto& [key, value] : refused) {
    CAPTURE(key);
    CAPTURE(value.dump());
    const std::string error = json_error({{key, value}});
    CHECK_MESSAGE((contains(error, key) && contains(error, "unsupported: ")), error);
  }
  CHECK(contains(json_error({{"model_type", "mixtral"}}), "'llama', 'mistral', 'qwen2'"));  // what there is instead
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, nlohmann::json>>{{"sliding_window", 4096},
                                                           {"hidden_act", "silu"},
                                                           {"partial_rotary_factor", 1.0},
                                                           {"attention_bias", true},
                                                           {"layer_types", {"full_attention"}},
                                                           {"num_experts", nullptr}}) {
    CAPTURE(key);
    CHECK(json_error({{key, value}}).empty());
  }
}

TEST_CASE("config: a sliding window is refused with both numbers, where some layer would use it") {
  const nlohmann::json mistral{{"model_type", "mistral"}, {"architectures", {"MistralForCausalLM"}}};
  auto windowed = mistral;
  windowed["sliding_window"] = 96;
  const std::string error = json_error(windowed);
  CHECK_MESSAGE((contains(error, "window of 96 ") && contains(error, "context of 128 ")), error);
  windowed["sliding_window"] = 128;  // as wide as the context
  CHECK(json_error(windowed).empty());
  // Qwen2 has the number in its files and a switch beside it, and leaves its first layers alone.
  CHECK(json_error(qwen2({{"sliding_window", 64}})).empty());
  CHECK(json_error(qwen2({{"sliding_window", 64}, {"use_sliding_window", false}})).empty());
  CHECK(contains(json_error(qwen2({{"sliding_window", 64}, {"use_sliding_window", true}})), "window of 64 "));
  CHECK(json_error(qwen2({{"sliding_window", 64}, {"use_sliding_window", true}, {"max_window_layers", 2}})).empty());
  CHECK(contains(json_error(qwen2({{"sliding_window", 64}, {"layer_types", {"full_attention", "sliding_attention"}}})),
                 "window of 64 "));
}

TEST_CASE("config: what one family heeds and another does not") {
  CHECK(contains(json_error(qwen2({{"attention_bias", true}})), "attention_bias"));
  CHECK(contains(json_error(qwen2({{"mlp_bias", true}})), "mlp_bias"));
  CHECK(json_error({{"mlp_bias", true}}).empty());
  // Keys that Llama's files of 2023 leave out are needed elsewhere: another family's default is another number.
  for (const char* key : {"num_key_value_heads", "rope_theta", "rms_norm_eps", "max_position_embeddings"}) {
    CAPTURE(key);
    CHECK(json_error({{key, nullptr}}).empty());
    const std::string error = json_error(qwen2({{key, nullptr}}));
    CHECK_MESSAGE((contains(error, key) && contains(error, "absent")), error);
  }
}

TEST_CASE("config: layers without rope, by list, by interval, by default") {
  const TempDir dir("config_nope");
  const auto layers = [&](const nlohmann::json& keys) {
    auto json = config_json(MadeModel(4, 2, true).config, false);
    json.update({{"model_type", "smollm3"}, {"architectures", {"SmolLM3ForCausalLM"}}, {"num_hidden_layers", 5}});
    json.update(keys);
    write_file(dir / "config.json", json.dump());
    return config_from_json(dir / "config.json").layer_has_rope;
  };
  using Layers = std::vector<bool>;
  CHECK(layers({{"no_rope_layers", {1, 0, 1, 1, 0, 0}}}) == Layers{true, false, true, true, false});
  CHECK(layers({{"no_rope_layer_interval", 2}}) == Layers{true, false, true, false, true});
  CHECK(layers(nlohmann::json::object()) == Layers{true, true, true, false, true});
  CHECK(contains(error_of([&] { layers({{"no_rope_layers", {1, 0}}}); }), "no_rope_layers"));
  CHECK(contains(error_of([&] { layers({{"no_rope_layers", {1, 2, 1, 1, 1}}}); }), "neither 0 nor 1"));
  CHECK(contains(error_of([&] { layers({{"no_rope_layer_interval", 0}}); }), "not positive"));
}

TEST_CASE("config: longrope keeps to the context of its short factors, and inspect says so") {
  const TempDir dir("config_longrope");
  auto json = config_json(MadeModel(4, 2, true).config, false);
  json.update({{"model_type", "phi3"},
               {"architectures", {"Phi3ForCausalLM"}},
               {"max_position_embeddings", 131072},
               {"original_max_position_embeddings", 4096},
               {"sliding_window", 262144},
               {"rope_scaling", {{"type", "su"}, {"short_factor", {1, 1, 1, 1}}, {"long_factor", {1, 2, 3, 4}}}}});
  write_file(dir / "config.json", json.dump());
  const ModelSpec spec = config_from_json(dir / "config.json");
  CHECK(spec.config.max_positions == 4096);
  CHECK(spec.rope.magnitude == doctest::Approx(1.1902380714238083).epsilon(1e-12));  // sqrt(1 + ln 32 / ln 4096)
  const std::string text = describe(spec.rope, spec.config.head_dim);
  CHECK_MESSAGE((contains(text, "4096") && contains(text, "131072")), text);
}

TEST_CASE("config: variants that banyan does not do are refused by name, from GGUF") {
  CHECK(gguf_error([](GgufWriter&) {}).empty());
  CHECK(gguf_error([](GgufWriter& w) { w.add_string("llama.rope.scaling.type", "none"); }).empty());
  const auto refused = [](const char* key, auto&& add) {
    const std::string error = gguf_error(add);
    CHECK_MESSAGE((contains(error, key) && contains(error, "unsupported: ")), error);
  };
  refused("'ntk'", [](GgufWriter& w) { w.add_string("llama.rope.scaling.type", "ntk"); });
  refused("expert_count", [](GgufWriter& w) { w.add_u32("llama.expert_count", 8); });
  refused("logit_scale", [](GgufWriter& w) { w.add_f32("llama.logit_scale", 2.0F); });
  refused("softcapping", [](GgufWriter& w) { w.add_f32("llama.attn_logit_softcapping", 50.0F); });
  refused("log_multiplier", [](GgufWriter& w) { w.add_f32("llama.rope.scaling.yarn_log_multiplier", 0.1F); });
  refused("dimension_count", [](GgufWriter& w) { w.add_u32("llama.rope.dimension_count", 4); });
  refused("window of 64 ", [](GgufWriter& w) { w.add_u32("llama.attention.sliding_window", 64); });
  refused("causal", [](GgufWriter& w) { w.add_bool("llama.attention.causal", false); });
  CHECK(contains(gguf_error([](GgufWriter& w) { w.add_u32("llama.vocab_size", 50); }), "vocab_size"));
  CHECK(contains(gguf_error([](GgufWriter& w) { w.add_string("llama.rope.scaling.type", "longrope"); }),
                 "rope_factors_short"));
  CHECK(contains(
      gguf_error([](GgufWriter& w) { w.add_tensor("rope_freqs.weight", DType::f32, {32}, std::string(32 * 4, '\0')); }),
      "32 of them"));
  const TempDir dir("config_gguf_family");
  GgufWriter other;
  other.add_string("general.architecture", "gemma");
  write_file(dir / "m.gguf", other.bytes());
  const std::string error = error_of([&] { config_from_gguf(GgufFile(dir / "m.gguf")); });
  CHECK_MESSAGE((contains(error, "'gemma'") && contains(error, "'qwen2'")), error);
}

TEST_CASE("config: GGUF's rope keys, those of older files too") {
  const TempDir dir("config_gguf_rope");
  const auto rope = [&](auto&& add) {
    const MadeModel model(4, 2, true);
    GgufWriter out;
    add_config(out, model.config);
    add_tensors(out, model);
    add(out);
    write_file(dir / "m.gguf", out.bytes());
    return config_from_gguf(GgufFile(dir / "m.gguf")).rope;
  };
  const Rope linear = rope([](GgufWriter& w) {
    w.add_string("llama.rope.scaling.type", "linear");
    w.add_f32("llama.rope.scaling.factor", 4.0F);
  });
  CHECK(linear.type == Rope::Type::linear);
  CHECK(linear.factor == 4.0);
  CHECK(rope([](GgufWriter& w) { w.add_f32("llama.rope.scale_linear", 4.0F); }) == linear);
  CHECK(rope([](GgufWriter& w) { w.add_f32("llama.rope.scaling.factor", 4.0F); }) == linear);  // no type: linear
  const Rope none = rope([](GgufWriter& w) {
    w.add_string("llama.rope.scaling.type", "none");
    w.add_f32("llama.rope.scaling.factor", 4.0F);
  });
  CHECK(none == rope([](GgufWriter&) {}));
  const Rope yarn = rope([](GgufWriter& w) {
    w.add_string("llama.rope.scaling.type", "yarn");
    w.add_f32("llama.rope.scaling.factor", 16.0F);
    w.add_u32("llama.rope.scaling.original_context_length", 32);
  });
  CHECK(yarn.type == Rope::Type::yarn);
  CHECK(yarn.original_positions == 32);
  CHECK(yarn.magnitude == doctest::Approx(1.2772588722239782).epsilon(1e-12));  // 0.1 ln 16 + 1
}
