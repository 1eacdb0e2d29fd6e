// Scripted models with texts, for session tests.
#pragma once

#include <memory>
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
