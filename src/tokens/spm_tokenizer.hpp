// sentencepiece vocabularies (BPE by score), encoded by the sentencepiece library. Immutable after construction.
#pragma once

#include <memory>
#include <string>

#include "banyan/tokenizer.hpp"

namespace banyan {

// `spec` has passed make_tokenizer()'s checks. Throws Error{bad_file} for a vocabulary that the library does not take.
std::shared_ptr<const Tokenizer> make_spm_tokenizer(TokenizerSpec spec);

// Pieces, scores, kinds, unknown and BOS id and the prefix rule of a tokenizer.model. Throws Error{unsupported} naming
// the setting for a model that is not BPE with identity normalisation: such a model drops or changes characters.
TokenizerSpec read_sentencepiece_file(const std::string& path);

}  // namespace banyan
