#include "model/checkpoint.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <set>

#include "tokens/hf_dir.hpp"

namespace banyan {

const TensorNames kHfNames{.embed = "model.embed_tokens.weight",
                           .final_norm = "model.norm.weight",
                           .head = "lm_head.weight",
                           .layers = "model.layers.",
                           .attn_norm = "input_layernorm.weight",
                           .q = "self_attn.q_proj.weight",
                           .k = "self_attn.k_proj.weight",
                           .v = "self_attn.v_proj.weight",
                           .attn_out = "self_attn.o_proj.weight",
                           .ffn_norm = "post_attention_layernorm.weight",
                           .gate = "mlp.gate_proj.weight",
                           .up = "mlp.up_proj.weight",
                           .down = "mlp.down_proj.weight"};

const TensorNames kGgufNames{.embed = "token_embd.weight",
                             .final_norm = "output_norm.weight",
                             .head = "output.weight",
                             .layers = "blk.",
                             .attn_norm = "attn_norm.weight",
                             .q = "attn_q.weight",
                             .k = "attn_k.weight",
                             .v = "attn_v.weight",
                             .attn_out = "attn_output.weight",
                             .ffn_norm = "ffn_norm.weight",
                             .gate = "ffn_gate.weight",
                             .up = "ffn_up.weight",
                             .down = "ffn_down.weight"};

bool is_llama_tensor(const TensorNames& names, std::int64_t n_layers, std::string_view name) {
  if (name == names.embed || name == names.final_norm || name == names.head) return true;
  if (!name.starts_with(names.layers)) return false;
  name.remove_prefix(names.layers.size());
  std::int64_t layer = -1;
  const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || layer < 0 || layer >= n_layers) return false;
  name.remove_prefix(static_cast<std::size_t>(rest - name.data()));
  if (!name.starts_with('.')) return false;
  name.remove_prefix(1);
  const auto parts = {names.attn_norm, names.q,    names.k,  names.v,   names.attn_out,
                      names.ffn_norm,  names.gate, names.up, names.down};
  return std::ranges::find(parts, name) != parts.end();
}

const TensorMap& Checkpoint::tensors() const {
  if (const auto* gguf = std::get_if<std::unique_ptr<GgufFile>>(&files)) return (*gguf)->tensors();
  return std::get<std::unique_ptr<SafetensorsFiles>>(files)->tensors();
}

namespace {

void finish_eos_ids(Checkpoint& c, std::set<TokenId> ids) {
  if (c.tokenizer) ids.insert(c.tokenizer->spec().eos.begin(), c.tokenizer->spec().eos.end());
  for (const TokenId id : ids) {
    if (id >= c.config.vocab_size) {
      throw Error(ErrorCode::bad_file, c.path + ": end-of-text id",
                  fmt::format("{} is beyond the vocabulary of {}", id, c.config.vocab_size));
    }
  }
  c.eos_ids.assign(ids.begin(), ids.end());
}

Checkpoint open_dir(const std::string& dir) {
  const std::filesystem::path base(dir);
  Checkpoint c{.path = dir, .format = "safetensors", .names = &kHfNames};
  c.config = config_from_json((base / "config.json").string());
  c.files = std::make_unique<SafetensorsFiles>(dir);
  c.tokenizer = tokenizer_from_dir(dir);
  std::set<TokenId> eos;
  for (const char* name : kConfigsWithEos) {
    const auto ids = read_eos_ids((base / name).string());
    eos.insert(ids.begin(), ids.end());
  }
  finish_eos_ids(c, std::move(eos));
  return c;
}

Checkpoint open_gguf(const std::string& path) {
  auto file = std::make_unique<GgufFile>(path);
  Checkpoint c{.path = path, .format = "GGUF", .names = &kGgufNames, .interleaved_qk = true};
  c.config = config_from_gguf(*file);
  c.tokenizer = tokenizer_from_gguf(*file);
  c.files = std::move(file);
  finish_eos_ids(c, {});
  return c;
}

}  // namespace

Checkpoint open_checkpoint(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? open_dir(path) : open_gguf(path);
}

Checkpoint random_checkpoint(const std::string& config_path, std::uint64_t seed) {
  Checkpoint c{.path = config_path, .format = "random weights", .names = &kHfNames, .random_seed = seed};
  c.config = config_from_json(config_path);
  return c;
}

}  // namespace banyan
