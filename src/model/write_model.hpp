// What a model is beside its weights, in the words of either file form: the inverse of config_from_gguf(),
// config_from_json() and the tokenizer readers. Layer 5, internal. Pure functions.
//
// Throws Error{unsupported} naming what the other form has no words for. That nothing else is lost is convert()'s to
// check: it reads the result back.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/checkpoint.hpp"
#include "model/gguf_writer.hpp"

namespace banyan {

// --- GGUF ----------------------------------------------------------------------------------------------------------
void add_config(GgufWriter& out, const Checkpoint& model);
void add_tokenizer(GgufWriter& out, const Checkpoint& model);
// What a GGUF says of scaled rope as tensors, by name: by how much each frequency is divided, [n_dims / 2]. Llama 3.1's
// one list, longrope's two; none for the others.
std::map<std::string, std::vector<float>> gguf_rope_tensors(const Rope& rope);

// --- a Hugging Face directory: file name to contents ---------------------------------------------------------------
std::map<std::string, std::string> hf_files(const Checkpoint& model, DType type);
// What config.json calls an element type.
std::string hf_type_name(DType type);

}  // namespace banyan
