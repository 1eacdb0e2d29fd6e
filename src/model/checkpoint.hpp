// A model's files, opened and understood, whatever their form: configuration, named tensors, tokenizer, end-of-text
// ids. Layer 5, internal. It computes nothing; weights.hpp turns the tensors into matrices.
//
// Only plain Llama is let through: every key or tensor that would change the arithmetic in a way that banyan does not
// do (rope scaling, biases, experts, sliding windows, q/k norms, scales …) is refused by name, never ignored.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "banyan/model.hpp"
#include "model/gguf.hpp"
#include "model/safetensors.hpp"
#include "model/tensor.hpp"

namespace banyan {

// How a file form spells the tensors of a Llama.
struct TensorNames {
  std::string_view embed, final_norm, head;
  std::string_view layers;  // a tensor of layer i is layers + "i." + its name below
  std::string_view attn_norm, q, k, v, attn_out, ffn_norm, gate, up, down;
};
extern const TensorNames kHfNames, kGgufNames;

// Whether a Llama of n_layers layers has a tensor of this name.
bool is_llama_tensor(const TensorNames& names, std::int64_t n_layers, std::string_view name);

struct Checkpoint {
  std::string path;
  std::string format;  // "GGUF", "safetensors"
  ModelConfig config{};
  std::shared_ptr<const Tokenizer> tokenizer{};  // null when the files hold none
  std::vector<TokenId> eos_ids{};                // union over the files, ascending
  const TensorNames* names = nullptr;
  bool interleaved_qk = false;                 // q and k rows in GGUF's order: pair i of a head in rows 2i and 2i + 1
  std::optional<std::uint64_t> random_seed{};  // there are no files: weights are random

  std::variant<std::monostate, std::unique_ptr<GgufFile>, std::unique_ptr<SafetensorsFiles>> files{};
  const TensorMap& tensors() const;  // of files
};

// `path`: a Hugging Face directory or a .gguf file. Throws Error{bad_file | unsupported} naming file, key or tensor.
Checkpoint open_checkpoint(const std::string& path);
// A config.json alone, for random weights of its shape. No tokenizer, no end-of-text ids.
Checkpoint random_checkpoint(const std::string& config_path, std::uint64_t seed);

// --- the parts, each by itself -------------------------------------------------------------------------------------
ModelConfig config_from_json(const std::string& path);
ModelConfig config_from_gguf(const GgufFile& file);

TokenizerSpec tokenizer_spec_from_gguf(const GgufFile& file);
// Null when the files hold no tokenizer.
std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufFile& file);
std::shared_ptr<const Tokenizer> tokenizer_from_dir(const std::string& dir);

}  // namespace banyan
