// sentencepiece vocabularies (BPE over characters), by score or by a list of merges. Immutable after construction.
//
// Ids are those of the sentencepiece library (tests compare the two). It needs 1.8 s for a megabyte of prose on an AMD
// EPYC core, most of it in one queue over the whole text, whose pairs it looks up by their text; this needs 0.03 s:
// pairs are numbers in a table, and words are merged one by one where no piece crosses their border.
#pragma once

#include <memory>
#include <string>

#include "banyan/tokenizer.hpp"

namespace banyan {

// `spec` has passed make_tokenizer()'s checks. Throws Error{bad_file} for a vocabulary without an unknown token, with
// some but not all 256 byte tokens, or with merges of what it lacks.
std::shared_ptr<const Tokenizer> make_spm_tokenizer(TokenizerSpec spec);

// Pieces, scores, kinds, unknown and BOS id and the prefix rule of a tokenizer.model. Throws Error{unsupported} naming
// the setting for a model that is not BPE with identity normalisation: such a model drops or changes characters.
TokenizerSpec read_sentencepiece_file(const std::string& path);
// The way back: what a tokenizer.model holds, which the library takes, too. Throws Error{unsupported} naming what it
// has no words for: a vocabulary without scores, with pieces that stand there twice, with other than one unknown piece.
std::string sentencepiece_file_of(const TokenizerSpec& spec);

}  // namespace banyan
