// A model's files, opened and understood, whatever their form: configuration, named tensors, tokenizer, end-of-text
// ids. Layer 5, internal. It computes nothing; model_tensors.hpp says which tensor is what, weights.hpp makes matrices
// of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "banyan/tokenizer.hpp"
#include "model/config.hpp"
#include "model/gguf.hpp"
#include "model/safetensors.hpp"
#include "model/tensor.hpp"

namespace banyan {

constexpr std::string_view kGgufFormat = "GGUF", kHfFormat = "safetensors", kNoFormat = "random weights";

struct Checkpoint {
  std::string path;
  std::string_view format;  // one of the above
  ModelSpec spec{};
  std::shared_ptr<const Tokenizer> tokenizer{};  // null when the files hold none
  std::vector<TokenId> eos_ids{};                // union over the files, ascending
  const TensorNames* names = nullptr;
  std::optional<std::uint64_t> random_seed{};  // there are no files: weights are random

  std::variant<std::monostate, std::unique_ptr<GgufFile>, std::unique_ptr<SafetensorsFiles>> files{};
  const TensorMap& tensors() const;  // of files
};

// `path`: a Hugging Face directory or a .gguf file. Throws Error{bad_file | unsupported} naming file, key or tensor.
Checkpoint open_checkpoint(const std::string& path);
// A config.json alone, for random weights of its shape. No tokenizer, no end-of-text ids.
Checkpoint random_checkpoint(const std::string& config_path, std::uint64_t seed);

// --- the parts, each by itself -------------------------------------------------------------------------------------
TokenizerSpec tokenizer_spec_from_gguf(const GgufFile& file);
// Null when the files hold no tokenizer.
std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufFile& file);
std::shared_ptr<const Tokenizer> tokenizer_from_dir(const std::string& dir);

}  // namespace banyan
