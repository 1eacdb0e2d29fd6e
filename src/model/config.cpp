#include "model/config.hpp"

#include <fmt/format.h>

#include "banyan/attention_types.hpp"

namespace banyan {
namespace {

constexpr std::int64_t kMaxLayers = 1 << 16;  // far above any model; bounds what a crafted file makes us reserve

}  // namespace

Error unsupported(const std::string& where, std::string_view key, const std::string& message) {
  return {ErrorCode::unsupported, fmt::format("{}: key '{}'", where, key), message};
}

std::vector<bool> rope_layers(std::int64_t n_layers, std::int64_t no_rope_interval) {
  std::vector<bool> has_rope(static_cast<std::size_t>(n_layers), true);
  if (no_rope_interval == 0) return has_rope;
  for (std::int64_t i = no_rope_interval - 1; i < n_layers; i += no_rope_interval) {
    has_rope[static_cast<std::size_t>(i)] = false;
  }
  return has_rope;
}

void refuse_window(std::int64_t window, const ModelConfig& config, const std::string& where, std::string_view key) {
  if (window >= config.max_positions) return;
  throw unsupported(where, key,
                    fmt::format("a sliding window of {} in a context of {} is not supported; use a checkpoint whose "
                                "layers attend to the whole context",
                                window, config.max_positions));
}

void check_sizes(const ModelConfig& c, const std::string& where) {
  const auto positive = [&](std::int64_t value, const char* name) {
    if (value < 1) throw Error(ErrorCode::bad_file, where + ": " + name, fmt::format("{} is not positive", value));
  };
  positive(c.n_layers, "number of layers");
  positive(c.n_heads_q, "number of query heads");
  positive(c.n_heads_kv, "number of KV heads");
  positive(c.head_dim, "head size");
  positive(c.hidden_size, "hidden size");
  positive(c.intermediate_size, "intermediate size");
  positive(c.vocab_size, "vocabulary size");
  positive(c.max_positions, "context length");
  if (c.n_heads_q % c.n_heads_kv != 0) {
    throw Error(ErrorCode::bad_file, where + ": number of KV heads",
                fmt::format("{} query heads are not a multiple of {} KV heads", c.n_heads_q, c.n_heads_kv));
  }
  if (c.head_dim % 2 != 0) {
    throw Error(ErrorCode::bad_file, where + ": head size", fmt::format("{} is odd; rope turns pairs", c.head_dim));
  }
  if (c.head_dim > kMaxHeadDim) {
    throw Error(ErrorCode::unsupported, where + ": head size",
                fmt::format("{} is not supported; up to {} is", c.head_dim, kMaxHeadDim));
  }
  if (!(c.rms_eps > 0.0F && c.rms_eps < 1.0F)) {
    throw Error(ErrorCode::bad_file, where + ": RMS epsilon", fmt::format("{} is not in (0, 1)", c.rms_eps));
  }
  // 2^31 of each is far above any model and keeps the products of two of them in 63 bits.
  for (const std::int64_t value :
       {c.n_layers, c.n_heads_q, c.head_dim, c.hidden_size, c.intermediate_size, c.vocab_size, c.max_positions}) {
    if (value >> 31 != 0) throw Error(ErrorCode::bad_file, where, fmt::format("a size of {} is beyond 2^31", value));
  }
  if (c.n_layers > kMaxLayers) {
    throw Error(ErrorCode::bad_file, where + ": number of layers",
                fmt::format("{} is beyond {}", c.n_layers, kMaxLayers));
  }
  checked_mul(c.n_heads_q, c.head_dim, where + ": heads x head size");
}

}  // namespace banyan
