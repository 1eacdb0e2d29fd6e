// The model families that banyan runs, and how each file form spells their tensors. Layer 5, internal. Plain tables: a
// family is a Llama with some of a few known variations, and what is not in the table is refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace banyan {

struct Family {
  std::string_view name;          // config.json's model_type
  std::string_view gguf;          // GGUF's general.architecture
  std::string_view class_prefix;  // of config.json's architectures: "Llama" in LlamaForCausalLM

  bool gguf_interleaved = false;      // GGUF keeps pair i of a q or k head in rows 2i and 2i + 1
  bool qkv_bias = false;              // q, k and v always have biases, whatever the configuration says
  bool attention_bias_key = false;    // `attention_bias` gives q, k, v and the output projection biases
  bool mlp_bias_key = false;          // `mlp_bias` gives gate, up and down biases
  bool qk_norm = false;               // RMS norm of each q and k head before rope
  bool fused = false;                 // q, k and v are one tensor, and so are gate and up
  bool partial_rotary = false;        // `partial_rotary_factor` is heeded
  bool window_key = false;            // `sliding_window` counts only where `use_sliding_window` is true
  bool tied_by_default = false;       // where `tie_word_embeddings` is absent
  bool may_leave_out = false;         // keys that files of 2023 leave out have the defaults of that time
  std::int64_t no_rope_interval = 0;  // every so many layers have no rope, unless the file says otherwise; 0: none
};

// Null where there is none.
const Family* family_of_model_type(std::string_view model_type);
const Family* family_of_gguf(std::string_view architecture);
// "'llama', 'mistral', …": what the two look-ups know.
std::string known_model_types();
std::string known_gguf_architectures();

// Tensor names, each to be followed by ".weight" or ".bias"; those of a layer by layers + "i.".
struct TensorNames {
  std::string_view embed, final_norm, head;
  std::string_view score;  // the scalar head of a reward model; empty: the form has none
  std::string_view layers;
  std::string_view attn_norm, q, k, v, q_norm, k_norm, attn_out, ffn_norm, gate, up, down;
  std::string_view qkv, gate_up;  // of fused families
};
extern const TensorNames kHfNames, kGgufNames;

// GGUF's tensors of rope frequency factors: Llama 3.1's, and longrope's two lists.
constexpr std::string_view kGgufRopeFreqs = "rope_freqs", kGgufRopeShort = "rope_factors_short",
                           kGgufRopeLong = "rope_factors_long";

}  // namespace banyan
