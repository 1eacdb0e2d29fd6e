// Byte-level BPE: pre-tokenizer, then merges inside each word. Immutable after construction.
#pragma once

#include <memory>

#include "banyan/tokenizer.hpp"

namespace banyan {

// `spec` has passed make_tokenizer()'s checks. Throws Error{unsupported} for a pre-tokenizer it does not know,
// Error{bad_file} for merges whose pieces or result the vocabulary lacks.
std::shared_ptr<const Tokenizer> make_bpe_tokenizer(TokenizerSpec spec);

}  // namespace banyan
