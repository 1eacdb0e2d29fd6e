#include "banyan/tokenizer.hpp"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

#include "tokens/bpe_tokenizer.hpp"
#include "tokens/spm_tokenizer.hpp"

namespace banyan {

std::string Tokenizer::decode(std::span<const TokenId> ids, bool first, bool with_special) const {
  std::string text;
  for (const TokenId id : ids) {
    text += token_bytes(id, first, with_special);
    // Control tokens in front (BOS) do not open the text; the first token that has a text does, even if all of it was
    // the space that goes.
    first = first && spec_.kinds[static_cast<std::size_t>(id)] == TokenKind::control;
  }
  return text;
}

bool Tokenizer::is_eos(TokenId id) const {
  return std::find(spec_.eos.begin(), spec_.eos.end(), id) != spec_.eos.end();
}

namespace {

void check_id(const TokenizerSpec& spec, TokenId id, std::string_view name) {
  if (id == kNoToken) return;
  if (id < 0 || static_cast<std::size_t>(id) >= spec.pieces.size()) {
    throw Error(ErrorCode::bad_file, spec.where,
                fmt::format("{} token is {}, but the vocabulary has {} tokens", name, id, spec.pieces.size()));
  }
}

void check_spec(const TokenizerSpec& spec) {
  const auto fail = [&](const std::string& message) { throw Error(ErrorCode::bad_file, spec.where, message); };
  if (spec.pieces.empty()) fail("the vocabulary has no pieces");
  if (spec.pieces.size() > static_cast<std::size_t>(std::numeric_limits<TokenId>::max())) {
    fail(fmt::format("the vocabulary has {} pieces, more than 31-bit ids can name", spec.pieces.size()));
  }
  if (spec.kinds.size() != spec.pieces.size()) {
    fail(fmt::format("{} pieces but {} token types", spec.pieces.size(), spec.kinds.size()));
  }
  const bool by_score = spec.model == TokenizerSpec::Model::spm && !spec.scores.empty();
  if (by_score && spec.scores.size() != spec.pieces.size()) {
    fail(fmt::format("{} pieces but {} scores", spec.pieces.size(), spec.scores.size()));
  }
  check_id(spec, spec.bos, "BOS");
  check_id(spec, spec.unk, "unknown");
  for (const TokenId id : spec.eos) {
    if (id == kNoToken) fail("an end-of-text id is -1");
    check_id(spec, id, "end-of-text");
  }
  if (spec.add_bos && spec.bos == kNoToken) fail("asks for BOS in front of a text, but names no BOS token");
}

}  // namespace

std::shared_ptr<const Tokenizer> make_tokenizer(TokenizerSpec spec) {
  check_spec(spec);
  if (spec.model == TokenizerSpec::Model::spm) return make_spm_tokenizer(std::move(spec));
  return make_bpe_tokenizer(std::move(spec));
}

}  // namespace banyan
