// tokenizer.json of Hugging Face's tokenizers, reduced to a TokenizerSpec. Layer 1, internal, for .cpp files only.
//
// The file is a small pipeline: normalizer, pre_tokenizer, model, post_processor, decoder. banyan does not run it: it
// recognises the two that its families publish, by what their parts do, and refuses others by name.
//   byte-level BPE       a pre-tokenizer of pre_tokenizer_rules(), then merges on bytes
//   sentencepiece-like   spaces become U+2581, one is put in front, then merges on characters with byte fallback
#pragma once

#include <string>

#include "banyan/tokenizer.hpp"
#include "base/json.hpp"

namespace banyan {

enum class JsonTokenizer : std::uint8_t { byte_level_bpe, sentencepiece_bpe, other };
JsonTokenizer kind_of_tokenizer_json(const nlohmann::json& root);

// Pieces, merges and rules, added tokens, the unknown token of the model, BOS of the post-processor. Throws
// Error{unsupported} naming the part that is not supported, Error{bad_file} for what contradicts itself.
TokenizerSpec read_tokenizer_json(const nlohmann::json& root, const std::string& where);

}  // namespace banyan
