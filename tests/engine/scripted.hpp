// Scripted models with texts, for session tests.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "banyan/runner.hpp"

namespace banyan::test {

// A tokenizer whose tokens are exactly the given byte strings; encode() is not there.
class PieceTokenizer final : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces)
      : Tokenizer([&] {
          TokenizerSpec spec;
          spec.pieces = std::move(pieces);
          spec.kinds.assign(spec.pieces.size(), TokenKind::normal);
          return spec;
        }()) {}
  std::vector<TokenId> encode(std::string_view /*text*/, const EncodeOptions& /*options*/) const override { return {}; }
  std::string token_bytes(TokenId id, bool /*first*/, bool /*with_special*/) const override {
    return spec_.pieces[static_cast<std::size_t>(id)];
  }
};

// Logits that depend on the whole path, so that a wrong path gives a wrong token.
inline void hashed_logits(std::span<const TokenId> path, std::span<float> logits) {
  std::uint64_t h = 1469598103934665603ULL;
  for (const TokenId t : path) h = (h ^ static_cast<std::uint64_t>(t)) * 1099511628211ULL;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    std::uint64_t x = h + i * 0x9e3779b97f4a7c15ULL;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9ULL;
    x ^= x >> 29;
    logits[i] = static_cast<float>(x % 1000) / 100.0F;
  }
}

// Emits `script` behind a prompt of one token, over and over.
inline ScriptedModel emit(std::shared_ptr<const Tokenizer> tokenizer, std::vector<TokenId> script) {
  ScriptedModel m;
  m.vocab_size = tokenizer->vocab_size();
  m.tokenizer = std::move(tokenizer);
  m.logits = [script = std::move(script)](std::span<const TokenId> path, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), 0.0F);
    logits[static_cast<std::size_t>(script[(path.size() - 1) % script.size()])] = 10.0F;
  };
  return m;
}

}  // namespace banyan::test
