#include "tokens/bpe_tokenizer.hpp"

#include <array>
#include <fmt/format.h>
#include <unordered_map>
#include <utility>

#include "tokens/bpe_merges.hpp"
#include "tokens/byte_alphabet.hpp"
#include "tokens/nfc.hpp"
#include "tokens/pre_tokenizer.hpp"
#include "tokens/utf8.hpp"
#include "tokens/vocab_tokenizer.hpp"

namespace banyan {

namespace {

using PieceIds = std::unordered_map<std::string_view, TokenId>;

// Pieces that a word is made of. Where an added token has the text of a piece, the piece wins: merges mean pieces.
PieceIds index_pieces(const TokenizerSpec& spec) {
  PieceIds ids;
  ids.reserve(spec.pieces.size());
  for (const bool normal : {true, false}) {
    for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
      if ((spec.kinds[i] == TokenKind::normal) == normal) ids.emplace(spec.pieces[i], static_cast<TokenId>(i));
    }
  }
  return ids;
}

MergeTable read_merges(const TokenizerSpec& spec, const PieceIds& ids) {
  MergeTable table(spec.merges.size());
  const auto piece_id = [&](std::string_view piece, std::size_t rank) {
    const auto it = ids.find(piece);
    if (it == ids.end()) {
      throw Error(ErrorCode::bad_file, spec.where,
                  fmt::format("merge {} (\"{}\") needs \"{}\", which is not in the vocabulary", rank, spec.merges[rank],
                              piece));
    }
    return it->second;
  };
  std::string joined;
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto [left, right] = halves_of_merge(spec, rank);
    joined.assign(left).append(right);
    table.add(piece_id(left, rank), piece_id(right, rank), {static_cast<Merge::Rank>(rank), piece_id(joined, rank)});
  }
  return table;
}

// Pieces are in the byte alphabet; added tokens, and pieces that leave the alphabet, are plain text.
std::vector<std::string> bytes_of_pieces(const TokenizerSpec& spec) {
  std::vector<std::string> bytes;
  bytes.reserve(spec.pieces.size());
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    const bool plain = spec.kinds[i] == TokenKind::user_defined || spec.kinds[i] == TokenKind::unknown;
    auto decoded = plain ? std::nullopt : piece_to_bytes(spec.pieces[i]);
    bytes.push_back(decoded ? *std::move(decoded) : spec.pieces[i]);
  }
  return bytes;
}

class BpeTokenizer final : public VocabTokenizer {
 public:
  BpeTokenizer(TokenizerSpec spec, std::vector<std::string> bytes)
      : VocabTokenizer(std::move(spec), std::move(bytes), /*drop_first_space=*/false, Added::cut_out),
        rule_(pre_tokenizer_rule(spec_.pre, spec_.where)),
        pre_tokenizer_(rule_),
        merges_(0) {
    const PieceIds ids = index_pieces(spec_);
    merges_ = read_merges(spec_, ids);
    for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
      const auto it = ids.find(byte_to_piece(static_cast<unsigned char>(byte)));
      const bool found = it != ids.end() && spec_.kinds[static_cast<std::size_t>(it->second)] == TokenKind::normal;
      byte_ids_[byte] = found ? it->second : spec_.unk;
    }
    if (!rule_.whole_words) return;
    for (TokenId id = 0; id < vocab_size(); ++id) {
      if (spec_.kinds[static_cast<std::size_t>(id)] == TokenKind::normal) words_.emplace(bytes_of(id), id);
    }
  }

 private:
  void encode_text(std::string_view text, bool /*opens*/, std::vector<TokenId>& ids) const override {
    Merger merger(merges_);
    std::vector<TokenId> symbols;
    const auto encode_word = [&](std::string_view word) {
      if (const auto whole = words_.find(word); whole != words_.end()) {
        ids.push_back(whole->second);
        return;
      }
      to_symbols(word, symbols);
      merger.merge(symbols);
      ids.insert(ids.end(), symbols.begin(), symbols.end());
    };
    const auto encode_valid = [&](std::string_view run) {
      const std::string normal = rule_.nfc ? to_nfc(run) : std::string();
      for (const std::string_view word : pre_tokenizer_.split(rule_.nfc ? normal : run)) encode_word(word);
    };
    // Ill-formed bytes are no character for any pattern: a run of them is a word.
    for_each_utf8_run(text, encode_valid, encode_word);
  }

  void to_symbols(std::string_view word, std::vector<TokenId>& symbols) const {
    check_word_length(word.size());
    symbols.clear();
    for (const char c : word) {
      const auto byte = static_cast<unsigned char>(c);
      const TokenId id = byte_ids_[byte];
      if (id == kNoToken) {
        throw Error(ErrorCode::bad_input, "text",
                    fmt::format("byte 0x{:02X} has no token in the vocabulary of {}, which has no unknown token either",
                                byte, spec_.where));
      }
      symbols.push_back(id);
    }
  }

  const PreTokenizerRule& rule_;
  PreTokenizer pre_tokenizer_;
  MergeTable merges_;
  std::array<TokenId, 256> byte_ids_{};  // unk, possibly kNoToken, for a byte that the vocabulary lacks
  PieceIds words_;                       // by their bytes; filled only where whole words go without merging
};

}  // namespace

std::shared_ptr<const Tokenizer> make_bpe_tokenizer(TokenizerSpec spec) {
  std::vector<std::string> bytes = bytes_of_pieces(spec);
  return std::make_shared<BpeTokenizer>(std::move(spec), std::move(bytes));
}

}  // namespace banyan
