// A model's configuration, read from either file form into one shape. Layer 5, internal.
//
// What is not understood is refused by name: every key that would change the arithmetic in a way that banyan does not
// do (experts, sliding windows that matter, other activations, soft caps, scales, quantisation schemes …) throws
// Error{unsupported} naming file, key and value; contradictions throw Error{bad_file}.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "banyan/model.hpp"
#include "model/family.hpp"
#include "model/gguf.hpp"
#include "model/rope.hpp"

namespace banyan {

struct ModelSpec {
  ModelConfig config{};
  const Family* family = nullptr;
  Rope rope{};
  std::vector<bool> layer_has_rope{};  // [n_layers]
  bool qkv_bias = false, attn_out_bias = false, mlp_bias = false;
};

ModelSpec config_from_json(const std::string& path);
ModelSpec config_from_gguf(const GgufFile& file);

// --- what both have in common --------------------------------------------------------------------------------------

// Throws Error{bad_file} for sizes that cannot be; `where` names the file. What follows may count on them.
void check_sizes(const ModelConfig& config, const std::string& where);
// [n_layers]: every interval-th layer has none; 0: all have it.
std::vector<bool> rope_layers(std::int64_t n_layers, std::int64_t no_rope_interval);
// Throws where a window of attention is narrower than the context.
void refuse_window(std::int64_t window, const ModelConfig& config, const std::string& where, std::string_view key);
Error unsupported(const std::string& where, std::string_view key, const std::string& message);

}  // namespace banyan
