#include "tokens/spm_tokenizer.hpp"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <utility>

#include "banyan/read_file.hpp"
#include "tokens/sentencepiece_proto.hpp"
#include "tokens/utf8.hpp"
#include "tokens/vocab_tokenizer.hpp"

namespace banyan {

namespace {

std::string unescape_spaces(std::string_view piece) {
  std::string text;
  for (std::size_t at; (at = piece.find(kSpaceMark)) != std::string_view::npos;) {
    text += piece.substr(0, at);
    text += ' ';
    piece.remove_prefix(at + kSpaceMark.size());
  }
  return text += piece;
}

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

std::vector<std::string> bytes_of_pieces(const TokenizerSpec& spec, std::vector<TokenId>& byte_ids) {
  std::vector<std::string> bytes;
  bytes.reserve(spec.pieces.size());
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    switch (spec.kinds[i]) {
      case TokenKind::byte: {
        const unsigned char byte = byte_of_piece(spec.pieces[i], spec.where);
        byte_ids.resize(256, kNoToken);
        byte_ids[byte] = static_cast<TokenId>(i);
        bytes.emplace_back(1, static_cast<char>(byte));
        break;
      }
      // Something unknown stood there: say so rather than leave it out.
      case TokenKind::unknown: bytes.emplace_back("\xEF\xBF\xBD"); break;
      default: bytes.push_back(unescape_spaces(spec.pieces[i]));
    }
  }
  return bytes;
}

class SpmTokenizer final : public VocabTokenizer {
 public:
  SpmTokenizer(TokenizerSpec spec, std::vector<std::string> bytes, std::vector<TokenId> byte_ids, bool space_prefix)
      : VocabTokenizer(std::move(spec), std::move(bytes), /*drop_first_space=*/space_prefix, Added::left_in),
        byte_ids_(std::move(byte_ids)) {
    const auto status = processor_.LoadFromSerializedProto(write_sentencepiece_model(spec_));
    if (!status.ok()) {
      throw Error(ErrorCode::bad_file, spec_.where, "sentencepiece does not take the vocabulary: " + status.ToString());
    }
  }

 private:
  void encode_text(std::string_view text, bool opens, std::vector<TokenId>& ids) const override {
    bool prefix = opens && spec_.add_space_prefix;
    const auto encode_valid = [&](std::string_view run) {
      std::string opened(prefix ? 1 : 0, ' ');
      opened += run;
      encode_run(opened, ids);
      prefix = false;
    };
    // The library would turn ill-formed bytes into U+FFFD. They go to their byte pieces here.
    const auto encode_invalid = [&](std::string_view run) {
      for (const char c : run) {
        ids.push_back(byte_ids_.empty() ? processor_.unk_id() : byte_ids_[static_cast<unsigned char>(c)]);
      }
      prefix = false;
    };
    for_each_utf8_run(text, encode_valid, encode_invalid);
  }

  void encode_run(const std::string& run, std::vector<TokenId>& ids) const {
    std::vector<int> run_ids;
    const auto status = processor_.Encode(run, &run_ids);
    if (!status.ok()) throw Error(ErrorCode::bad_input, "text", "sentencepiece does not take it: " + status.ToString());
    ids.insert(ids.end(), run_ids.begin(), run_ids.end());
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::vector<TokenId> byte_ids_;  // [256], or empty: no byte pieces
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
  std::vector<TokenId> byte_ids;
  std::vector<std::string> bytes = bytes_of_pieces(spec, byte_ids);
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

}  // namespace banyan
