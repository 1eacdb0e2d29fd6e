// Test helper: the tokenizer that a GGUF file holds, read by the shortest reader that can (metadata alone, trusted
// files, little-endian host). On purpose not the reader of src/model: the two check each other.
#pragma once

#include <doctest/doctest.h>
#include <optional>
#include <string>
#include <vector>

#include "banyan/tokenizer.hpp"

namespace doctest {
template <>
struct StringMaker<std::vector<banyan::TokenId>> {
  static String convert(const std::vector<banyan::TokenId>& ids) {
    std::string text;
    for (const banyan::TokenId id : ids) text += std::to_string(id) + ' ';
    return text.c_str();
  }
};
}  // namespace doctest

namespace banyan::test {

// Throws std::runtime_error for a file that it cannot read.
TokenizerSpec read_gguf_vocab(const std::string& path);

// ggml-vocab-NAME.gguf of the shared data; nothing, and a message, where it is absent.
std::optional<std::string> shared_vocab_path(const std::string& name);
std::shared_ptr<const Tokenizer> load_shared_vocab(const std::string& name);  // null where absent

// The SmolLM2 file: $BANYAN_TEST_MODEL, or ~/.cache/banyan; nothing where absent.
std::optional<std::string> smollm_path();

// The texts of a vocabulary's .inp and the ids of its .out.
std::vector<std::string> read_inputs(const std::string& vocab_path);
std::vector<std::vector<TokenId>> read_outputs(const std::string& vocab_path);

// A byte-level BPE spec of the 256 bytes in byte order, then one piece per merge ("left right" in plain bytes of the
// alphabet), then control tokens.
TokenizerSpec tiny_bpe(const std::vector<std::string>& merges, const std::vector<std::string>& control = {});

// An SPM spec: <unk>, <s>, </s>, the 256 byte pieces if wanted, then `pieces` with falling scores.
TokenizerSpec tiny_spm(const std::vector<std::string>& pieces, bool with_bytes);

}  // namespace banyan::test
