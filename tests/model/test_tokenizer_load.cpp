// What GGUF metadata says of a tokenizer. Encoding itself is tested in tests/tokens.
#include <doctest/doctest.h>

#include "made_model.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

const std::vector<std::string> kPieces{"<unk>", "<s>", "</s>", "<0x41>", "\u2581a", "b"};

// A sentencepiece vocabulary; `edit` adds the rest.
template <typename F>
TokenizerSpec spec_of(const TempDir& dir, F&& edit, std::string_view model = "llama") {
  GgufWriter out;
  out.add_string("tokenizer.ggml.model", model);
  edit(out);
  write_file(dir / "v.gguf", out.bytes());
  return tokenizer_spec_from_gguf(GgufFile(dir / "v.gguf", GgufFile::Scope::metadata));
}

void add_spm(GgufWriter& out) {
  out.add_strings("tokenizer.ggml.tokens", kPieces);
  out.add_floats("tokenizer.ggml.scores", std::vector<float>{0, 0, 0, 0, -1, -2});
}

}  // namespace

TEST_CASE("tokenizer: GGUF metadata of sentencepiece, with the conventions for what is left out") {
  const TempDir dir("tokenizer_spm");
  TokenizerSpec spec = spec_of(dir, [](GgufWriter& w) {
    add_spm(w);
    w.add_ints("tokenizer.ggml.token_type", std::vector<std::int32_t>{2, 3, 3, 6, 1, 4});
  });
  CHECK(spec.model == TokenizerSpec::Model::spm);
  CHECK(spec.pieces == kPieces);
  CHECK(spec.scores[5] == -2.0F);
  CHECK(spec.kinds == std::vector<TokenKind>{TokenKind::unknown, TokenKind::control, TokenKind::control,
                                             TokenKind::byte, TokenKind::normal, TokenKind::user_defined});
  CHECK(spec.bos == 1);
  CHECK(spec.unk == 0);
  CHECK(spec.eos == std::vector<TokenId>{2});
  CHECK(spec.add_bos);
  CHECK(spec.add_space_prefix);

  spec = spec_of(dir, [](GgufWriter& w) {
    add_spm(w);
    w.add_u32("tokenizer.ggml.eos_token_id", 2);
    w.add_u32("tokenizer.ggml.eot_token_id", 5);
    w.add_u32("tokenizer.ggml.eom_token_id", 2);
    w.add_bool("tokenizer.ggml.add_bos_token", false);
    w.add_bool("tokenizer.ggml.add_space_prefix", false);
    w.add_string("tokenizer.chat_template", "{{ x }}");
  });
  CHECK(spec.eos == std::vector<TokenId>{2, 5});
  CHECK_FALSE(spec.add_bos);
  CHECK_FALSE(spec.add_space_prefix);
  CHECK(spec.chat_template == "{{ x }}");
}

TEST_CASE("tokenizer: GGUF metadata of byte-level BPE") {
  const GgufFile file(kTinyGguf, GgufFile::Scope::metadata);
  const TokenizerSpec spec = tokenizer_spec_from_gguf(file);
  CHECK(spec.model == TokenizerSpec::Model::bpe);
  CHECK(spec.pre == "gpt-2");
  CHECK(spec.pieces.size() == 64);
  CHECK(spec.merges.front() == "t h");
  CHECK(spec.kinds[1] == TokenKind::control);
  CHECK(spec.bos == 0);
  CHECK(spec.unk == kNoToken);
  CHECK(spec.eos == std::vector<TokenId>{1});
  CHECK(spec.add_bos);
  CHECK_FALSE(spec.add_space_prefix);
}

TEST_CASE("tokenizer: metadata that contradicts itself is an error naming the key") {
  const TempDir dir("tokenizer_bad");
  const auto error = [&](auto&& edit, std::string_view model = "llama") {
    return error_of([&] { spec_of(dir, edit, model); });
  };
  CHECK(contains(error([](GgufWriter&) {}, "wordpiece"), "'wordpiece'"));
  CHECK(contains(error([](GgufWriter&) {}), "tokenizer.ggml.tokens"));
  CHECK(
      contains(error([](GgufWriter& w) { w.add_strings("tokenizer.ggml.tokens", kPieces); }), "tokenizer.ggml.scores"));
  CHECK(contains(error([](GgufWriter& w) {
                   w.add_strings("tokenizer.ggml.tokens", kPieces);
                   w.add_floats("tokenizer.ggml.scores", std::vector<float>{1});
                 }),
                 "1 entries for 6 tokens"));
  CHECK(contains(error([](GgufWriter& w) {
                   add_spm(w);
                   w.add_ints("tokenizer.ggml.token_type", std::vector<std::int32_t>{2, 3, 3, 6, 1, 9});
                 }),
                 "unknown token type 9"));
  CHECK(contains(error([](GgufWriter& w) {
                   add_spm(w);
                   w.add_u32("tokenizer.ggml.eos_token_id", 6);
                 }),
                 "eos_token_id"));
  CHECK(contains(error(
                     [](GgufWriter& w) {
                       w.add_strings("tokenizer.ggml.tokens", kPieces);
                       w.add_bool("tokenizer.ggml.add_bos_token", true);
                     },
                     "gpt2"),
                 "bos_token_id"));
}

TEST_CASE("tokenizer: load_tokenizer takes a directory, a tokenizer file or a GGUF, and names what it cannot take") {
  CHECK(load_tokenizer(kTinyGguf)->vocab_size() == 64);
  CHECK(load_tokenizer(kTinyDir)->vocab_size() == 64);
  CHECK(load_tokenizer(kTinyDir + "/tokenizer.json")->vocab_size() == 64);
  CHECK(contains(error_of([&] { load_tokenizer(kTinyDir + "/config.json"); }), "config.json"));
  CHECK(contains(error_of([&] { load_tokenizer(kTinyDir + "/absent"); }), "absent"));
  const TempDir dir("tokenizer_none");
  CHECK(contains(error_of([&] { load_tokenizer(dir.str()); }), "no tokenizer"));
  GgufWriter out;
  write_file(dir / "none.gguf", out.bytes());
  CHECK(contains(error_of([&] { load_tokenizer(dir / "none.gguf"); }), "no tokenizer"));
}
