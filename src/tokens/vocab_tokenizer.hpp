// What byte-level BPE and sentencepiece share: special tokens cut out of the text, BOS, the bytes of each token. The
// two differ in how they cut plain text, encode_text(). Must not know files. Immutable after construction.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "banyan/tokenizer.hpp"
#include "tokens/special_matcher.hpp"

namespace banyan {

class VocabTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const final;
  std::string token_bytes(TokenId id, bool first, bool with_special) const final;

 protected:
  // How user_defined tokens are found: cut out like special ones, or left for encode_text() to see.
  enum class Added : bool { cut_out, left_in };

  // `bytes`: what each token stands for in running text, [vocab_size]. `drop_first_space`: the vocabulary puts a space
  // in front of a text, so token_bytes() takes it away from the token that opens one.
  VocabTokenizer(TokenizerSpec spec, std::vector<std::string> bytes, bool drop_first_space, Added added);

  // Appends the ids of a text without special tokens; any bytes. `opens`: the text starts here, or a special token
  // stands in front.
  virtual void encode_text(std::string_view text, bool opens, std::vector<TokenId>& ids) const = 0;

  const std::string& bytes_of(TokenId id) const { return bytes_[static_cast<std::size_t>(id)]; }

 private:
  std::vector<std::string> bytes_;
  bool drop_first_space_;
  SpecialMatcher always_;       // user_defined, unless left in
  SpecialMatcher special_too_;  // and control and unknown: with parse_special
};

// Throws Error{bad_input} for a word of more symbols than Merger has positions for.
void check_word_length(std::size_t n_symbols);

// The two pieces of spec.merges[rank], "left right". Throws Error{bad_file} where that is no pair.
std::pair<std::string_view, std::string_view> halves_of_merge(const TokenizerSpec& spec, std::size_t rank);

// The text that a vocabulary's fillers get from converters: "[PAD17]" with their own id. Never matched in a text.
bool is_filler(std::string_view piece, TokenId id);

}  // namespace banyan
