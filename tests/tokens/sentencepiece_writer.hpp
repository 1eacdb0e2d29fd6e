// Test helper: a vocabulary as a model file of the sentencepiece library, which is then the oracle for banyan's own
// encoder.
#pragma once

#include <string>

#include "banyan/tokenizer.hpp"

namespace banyan::test {

// A BPE model of the pieces, scores and kinds of `spec`, with identity normalisation: no characters replaced, no space
// removed, no space put in front. [serialised ModelProto]
//
// The library wants exactly one unknown piece and no piece empty or twice; vocabularies of files break the last rule
// with fillers, which become control pieces under a name of their own: never matched in a text, ids unchanged.
std::string write_sentencepiece_model(const TokenizerSpec& spec);

}  // namespace banyan::test
