#include "tokens/spm_pieces.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <string>

#include "tokens/space_mark.hpp"
#include "tokens/utf8.hpp"
#include "tokens/vocab_tokenizer.hpp"

namespace banyan {

namespace {

std::uint32_t character_key(std::string_view character) {
  std::uint32_t key = 0;
  for (const char c : character) key = key << 8 | static_cast<unsigned char>(c);
  return key;
}

std::string_view front_character(std::string_view text) { return text.substr(0, utf8_front(text).n_bytes); }

// Pieces by their text. User-defined ones are not among them: all their occurrences are cut out of a text beforehand.
std::unordered_map<std::string_view, TokenId> index_texts(const TokenizerSpec& spec) {
  std::unordered_map<std::string_view, TokenId> texts;
  texts.reserve(spec.pieces.size());
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    const std::string& piece = spec.pieces[i];
    const auto id = static_cast<TokenId>(i);
    const bool usable = spec.kinds[i] == TokenKind::normal || spec.kinds[i] == TokenKind::unused;
    if (!usable || id == spec.unk || piece.empty() || is_filler(piece, id) || utf8_valid_length(piece) != piece.size())
      continue;
    if (piece.size() > SpmPieces::kMaxPieceBytes) {
      throw Error(ErrorCode::unsupported, spec.where,
                  fmt::format("piece {} has {} bytes; at most {} are supported in a sentencepiece vocabulary", id,
                              piece.size(), SpmPieces::kMaxPieceBytes));
    }
    texts.emplace(piece, id);
  }
  return texts;
}

// Rank of each piece: 0 for the best score, the same for equal ones.
std::vector<Merge::Rank> rank_scores(const TokenizerSpec& spec) {
  std::vector<float> best_first = spec.scores;
  const auto nan = std::find_if(best_first.begin(), best_first.end(), [](float score) { return std::isnan(score); });
  if (nan != best_first.end()) {
    throw Error(ErrorCode::bad_file, spec.where, fmt::format("score of token {} is NaN", nan - best_first.begin()));
  }
  std::sort(best_first.begin(), best_first.end(), std::greater<>());
  best_first.erase(std::unique(best_first.begin(), best_first.end()), best_first.end());
  std::vector<Merge::Rank> ranks;
  ranks.reserve(spec.scores.size());
  for (const float score : spec.scores) {
    const auto at = std::lower_bound(best_first.begin(), best_first.end(), score, std::greater<>());
    ranks.push_back(static_cast<Merge::Rank>(at - best_first.begin()));
  }
  return ranks;
}

}  // namespace

SpmPieces::SpmPieces(const TokenizerSpec& spec) : n_pieces_(static_cast<TokenId>(spec.pieces.size())) {
  ascii_.fill(kNoToken);
  const Texts texts = index_texts(spec);
  // In the order of ids, so that the same file gives the same symbols.
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    const auto it = texts.find(spec.pieces[i]);
    if (it != texts.end() && it->second == static_cast<TokenId>(i)) add_characters(spec.pieces[i], texts);
  }
  const std::vector<Pair> pairs = spec.scores.empty() ? pairs_by_list(spec, texts) : pairs_by_score(spec, texts);
  merges_ = MergeTable(pairs.size());
  for (const Pair& pair : pairs) merges_.add(pair.left, pair.right, pair.merge);
}

void SpmPieces::add_characters(std::string_view piece, const Texts& texts) {
  bool after_other = false;  // behind a character that is no mark
  for (std::string_view rest = piece; !rest.empty();) {
    const std::string_view character = front_character(rest);
    rest.remove_prefix(character.size());
    const bool mark = character == kSpaceMark;
    if (mark && after_other) marks_open_words_ = false;
    after_other = after_other || !mark;
    const auto [at, fresh] = characters_.try_emplace(character_key(character), kNoToken);
    if (!fresh) continue;
    if (const auto own = texts.find(character); own != texts.end()) {
      at->second = own->second;
    } else {
      at->second = n_pieces_ + static_cast<TokenId>(lone_.size());
      lone_.emplace_back(character);
    }
    if (character.size() == 1) ascii_[static_cast<unsigned char>(character[0])] = at->second;
  }
}

TokenId SpmPieces::symbol(std::string_view character) const {
  if (character.size() == 1) return ascii_[static_cast<unsigned char>(character[0])];
  const auto it = characters_.find(character_key(character));
  return it == characters_.end() ? kNoToken : it->second;
}

TokenId SpmPieces::find(std::string_view text, const Texts& texts) const {
  if (front_character(text).size() == text.size()) return symbol(text);
  const auto it = texts.find(text);
  return it == texts.end() ? kNoToken : it->second;
}

std::vector<SpmPieces::Pair> SpmPieces::pairs_by_score(const TokenizerSpec& spec, const Texts& texts) {
  const std::vector<Merge::Rank> ranks = rank_scores(spec);
  std::vector<Pair> pairs;
  for (const auto& [text, id] : texts) {
    for (std::size_t cut = front_character(text).size(); cut < text.size();) {
      const TokenId left = find(text.substr(0, cut), texts), right = find(text.substr(cut), texts);
      cut += front_character(text.substr(cut)).size();
      if (left == kNoToken || right == kNoToken) continue;
      pairs.push_back({left, right, {ranks[static_cast<std::size_t>(id)], id}});
      if (spec.kinds[static_cast<std::size_t>(id)] == TokenKind::unused) unused_.emplace(id, std::pair(left, right));
    }
  }
  return pairs;
}

std::vector<SpmPieces::Pair> SpmPieces::pairs_by_list(const TokenizerSpec& spec, const Texts& texts) const {
  std::vector<Pair> pairs;
  pairs.reserve(spec.merges.size());
  const auto id_of = [&](std::string_view text, std::size_t rank) {
    const auto it = texts.find(text);
    if (it != texts.end()) return it->second;
    throw Error(
        ErrorCode::bad_file, spec.where,
        fmt::format("merge {} (\"{}\") needs \"{}\", which is not in the vocabulary", rank, spec.merges[rank], text));
  };
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto [left, right] = halves_of_merge(spec, rank);
    const TokenId merged = id_of(std::string(left).append(right), rank);
    pairs.push_back({id_of(left, rank), id_of(right, rank), {static_cast<Merge::Rank>(rank), merged}});
  }
  return pairs;
}

}  // namespace banyan
