// The tokenizer files of a Hugging Face directory, reduced to a TokenizerSpec: read_tokenizer_dir() of
// banyan/tokenizer.hpp, and the piece of it that models without a tokenizer need too. Layer 1, internal. Pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "banyan/types.hpp"

namespace banyan {

// The files of a directory that may name end-of-text ids outside its tokenizer.
constexpr const char* kConfigsWithEos[] = {"generation_config.json", "config.json"};

// eos_token_id of such a file: a number, or a list of them; nothing where the file or the key is absent. Throws
// Error{bad_file} naming file and key for what is no token id; whether the vocabulary has it is the caller's to check.
std::vector<TokenId> read_eos_ids(const std::string& path);

}  // namespace banyan
