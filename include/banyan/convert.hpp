// From one form of model file to another, and from one element type to another. Layer 5.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "banyan/types.hpp"

namespace banyan {

struct ConvertOptions {
  DType type = DType::f32;  // of the matrices; f32, f16, bf16, q8_0, q4_0, q4_1, q4_k, q6_k. Vectors stay f32
  int n_threads = 0;        // 0: all cores
};

// What became of the tensors that are stored in one type.
struct ConvertedType {
  DType type = DType::f32;
  std::int64_t n_tensors = 0, n_weights = 0, bytes = 0;
  double error = 0;  // sqrt(sum (y - x)^2 / sum x^2): x the source's values in f32, y what the result gives back
  double largest_error = 0;  // max |y - x|
};

struct ConvertReport {
  std::vector<ConvertedType> types;
  // Matrices that the wanted type cannot hold, their rows being no whole blocks: they are stored in a type of at least
  // its precision, q8_0 where that fits, else f32.
  std::int64_t n_fallback = 0;
  std::int64_t block = 1;  // elements of a block of the wanted type
};

// `source`: a Hugging Face directory or one .gguf. `destination`, which must not exist: a name that ends in .gguf, or a
// directory, which then holds safetensors (f32, f16, bf16) and takes the other files of a source directory along.
// Configuration, tokenizer, chat template and end-of-text ids go along; before the result gets its name it is opened
// and compared with the source, so what the other form cannot say is an error, and nothing is left behind. Throws
// Error{bad_file | unsupported | usage}.
ConvertReport convert(const std::string& source, const std::string& destination, const ConvertOptions& options = {});

}  // namespace banyan
