// The tokenizer of a checkpoint: what GGUF's metadata says of it, and where to find it for each form of path.
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <limits>

#include "model/checkpoint.hpp"

namespace banyan {
namespace {

constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kMerges = "tokenizer.ggml.merges";

// Twice the largest published vocabularies: what a crafted file can make us reserve before it is refused.
constexpr std::uint64_t kMostPieces = 1 << 19;

// Numbers of tokenizer.ggml.token_type.
TokenKind token_kind(std::int64_t number, const GgufFile& file) {
  switch (number) {
    case 1: return TokenKind::normal;
    case 2: return TokenKind::unknown;
    case 3: return TokenKind::control;
    case 4: return TokenKind::user_defined;
    case 5: return TokenKind::unused;
    case 6: return TokenKind::byte;
    default: throw file.key_error(kTypes, fmt::format("unknown token type {}", number));
  }
}

TokenId find_id(const GgufFile& file, std::string_view key, TokenId absent, std::size_t n_tokens) {
  const auto id = file.find_int(key);
  if (!id) return absent < static_cast<std::int64_t>(n_tokens) ? absent : kNoToken;
  if (*id < 0 || static_cast<std::uint64_t>(*id) >= n_tokens) {
    throw file.key_error(key, fmt::format("{} is not among the {} tokens", *id, n_tokens));
  }
  return static_cast<TokenId>(*id);
}

// Of the arrays that say something of each token, before they are read.
void check_lengths(const GgufFile& file) {
  const std::uint64_t n_tokens = file.array_length(kTokens);
  for (const char* key : {kTokens, kMerges}) {
    if (const std::uint64_t n = file.array_length(key); n > kMostPieces) {
      throw file.key_error(key, fmt::format("has {} entries, the limit is {}", n, kMostPieces));
    }
  }
  for (const char* key : {kScores, kTypes}) {
    if (const std::uint64_t n = file.array_length(key); file.is_array(key) && n != n_tokens) {
      throw file.key_error(key, fmt::format("has {} entries for {} tokens", n, n_tokens));
    }
  }
}

bool is_gguf(const std::string& path) { return GgufFile::has_magic(MappedFile(path).bytes()); }

}  // namespace

TokenizerSpec tokenizer_spec_from_gguf(const GgufFile& file) {
  TokenizerSpec spec;
  spec.where = file.path();
  const auto model = file.find_string("tokenizer.ggml.model").value_or("");
  if (model != "gpt2" && model != "llama") {
    throw Error(ErrorCode::unsupported, file.path() + ": key 'tokenizer.ggml.model'",
                fmt::format("'{}' is not supported; 'gpt2' (byte-level BPE) and 'llama' (sentencepiece) are", model));
  }
  const bool spm = model == "llama";
  spec.model = spm ? TokenizerSpec::Model::spm : TokenizerSpec::Model::bpe;
  spec.pre = file.find_string("tokenizer.ggml.pre").value_or(spm ? "" : "default");

  check_lengths(file);
  const auto pieces = file.find_strings(kTokens);
  if (!pieces || pieces->empty()) throw file.key_error(kTokens, "is absent or empty");
  const std::size_t n = pieces->size();
  spec.pieces.assign(pieces->begin(), pieces->end());
  if (const auto scores = file.find_floats(kScores); spm && scores) {
    spec.scores = *scores;
  } else if (spm) {
    throw file.key_error(kScores, "is absent");
  }
  spec.kinds.assign(n, TokenKind::normal);
  if (const auto kinds = file.find_ints(kTypes)) {
    std::ranges::transform(*kinds, spec.kinds.begin(), [&](std::int64_t kind) { return token_kind(kind, file); });
  }
  if (const auto merges = file.find_strings(kMerges)) spec.merges.assign(merges->begin(), merges->end());

  // Files of the first sentencepiece models leave the ids out: they are these by convention.
  spec.bos = find_id(file, "tokenizer.ggml.bos_token_id", spm ? 1 : kNoToken, n);
  spec.unk = find_id(file, "tokenizer.ggml.unknown_token_id", spm ? 0 : kNoToken, n);
  const TokenId eos = find_id(file, "tokenizer.ggml.eos_token_id", spm ? 2 : kNoToken, n);
  for (const TokenId id : {eos, find_id(file, "tokenizer.ggml.eot_token_id", kNoToken, n),
                           find_id(file, "tokenizer.ggml.eom_token_id", kNoToken, n)}) {
    if (id != kNoToken && std::ranges::find(spec.eos, id) == spec.eos.end()) spec.eos.push_back(id);
  }
  spec.add_bos = file.find_bool("tokenizer.ggml.add_bos_token").value_or(spm);
  if (spec.add_bos && spec.bos == kNoToken) {
    throw file.key_error("tokenizer.ggml.add_bos_token", "is true, but the file names no bos_token_id");
  }
  spec.add_space_prefix = file.find_bool("tokenizer.ggml.add_space_prefix").value_or(spm);
  spec.chat_template = file.find_string("tokenizer.chat_template").value_or("");
  return spec;
}

std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufFile& file) {
  const auto model = file.find_string("tokenizer.ggml.model");
  if (!model || *model == "none" || *model == "no_vocab") return nullptr;
  return make_tokenizer(tokenizer_spec_from_gguf(file));
}

std::shared_ptr<const Tokenizer> tokenizer_from_dir(const std::string& dir) {
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (std::filesystem::exists(std::filesystem::path(dir) / name, ignored)) {
      return make_tokenizer(read_tokenizer_dir(dir));
    }
  }
  return nullptr;
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
  std::error_code ignored;
  std::shared_ptr<const Tokenizer> tokenizer;
  if (std::filesystem::is_directory(path, ignored)) {
    tokenizer = tokenizer_from_dir(path);
  } else if (is_gguf(path)) {
    tokenizer = tokenizer_from_gguf(GgufFile(path, GgufFile::Scope::metadata));
  } else {
    const std::filesystem::path file(path);
    if (file.filename() != "tokenizer.json" && file.filename() != "tokenizer.model") {
      throw Error(ErrorCode::bad_file, path,
                  "is neither a .gguf file, a directory, nor a file named tokenizer.json or tokenizer.model");
    }
    tokenizer = tokenizer_from_dir(file.has_parent_path() ? file.parent_path().string() : ".");
  }
  if (!tokenizer) throw Error(ErrorCode::bad_file, path, "holds no tokenizer");
  return tokenizer;
}

}  // namespace banyan
