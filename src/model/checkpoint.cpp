#include "model/checkpoint.hpp"

#include <filesystem>
#include <fmt/format.h>
#include <set>

#include "tokens/hf_dir.hpp"

namespace banyan {

const TensorMap& Checkpoint::tensors() const {
  if (const auto* gguf = std::get_if<std::unique_ptr<GgufFile>>(&files)) return (*gguf)->tensors();
  return std::get<std::unique_ptr<SafetensorsFiles>>(files)->tensors();
}

namespace {

void finish_eos_ids(Checkpoint& c, std::set<TokenId> ids) {
  if (c.tokenizer) ids.insert(c.tokenizer->spec().eos.begin(), c.tokenizer->spec().eos.end());
  for (const TokenId id : ids) {
    if (id >= c.spec.config.vocab_size) {
      throw Error(ErrorCode::bad_file, c.path + ": end-of-text id",
                  fmt::format("{} is beyond the vocabulary of {}", id, c.spec.config.vocab_size));
    }
  }
  c.eos_ids.assign(ids.begin(), ids.end());
}

Checkpoint open_dir(const std::string& dir) {
  const std::filesystem::path base(dir);
  Checkpoint c{.path = dir, .format = kHfFormat, .names = &kHfNames};
  c.spec = config_from_json((base / "config.json").string());
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
  Checkpoint c{.path = path, .format = kGgufFormat, .names = &kGgufNames};
  c.spec = config_from_gguf(*file);
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
  Checkpoint c{.path = config_path, .format = kNoFormat, .names = &kHfNames, .random_seed = seed};
  c.spec = config_from_json(config_path);
  return c;
}

}  // namespace banyan
