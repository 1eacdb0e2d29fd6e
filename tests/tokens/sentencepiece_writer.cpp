#include "tokens/sentencepiece_writer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tokens/space_mark.hpp"
#include "tokens/vocab_tokenizer.hpp"

namespace banyan::test {

namespace {

// Field numbers and values of sentencepiece_model.proto.
enum ModelField : std::uint32_t { kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3 };
enum PieceField : std::uint32_t { kPiece = 1, kScore = 2, kType = 3 };
enum TrainerField : std::uint32_t { kModelType = 3, kByteFallback = 35 };
enum NormalizerField : std::uint32_t {
  kName = 1,
  kAddDummyPrefix = 3,
  kRemoveExtraWhitespaces = 4,
  kEscapeWhitespaces = 5
};
enum WireType : std::uint32_t { kVarint = 0, kBytes = 2, kFixed32 = 5 };

constexpr std::uint64_t kBpe = 2;

// Piece types are numbered from 1, in this order.
constexpr std::array kKindOfType = {TokenKind::normal,       TokenKind::unknown, TokenKind::control,
                                    TokenKind::user_defined, TokenKind::unused,  TokenKind::byte};

std::uint64_t type_of_kind(TokenKind kind) {
  return static_cast<std::uint64_t>(std::find(kKindOfType.begin(), kKindOfType.end(), kind) - kKindOfType.begin()) + 1;
}

class ProtoWriter {
 public:
  void varint(std::uint32_t field, std::uint64_t value) {
    raw_varint(field << 3 | kVarint);
    raw_varint(value);
  }
  void bytes(std::uint32_t field, std::string_view value) {
    raw_varint(field << 3 | kBytes);
    raw_varint(value.size());
    out_ += value;
  }
  void number(std::uint32_t field, float value) {
    raw_varint(field << 3 | kFixed32);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) out_ += static_cast<char>(bits >> shift);
  }
  std::string take() { return std::move(out_); }

 private:
  void raw_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }
  std::string out_;
};

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
  const UsablePieces usable = usable_pieces(spec);
  ProtoWriter model;
  bool byte_fallback = false;
  for (std::size_t i = 0; i < usable.kinds.size(); ++i) {
    byte_fallback = byte_fallback || usable.kinds[i] == TokenKind::byte;
    ProtoWriter piece;
    piece.bytes(kPiece, usable.texts[i]);
    piece.number(kScore, spec.scores[i]);
    piece.varint(kType, type_of_kind(usable.kinds[i]));
    model.bytes(kPieces, piece.take());
  }
  ProtoWriter trainer;
  trainer.varint(kModelType, kBpe);
  trainer.varint(kByteFallback, byte_fallback);
  model.bytes(kTrainerSpec, trainer.take());
  ProtoWriter normalizer;
  normalizer.bytes(kName, "identity");
  normalizer.varint(kAddDummyPrefix, false);
  normalizer.varint(kRemoveExtraWhitespaces, false);
  normalizer.varint(kEscapeWhitespaces, true);
  model.bytes(kNormalizerSpec, normalizer.take());
  return model.take();
}

}  // namespace banyan::test
