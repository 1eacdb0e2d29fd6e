#include "model/family.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace banyan {
namespace {

constexpr std::array kFamilies{
    // Llama 1 to 3.x, CodeLlama, Yi, SmolLM2
    Family{.name = "llama",
           .gguf = "llama",
           .class_prefix = "Llama",
           .gguf_interleaved = true,
           .attention_bias_key = true,
           .mlp_bias_key = true,
           .may_leave_out = true},
    Family{.name = "mistral", .gguf = "llama", .class_prefix = "Mistral", .gguf_interleaved = true},
    // also Qwen2.5
    Family{.name = "qwen2", .gguf = "qwen2", .class_prefix = "Qwen2", .qkv_bias = true, .window_key = true},
    Family{.name = "qwen3",
           .gguf = "qwen3",
           .class_prefix = "Qwen3",
           .attention_bias_key = true,
           .qk_norm = true,
           .window_key = true},
    Family{.name = "smollm3",
           .gguf = "smollm3",
           .class_prefix = "SmolLM3",
           .gguf_interleaved = true,
           .attention_bias_key = true,
           .mlp_bias_key = true,
           .window_key = true,
           .tied_by_default = true,
           .no_rope_interval = 4},
    // also Phi-4 and Phi-4-mini
    Family{.name = "phi3", .gguf = "phi3", .class_prefix = "Phi3", .fused = true, .partial_rotary = true},
};

const Family* find(std::string_view Family::*member, std::string_view value) {
  const auto* found = std::ranges::find(kFamilies, value, member);
  return found == kFamilies.end() ? nullptr : found;
}

std::string known(std::string_view Family::*member) {
  std::string text;
  for (const Family& family : kFamilies) {
    const std::string quoted = fmt::format("'{}'", family.*member);
    if (text.find(quoted) == std::string::npos) text += (text.empty() ? "" : ", ") + quoted;
  }
  return text;
}

}  // namespace

const Family* family_of_model_type(std::string_view model_type) { return find(&Family::name, model_type); }
const Family* family_of_gguf(std::string_view architecture) { return find(&Family::gguf, architecture); }
std::string known_model_types() { return known(&Family::name); }
std::string known_gguf_architectures() { return known(&Family::gguf); }

const TensorNames kHfNames{.embed = "model.embed_tokens",
                           .final_norm = "model.norm",
                           .head = "lm_head",
                           .score = "score",
                           .layers = "model.layers.",
                           .attn_norm = "input_layernorm",
                           .q = "self_attn.q_proj",
                           .k = "self_attn.k_proj",
                           .v = "self_attn.v_proj",
                           .q_norm = "self_attn.q_norm",
                           .k_norm = "self_attn.k_norm",
                           .attn_out = "self_attn.o_proj",
                           .ffn_norm = "post_attention_layernorm",
                           .gate = "mlp.gate_proj",
                           .up = "mlp.up_proj",
                           .down = "mlp.down_proj",
                           .qkv = "self_attn.qkv_proj",
                           .gate_up = "mlp.gate_up_proj"};

const TensorNames kGgufNames{.embed = "token_embd",
                             .final_norm = "output_norm",
                             .head = "output",
                             .score = "",
                             .layers = "blk.",
                             .attn_norm = "attn_norm",
                             .q = "attn_q",
                             .k = "attn_k",
                             .v = "attn_v",
                             .q_norm = "attn_q_norm",
                             .k_norm = "attn_k_norm",
                             .attn_out = "attn_output",
                             .ffn_norm = "ffn_norm",
                             .gate = "ffn_gate",
                             .up = "ffn_up",
                             .down = "ffn_down",
                             .qkv = "attn_qkv",
                             .gate_up = "ffn_up"};

}  // namespace banyan
