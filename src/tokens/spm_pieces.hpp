// What the pieces of a sentencepiece vocabulary merge into: a BPE whose symbols are characters. Knows no text and no
// tokens beside the pieces. Immutable after construction.
//
// A symbol is a piece's id, or, from n_pieces on, a character that pieces are made of but that is no piece by itself.
// The library merges two neighbours if their texts joined are a piece, best score first. The same as a table: each
// piece, cut at each border between two of its characters, is a pair wherever both halves are symbols.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "banyan/tokenizer.hpp"
#include "tokens/bpe_merges.hpp"

namespace banyan {

class SpmPieces {
 public:
  // Pieces that texts are cut into are the normal and the unused ones; those without text, fillers, pieces that are not
  // well-formed UTF-8 and further copies of a text are none. Throws Error{bad_file} for a score that is NaN or a merge
  // of what the vocabulary lacks, Error{unsupported} for a piece of more than kMaxPieceBytes: its borders would take
  // time in proportion to the square of its length.
  explicit SpmPieces(const TokenizerSpec& spec);

  static constexpr std::size_t kMaxPieceBytes = 256;

  TokenId symbol(std::string_view character) const;  // kNoToken: no piece has this character
  const MergeTable& merges() const { return merges_; }

  // Calls on_piece(TokenId) for the pieces that a merged symbol is: itself, but an unused piece is the parts that it
  // was merged from; on_character(std::string_view) for a character that is no piece.
  template <typename OnPiece, typename OnCharacter>
  void spell_out(TokenId symbol, OnPiece&& on_piece, OnCharacter&& on_character) const {
    if (symbol >= n_pieces_) return on_character(std::string_view(lone_[static_cast<std::size_t>(symbol - n_pieces_)]));
    const auto parts = unused_.find(symbol);
    if (parts == unused_.end()) return on_piece(symbol);
    spell_out(parts->second.first, on_piece, on_character);
    spell_out(parts->second.second, on_piece, on_character);
  }

  // No piece has the mark of a space behind another character: no merge reaches over the border in front of a mark, so
  // that words can be merged one by one.
  bool marks_open_words() const { return marks_open_words_; }

 private:
  using Texts = std::unordered_map<std::string_view, TokenId>;
  struct Pair {
    TokenId left, right;
    Merge merge;
  };
  void add_characters(std::string_view piece, const Texts& texts);
  TokenId find(std::string_view text, const Texts& texts) const;
  std::vector<Pair> pairs_by_score(const TokenizerSpec& spec, const Texts& texts);
  std::vector<Pair> pairs_by_list(const TokenizerSpec& spec, const Texts& texts) const;

  TokenId n_pieces_;
  std::array<TokenId, 128> ascii_;
  std::unordered_map<std::uint32_t, TokenId> characters_;            // by the bytes of their UTF-8
  std::vector<std::string> lone_;                                    // characters that are no pieces
  std::unordered_map<TokenId, std::pair<TokenId, TokenId>> unused_;  // parts of each unused piece that can be merged
  MergeTable merges_{0};
  bool marks_open_words_ = true;
};

}  // namespace banyan
