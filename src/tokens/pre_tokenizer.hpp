// Cuts a text into the words inside which byte-level BPE may merge. Knows no vocabulary. Immutable: safe to share.
//
// A pre-tokenizer is a list of stages. Each stage cuts every piece that the one before left: what its pattern matches
// is a piece by itself, and so is what lies between two matches. Nothing is dropped. A pattern sees its piece alone, so
// a look-ahead at the end of a piece sees the end of a text.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace banyan {

// A published pre-tokenizer. Patterns are written as their publishers write them; here \s is Unicode's White_Space.
struct PreTokenizerRule {
  std::vector<std::string_view> names;     // as GGUF files call it; the first is ours
  std::vector<std::string_view> patterns;  // one a stage
  bool whole_words = false;                // a word that is itself in the vocabulary is taken without merging
  bool nfc = false;                        // the publisher normalises texts to NFC first
};

std::span<const PreTokenizerRule> pre_tokenizer_rules();

// Throws Error{unsupported}, naming `name` and the known ones. `where`: the file, for the message.
const PreTokenizerRule& pre_tokenizer_rule(std::string_view name, const std::string& where);

class PreTokenizer {
 public:
  explicit PreTokenizer(const PreTokenizerRule& rule);
  ~PreTokenizer();

  // The words, in order; together they are `text`, which must be well-formed UTF-8.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  class Stage;
  std::vector<Stage> stages_;
};

}  // namespace banyan
