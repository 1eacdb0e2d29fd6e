#include "tokens/spm_tokenizer.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <unordered_set>
#include <utility>

#include "banyan/read_file.hpp"
#include "tokens/sentencepiece_proto.hpp"
#include "tokens/space_mark.hpp"
#include "tokens/special_matcher.hpp"
#include "tokens/spm_pieces.hpp"
#include "tokens/utf8.hpp"
#include "tokens/vocab_tokenizer.hpp"

namespace banyan {

namespace {

// "<0x41>" is the byte 41.
unsigned char byte_of_piece(const std::string& piece, const std::string& where) {
  unsigned char byte = 0;
  const bool framed = piece.size() == 6 && piece.starts_with("<0x") && piece.back() == '>';
  const auto parsed = framed ? std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16) : std::from_chars_result{};
  if (!framed || parsed.ec != std::errc() || parsed.ptr != piece.data() + 5) {
    throw Error(ErrorCode::bad_file, where, fmt::format("byte token \"{}\" is not written <0xHH>", piece));
  }
  return byte;
}

std::vector<std::string> bytes_of_pieces(const TokenizerSpec& spec) {
  std::vector<std::string> bytes;
  bytes.reserve(spec.pieces.size());
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    switch (spec.kinds[i]) {
      case TokenKind::byte: bytes.emplace_back(1, static_cast<char>(byte_of_piece(spec.pieces[i], spec.where))); break;
      // Something unknown stood there: say so rather than leave it out.
      case TokenKind::unknown: bytes.emplace_back("\xEF\xBF\xBD"); break;
      default: bytes.push_back(unescape_spaces(spec.pieces[i]));
    }
  }
  return bytes;
}

// Ids of the byte pieces, [256]; empty where there are none.
std::vector<TokenId> ids_of_bytes(const TokenizerSpec& spec) {
  std::vector<TokenId> ids;
  std::int64_t n_bytes = 0;
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    if (spec.kinds[i] != TokenKind::byte) continue;
    ids.resize(256, kNoToken);
    TokenId& id = ids[byte_of_piece(spec.pieces[i], spec.where)];
    if (id != kNoToken) continue;
    id = static_cast<TokenId>(i);
    ++n_bytes;
  }
  if (n_bytes != 0 && n_bytes != 256) {
    throw Error(ErrorCode::bad_file, spec.where,
                fmt::format("sentencepiece vocabulary with {} byte tokens; there must be all 256 or none", n_bytes));
  }
  return ids;
}

class SpmTokenizer final : public VocabTokenizer {
 public:
  SpmTokenizer(TokenizerSpec spec, std::vector<std::string> bytes, std::vector<TokenId> byte_ids, bool space_prefix)
      : VocabTokenizer(std::move(spec), std::move(bytes), /*drop_first_space=*/space_prefix, Added::left_in),
        pieces_(spec_),
        byte_ids_(std::move(byte_ids)) {
    for (TokenId id = 0; id < vocab_size(); ++id) {
      const auto i = static_cast<std::size_t>(id);
      const std::string piece = escape_spaces(spec_.pieces[i]);
      const bool added = spec_.kinds[i] == TokenKind::user_defined && !is_filler(piece, id);
      if (added && utf8_valid_length(piece) == piece.size()) added_.add(piece, id);
    }
  }

 private:
  // One call of encode_text(): what has been written, and the word that is being read.
  struct Writer {
    Writer(const MergeTable& merges, std::vector<TokenId>& out) : merger(merges), ids(out), begin(out.size()) {}
    Merger merger;
    std::vector<TokenId> word;  // symbols
    std::vector<TokenId>& ids;
    std::size_t begin;  // of this call's ids
  };

  void encode_text(std::string_view text, bool opens, std::vector<TokenId>& ids) const override {
    Writer writer(pieces_.merges(), ids);
    const bool has_own = text.starts_with(' ') || text.starts_with(kSpaceMark);
    bool prefix = opens && spec_.add_space_prefix && (spec_.prefix_before_space || !has_own);
    const auto encode_valid = [&](std::string_view run) {
      const std::string marked = (prefix ? std::string(kSpaceMark) : std::string()) + escape_spaces(run);
      encode_marked(marked, writer);
      prefix = false;
    };
    // Ill-formed bytes are no character: each is unknown.
    const auto encode_invalid = [&](std::string_view run) {
      put_unknown(run, writer);
      prefix = false;
    };
    for_each_utf8_run(text, encode_valid, encode_invalid);
  }

  // Well-formed text, with marks for its spaces. Added tokens are found in this form, as the library does.
  void encode_marked(std::string_view text, Writer& writer) const {
    std::size_t begin = 0;
    while (const auto hit = added_.find(text, begin)) {
      encode_words(text.substr(begin, hit->begin - begin), writer);
      writer.ids.push_back(hit->id);
      begin = hit->end;
    }
    encode_words(text.substr(begin), writer);
  }

  void encode_words(std::string_view text, Writer& writer) const {
    bool after_mark = false;
    while (!text.empty()) {
      const std::string_view character = text.substr(0, utf8_front(text).n_bytes);
      text.remove_prefix(character.size());
      const bool mark = character == kSpaceMark;
      if (mark && !after_mark && pieces_.marks_open_words()) finish_word(writer);
      after_mark = mark;
      if (const TokenId symbol = pieces_.symbol(character); symbol != kNoToken) {
        writer.word.push_back(symbol);
      } else {
        finish_word(writer);
        put_unknown(character, writer);
      }
    }
    finish_word(writer);
  }

  void finish_word(Writer& writer) const {
    check_word_length(writer.word.size());
    writer.merger.merge(writer.word);
    for (const TokenId symbol : writer.word) {
      pieces_.spell_out(
          symbol, [&](TokenId id) { writer.ids.push_back(id); },
          [&](std::string_view character) { put_unknown(character, writer); });
    }
    writer.word.clear();
  }

  // Byte pieces, or one unknown token for all that is unknown in a row.
  void put_unknown(std::string_view bytes, Writer& writer) const {
    if (byte_ids_.empty()) {
      const bool goes_on = writer.ids.size() > writer.begin && writer.ids.back() == spec_.unk;
      if (!goes_on) writer.ids.push_back(spec_.unk);
      return;
    }
    for (const char c : bytes) writer.ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  }

  SpmPieces pieces_;
  std::vector<TokenId> byte_ids_;  // [256], or empty: no byte pieces
  SpecialMatcher added_;           // user-defined pieces
};

TokenId find_piece(const TokenizerSpec& spec, const std::string& piece) {
  const auto it = std::find(spec.pieces.begin(), spec.pieces.end(), piece);
  return it == spec.pieces.end() ? kNoToken : static_cast<TokenId>(it - spec.pieces.begin());
}

// A setting under which the text could not be read back, or that banyan does not compute, is refused by its name.
void refuse_other_settings(const SentencepieceFile& file, const std::string& path) {
  const auto refuse = [&](const std::string& setting) {
    throw Error(ErrorCode::unsupported, path,
                setting + " is not supported; sentencepiece models must be BPE with identity normalisation");
  };
  if (file.model != SentencepieceFile::Model::bpe) {
    refuse(fmt::format("trainer_spec.model_type {}", static_cast<int>(file.model)));
  }
  if (file.whitespace_as_suffix) refuse("trainer_spec.treat_whitespace_as_suffix");
  if (file.has_charsmap) refuse(fmt::format("normalizer_spec \"{}\"", file.normalizer_name));
  if (file.remove_extra_whitespaces) refuse("normalizer_spec.remove_extra_whitespaces");
  if (!file.escape_whitespaces) refuse("normalizer_spec.escape_whitespaces = false");
}

}  // namespace

std::shared_ptr<const Tokenizer> make_spm_tokenizer(TokenizerSpec spec) {
  if (spec.unk == kNoToken) {
    const auto unknown = std::find(spec.kinds.begin(), spec.kinds.end(), TokenKind::unknown);
    if (unknown == spec.kinds.end()) {
      throw Error(ErrorCode::bad_file, spec.where, "sentencepiece vocabulary without unknown token");
    }
    spec.unk = static_cast<TokenId>(unknown - spec.kinds.begin());
  }
  std::vector<std::string> bytes = bytes_of_pieces(spec);
  std::vector<TokenId> byte_ids = ids_of_bytes(spec);
  const bool space_prefix = spec.add_space_prefix;
  return std::make_shared<SpmTokenizer>(std::move(spec), std::move(bytes), std::move(byte_ids), space_prefix);
}

TokenizerSpec read_sentencepiece_file(const std::string& path) {
  SentencepieceFile file = read_sentencepiece_model(read_file(path), path);
  refuse_other_settings(file, path);
  TokenizerSpec spec;
  spec.model = TokenizerSpec::Model::spm;
  spec.where = path;
  spec.pieces = std::move(file.pieces);
  spec.scores = std::move(file.scores);
  spec.kinds = std::move(file.kinds);
  spec.add_space_prefix = file.add_dummy_prefix;
  spec.bos = find_piece(spec, file.bos_piece);
  if (const TokenId eos = find_piece(spec, file.eos_piece); eos != kNoToken) spec.eos.push_back(eos);
  const auto unknown = std::find(spec.kinds.begin(), spec.kinds.end(), TokenKind::unknown);
  if (unknown != spec.kinds.end()) spec.unk = static_cast<TokenId>(unknown - spec.kinds.begin());
  spec.add_bos = spec.bos != kNoToken;
  return spec;
}

std::string sentencepiece_file_of(const TokenizerSpec& spec) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::unsupported, spec.where, what + " cannot be said in a tokenizer.model");
  };
  if (spec.scores.empty()) refuse("a vocabulary of merges, without scores,");
  if (std::ranges::count(spec.kinds, TokenKind::unknown) != 1) refuse("other than one unknown piece");
  SentencepieceFile file;
  file.pieces = spec.pieces;
  file.scores = spec.scores;
  file.kinds = spec.kinds;
  std::unordered_set<std::string_view> seen;
  for (std::size_t i = 0; i < file.pieces.size(); ++i) {
    std::string& piece = file.pieces[i];
    // Ids that the source leaves out; and the library looks for added tokens among escaped spaces.
    if (piece.empty() && spec.kinds[i] == TokenKind::unused) piece = fmt::format("[PAD{}]", i);
    if (spec.kinds[i] == TokenKind::user_defined) piece = escape_spaces(piece);
    if (piece.empty() || !seen.insert(piece).second) {
      refuse(fmt::format("piece {}, which is {},", i, piece.empty() ? "empty" : "there twice"));
    }
  }
  const auto named = [&](TokenId id) { return id == kNoToken ? "" : spec.pieces[static_cast<std::size_t>(id)]; };
  file.model = SentencepieceFile::Model::bpe;
  file.bos_piece = named(spec.bos);
  file.eos_piece = named(spec.eos.empty() ? kNoToken : spec.eos.front());
  file.normalizer_name = "identity";
  file.add_dummy_prefix = spec.add_space_prefix;
  file.remove_extra_whitespaces = false;
  return write_sentencepiece_model(file);
}

}  // namespace banyan
