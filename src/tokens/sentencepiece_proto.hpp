// The few fields of sentencepiece's ModelProto that banyan reads and writes, by their numbers in the library's
// published sentencepiece_model.proto (the library keeps its generated header to itself). Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "banyan/tokenizer.hpp"

namespace banyan {

// A model file: its pieces, and the settings that decide how a text is cut. Defaults are those of the .proto file.
struct SentencepieceFile {
  std::vector<std::string> pieces;
  std::vector<float> scores;     // [n pieces]
  std::vector<TokenKind> kinds;  // [n pieces]

  enum class Model : int { unigram = 1, bpe = 2, word = 3, character = 4 } model = Model::unigram;
  bool whitespace_as_suffix = false;
  std::string bos_piece = "<s>", eos_piece = "</s>";

  std::string normalizer_name;
  bool has_charsmap = false;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// Throws Error{bad_file} naming `where` if `model` is no well-formed ModelProto.
SentencepieceFile read_sentencepiece_model(std::string_view model, const std::string& where);
// The way back, for a file without a charsmap.
std::string write_sentencepiece_model(const SentencepieceFile& file);

}  // namespace banyan
