#include "tokens/sentencepiece_writer.hpp"

#include <unordered_set>
#include <utility>
#include <vector>

#include "tokens/sentencepiece_proto.hpp"
#include "tokens/space_mark.hpp"
#include "tokens/vocab_tokenizer.hpp"

namespace banyan::test {

namespace {

struct UsablePieces {
  std::vector<std::string> texts;
  std::vector<TokenKind> kinds;
};

// Pieces as the library takes them: one unknown piece, fillers and doubles out of the way.
UsablePieces usable_pieces(const TokenizerSpec& spec) {
  UsablePieces usable{spec.pieces, spec.kinds};
  TokenId unknown = spec.unk;
  std::unordered_set<std::string> seen;
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    TokenKind& kind = usable.kinds[i];
    if (kind == TokenKind::unknown && unknown == kNoToken) unknown = static_cast<TokenId>(i);
    if (kind == TokenKind::unknown) kind = TokenKind::control;
    std::string& piece = usable.texts[i];
    // The library looks for added tokens after it has escaped the spaces of the text.
    if (kind == TokenKind::user_defined) piece = escape_spaces(piece);
    if (piece.empty() || is_filler(piece, static_cast<TokenId>(i)) || !seen.insert(piece).second) {
      kind = TokenKind::control;
      piece = "<banyan filler " + std::to_string(i) + ">";
    }
  }
  usable.kinds[static_cast<std::size_t>(unknown)] = TokenKind::unknown;
  return usable;
}

}  // namespace

std::string write_sentencepiece_model(const TokenizerSpec& spec) {
  UsablePieces usable = usable_pieces(spec);
  SentencepieceFile file;
  file.pieces = std::move(usable.texts);
  file.scores = spec.scores;
  file.kinds = std::move(usable.kinds);
  file.model = SentencepieceFile::Model::bpe;
  file.normalizer_name = "identity";
  file.add_dummy_prefix = false;
  file.remove_extra_whitespaces = false;
  return banyan::write_sentencepiece_model(file);
}

}  // namespace banyan::test
