// Text <-> token ids. Layer 1: knows no model, no tree.
//
// A Tokenizer is immutable and safe to share between threads. decode(encode(x)) == x for byte-complete vocabularies and
// any bytes x, special tokens not parsed; but qwen2 reads texts in NFC, as its publisher does, sentencepiece reads
// U+2581 back as a space, and added tokens that swallow the white space beside them lose it. A byte that a vocabulary
// lacks is its unknown token, or Error{bad_input} where it has none. encode() takes time in proportion to the text
// (and, within one word, to its logarithm).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "banyan/types.hpp"

namespace banyan {

struct EncodeOptions {
  bool add_bos = true;         // put BOS in front when the vocabulary says so (never twice: not if ids start with it)
  bool parse_special = false;  // text that spells a special token becomes that token; else it is plain text
  bool first = true;           // the text opens a sequence: spm puts its prefix space in front; false below a node
};

enum class TokenKind : std::uint8_t { normal, unknown, control, user_defined, unused, byte };

// Everything a vocabulary file says, whatever the file: what tokenizer.json and GGUF metadata both reduce to.
struct TokenizerSpec {
  enum class Model : std::uint8_t { bpe, spm } model = Model::bpe;
  std::string pre;                  // bpe: name of the pre-tokenizer ("gpt-2", "smollm", …)
  std::vector<std::string> pieces;  // [vocab_size]; bpe: in the printable byte alphabet of GPT-2; spm: with U+2581
  std::vector<float> scores;        // [vocab_size], spm only; empty: spm by the list of merges
  std::vector<TokenKind> kinds;     // [vocab_size]
  std::vector<std::string> merges;  // "left right", best first
  TokenId bos = kNoToken, unk = kNoToken;
  std::vector<TokenId> eos;  // every end-of-text id the file names; first the one that chat templates write
  bool add_bos = false;
  // spm: where a text opens, a space goes in front; behind a special token too; even if the text has its own.
  bool add_space_prefix = true, prefix_each_part = true, prefix_before_space = true;
  std::vector<TokenId> lstrip, rstrip;  // added tokens that take the white space in front of, behind them
  std::string chat_template;            // as found, may be empty
  std::string where;                    // the file, for messages
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;

  // The bytes a token stands for (not always valid UTF-8 by itself). `first`: the token opens a text, so spm drops the
  // space that its prefix rule put in front. Control tokens give "" unless `with_special`; the unknown token gives
  // U+FFFD. Throws Error{bad_input} for an id outside the vocabulary.
  virtual std::string token_bytes(TokenId id, bool first, bool with_special = false) const = 0;

  // Bytes of a run of tokens. `first` as above: false for the text of a child node.
  std::string decode(std::span<const TokenId> ids, bool first = true, bool with_special = false) const;

  const TokenizerSpec& spec() const { return spec_; }
  std::int64_t vocab_size() const { return static_cast<std::int64_t>(spec_.pieces.size()); }
  bool is_eos(TokenId id) const;

 protected:
  explicit Tokenizer(TokenizerSpec spec) : spec_(std::move(spec)) {}
  TokenizerSpec spec_;
};

// Builds the tokenizer that the spec describes. Throws Error{unsupported} that names a pre-tokenizer it does not know,
// Error{bad_file} for a spec that contradicts itself (ids out of range, merges of unknown pieces, no pieces).
std::shared_ptr<const Tokenizer> make_tokenizer(TokenizerSpec spec);

// Reads tokenizer.json or tokenizer.model (+ tokenizer_config.json, special_tokens_map.json, generation_config.json
// where present) of a Hugging Face directory. GGUF files go through load_tokenizer() of model.hpp.
TokenizerSpec read_tokenizer_dir(const std::string& dir);

// Turns a growing sequence of tokens into valid UTF-8 chunks: bytes of an unfinished character are held back until they
// complete; flush() replaces what never completed by one U+FFFD per maximal invalid part.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);  // returns what is complete now
  std::string flush();
  bool pending() const { return !held_.empty(); }  // bytes of an unfinished character are held

 private:
  std::string held_;  // at most 3 bytes
};

// Replaces each maximal invalid part by U+FFFD. Used wherever text enters JSON.
std::string sanitize_utf8(std::string_view bytes);

struct ChatTurn {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// Texts that a template calls bos_token and eos_token; those of the template's publisher where nothing is given.
struct ChatTokens {
  std::optional<std::string> bos, eos;
};
ChatTokens chat_tokens(const TokenizerSpec& spec);  // the vocabulary's own; empty texts where it has none

std::vector<std::string_view> chat_template_names();  // "chatml", "llama-3" …
// The name of the published template that this text is. Throws Error{unsupported} for any other: a template is not
// guessed at.
std::string chat_template_name(const std::string& template_text);
// Writes a conversation in the named template, with the mark that opens the assistant's answer. Throws
// Error{unsupported} for a name that is not known, Error{bad_input} for turns that the template does not take.
std::string render_chat(const std::string& name, std::span<const ChatTurn> turns, const ChatTokens& tokens = {});
// The text that ends an answer in this template; empty where that is the vocabulary's end-of-text token.
std::string chat_answer_end(const std::string& name);

}  // namespace banyan
