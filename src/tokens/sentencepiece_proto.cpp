#include "tokens/sentencepiece_proto.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <fmt/format.h>
#include <utility>

namespace banyan {

namespace {

// Field numbers and values of sentencepiece_model.proto.
enum ModelField : std::uint32_t { kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3 };
enum PieceField : std::uint32_t { kPiece = 1, kScore = 2, kType = 3 };
enum TrainerField : std::uint32_t {
  kModelType = 3,
  kWhitespaceAsSuffix = 24,
  kByteFallback = 35,
  kBosPiece = 46,
  kEosPiece = 47
};
enum NormalizerField : std::uint32_t {
  kName = 1,
  kCharsmap = 2,
  kAddDummyPrefix = 3,
  kRemoveExtraWhitespaces = 4,
  kEscapeWhitespaces = 5
};
enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Piece types are numbered from 1, in this order.
constexpr std::array kKindOfType = {TokenKind::normal,       TokenKind::unknown, TokenKind::control,
                                    TokenKind::user_defined, TokenKind::unused,  TokenKind::byte};

// Walks over the fields of one message.
class ProtoReader {
 public:
  ProtoReader(std::string_view message, const std::string& where) : rest_(message), where_(where) {}

  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t tag = raw_varint();
    field_ = tag >> 3;
    wire_ = static_cast<std::uint32_t>(tag & 7);
    value_ = 0;
    bytes_ = {};
    switch (wire_) {
      case kVarint: value_ = raw_varint(); break;
      case kFixed64: take(8); break;
      case kFixed32:
        bytes_ = take(4);
        for (int i = 3; i >= 0; --i)
          value_ = value_ << 8 | static_cast<unsigned char>(bytes_[static_cast<std::size_t>(i)]);
        break;
      case kBytes: bytes_ = take(raw_varint()); break;
      default: fail();
    }
    return true;
  }
  bool is(std::uint32_t field, WireType wire) const { return field_ == field && wire_ == wire; }
  std::uint64_t value() const { return value_; }
  std::string_view bytes() const { return bytes_; }

 private:
  [[noreturn]] void fail() const {
    throw Error(ErrorCode::bad_file, where_,
                fmt::format("is no sentencepiece model: broken {} bytes before the end", rest_.size()));
  }
  std::uint64_t raw_varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail();
  }
  std::string_view take(std::uint64_t n) {
    if (n > rest_.size()) fail();
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }

  std::string_view rest_;
  const std::string& where_;
  std::uint64_t field_ = 0, value_ = 0;
  std::uint32_t wire_ = 0;
  std::string_view bytes_;
};

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

void read_piece(ProtoReader message, const std::string& where, SentencepieceFile& file) {
  std::string piece;
  float score = 0;
  TokenKind kind = TokenKind::normal;
  while (message.next()) {
    if (message.is(kPiece, kBytes)) piece = message.bytes();
    if (message.is(kScore, kFixed32)) score = std::bit_cast<float>(static_cast<std::uint32_t>(message.value()));
    if (message.is(kType, kVarint)) {
      if (message.value() < 1 || message.value() > kKindOfType.size()) {
        throw Error(ErrorCode::bad_file, where,
                    fmt::format("piece {} has the unknown type {}", file.pieces.size(), message.value()));
      }
      kind = kKindOfType[message.value() - 1];
    }
  }
  file.pieces.push_back(std::move(piece));
  file.scores.push_back(score);
  file.kinds.push_back(kind);
}

void read_trainer(ProtoReader message, SentencepieceFile& file) {
  while (message.next()) {
    if (message.is(kModelType, kVarint)) file.model = static_cast<SentencepieceFile::Model>(message.value());
    if (message.is(kWhitespaceAsSuffix, kVarint)) file.whitespace_as_suffix = message.value() != 0;
    if (message.is(kBosPiece, kBytes)) file.bos_piece = message.bytes();
    if (message.is(kEosPiece, kBytes)) file.eos_piece = message.bytes();
  }
}

void read_normalizer(ProtoReader message, SentencepieceFile& file) {
  while (message.next()) {
    if (message.is(kName, kBytes)) file.normalizer_name = message.bytes();
    if (message.is(kCharsmap, kBytes)) file.has_charsmap = !message.bytes().empty();
    if (message.is(kAddDummyPrefix, kVarint)) file.add_dummy_prefix = message.value() != 0;
    if (message.is(kRemoveExtraWhitespaces, kVarint)) file.remove_extra_whitespaces = message.value() != 0;
    if (message.is(kEscapeWhitespaces, kVarint)) file.escape_whitespaces = message.value() != 0;
  }
}

}  // namespace

SentencepieceFile read_sentencepiece_model(std::string_view model, const std::string& where) {
  SentencepieceFile file;
  for (ProtoReader message(model, where); message.next();) {
    if (message.is(kPieces, kBytes)) read_piece(ProtoReader(message.bytes(), where), where, file);
    if (message.is(kTrainerSpec, kBytes)) read_trainer(ProtoReader(message.bytes(), where), file);
    if (message.is(kNormalizerSpec, kBytes)) read_normalizer(ProtoReader(message.bytes(), where), file);
  }
  return file;
}

std::string write_sentencepiece_model(const SentencepieceFile& file) {
  ProtoWriter model;
  for (std::size_t i = 0; i < file.pieces.size(); ++i) {
    const auto type = std::ranges::find(kKindOfType, file.kinds[i]) - kKindOfType.begin() + 1;
    ProtoWriter piece;
    piece.bytes(kPiece, file.pieces[i]);
    piece.number(kScore, file.scores[i]);
    piece.varint(kType, static_cast<std::uint64_t>(type));
    model.bytes(kPieces, piece.take());
  }
  ProtoWriter trainer;
  trainer.varint(kModelType, static_cast<std::uint64_t>(file.model));
  trainer.varint(kWhitespaceAsSuffix, file.whitespace_as_suffix);
  trainer.varint(kByteFallback, std::ranges::find(file.kinds, TokenKind::byte) != file.kinds.end());
  trainer.bytes(kBosPiece, file.bos_piece);
  trainer.bytes(kEosPiece, file.eos_piece);
  model.bytes(kTrainerSpec, trainer.take());
  ProtoWriter normalizer;
  normalizer.bytes(kName, file.normalizer_name);
  normalizer.varint(kAddDummyPrefix, file.add_dummy_prefix);
  normalizer.varint(kRemoveExtraWhitespaces, file.remove_extra_whitespaces);
  normalizer.varint(kEscapeWhitespaces, file.escape_whitespaces);
  model.bytes(kNormalizerSpec, normalizer.take());
  return model.take();
}

}  // namespace banyan
