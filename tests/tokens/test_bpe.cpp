#include <doctest/doctest.h>
#include <random>
#include <string>
#include <vector>

#include "banyan/tokenizer.hpp"
#include "tokens/byte_alphabet.hpp"
#include "tokens/gguf_vocab.hpp"
#include "tokens/pre_tokenizer.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

using Ids = std::vector<TokenId>;

Ids bytes_as_ids(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::vector<std::string> words(const char* rule, std::string_view text) {
  const PreTokenizer pre(pre_tokenizer_rule(rule, "test"));
  std::vector<std::string> r;
  for (const auto word : pre.split(text)) r.emplace_back(word);
  return r;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("byte alphabet: 256 different characters, and back") {
  std::string all;
  for (int b = 0; b < 256; ++b) {
    const std::string piece = byte_to_piece(static_cast<unsigned char>(b));
    REQUIRE(piece_to_bytes(piece) == std::string(1, static_cast<char>(b)));
    all += static_cast<char>(b);
  }
  CHECK(piece_to_bytes(bytes_to_piece(all)) == all);
  CHECK(bytes_to_piece(" a\n") ==
        "\xC4\xA0"
        "a"
        "\xC4\x8A");
  CHECK_FALSE(piece_to_bytes("a b"));
  CHECK_FALSE(piece_to_bytes("\xE2\x96\x81"));
  CHECK_FALSE(piece_to_bytes("\xC4"));
}

TEST_CASE("pre-tokenizers: words of the published patterns") {
  CHECK(words("gpt-2", "I'm  here 42x\n\n y") == Words{"I", "'m", " ", " here", " 42", "x", "\n\n", " y"});
  CHECK(words("smollm", "I'm  42 x") == Words{"I", "'m", "  ", "4", "2", " x"});
  CHECK(words("llama-bpe", "I'M 12345 (a)\n\n b") == Words{"I", "'M", " ", "123", "45", " (", "a", ")\n\n", " b"});
  CHECK(words("qwen2", "v12") == Words{"v", "1", "2"});
  CHECK(words("deepseek-coder", "a b,1 \n") == Words{"a", " b", ",", "1", " ", "\n"});
  CHECK(words("gpt-2", "") == Words{});
  // White space is Unicode's: NEL and the ideographic space are, the Mongolian vowel separator is not.
  CHECK(words("gpt-2", "\xC2\x85\xE3\x80\x80") == Words{"\xC2\x85\xE3\x80\x80"});
  CHECK(words("gpt-2", "\xE1\xA0\x8E ") == Words{"\xE1\xA0\x8E", " "});
  CHECK_THROWS_WITH_AS(pre_tokenizer_rule("tekken", "f.gguf"),
                       doctest::Contains("f.gguf: pre-tokenizer \"tekken\" is not supported; known: gpt-2, smollm"),
                       Error);
}

TEST_CASE("byte-level BPE: merges stay inside words, and any bytes come back") {
  const auto tokenizer = make_tokenizer(tiny_bpe({"a b", "ab ab", "\xC4\xA0 a"}));
  CHECK(tokenizer->encode("abab") == Ids{257});
  CHECK(tokenizer->encode("ab ab") == Ids{256, ' ', 256});
  CHECK(tokenizer->encode(" aa") == Ids{258, 'a'});
  CHECK(tokenizer->encode("") == Ids{});
  CHECK(tokenizer->encode("\xFF\xC3(") == bytes_as_ids("\xFF\xC3("));

  std::mt19937 rng(5);
  for (int round = 0; round < 500; ++round) {
    std::string text(rng() % 60, '\0');
    for (auto& c : text) c = static_cast<char>(round % 2 == 0 ? rng() : "ab \n\xC3\xA9"[rng() % 6]);
    REQUIRE(tokenizer->decode(tokenizer->encode(text)) == text);
  }
}

TEST_CASE("special tokens: only with parse_special, longest first; added tokens always") {
  TokenizerSpec spec = tiny_bpe({"a b"}, {"<s>", "<s>>", "<x"});
  spec.pieces.insert(spec.pieces.end(), {"<add me>", "[PAD261]"});
  spec.kinds.insert(spec.kinds.end(), 2, TokenKind::user_defined);
  const auto tokenizer = make_tokenizer(spec);
  const EncodeOptions special{.parse_special = true};
  CHECK(tokenizer->encode("<s>ab") == Ids{'<', 's', '>', 256});
  CHECK(tokenizer->encode("<s>ab", special) == Ids{257, 256});
  CHECK(tokenizer->encode("<s>><s><x", special) == Ids{258, 257, 259});
  CHECK(tokenizer->encode("a<add me>b") == Ids{'a', 260, 'b'});
  // A filler of the converter is not a token that texts can have.
  CHECK(tokenizer->encode("[PAD261]") == bytes_as_ids("[PAD261]"));
  CHECK(tokenizer->decode(Ids{257, 256, 260}) == "ab<add me>");
  CHECK(tokenizer->decode(Ids{257, 256}, true, true) == "<s>ab");
}

TEST_CASE("BL-27: exactly one BOS, whoever writes it") {
  TokenizerSpec spec = tiny_bpe({}, {"<s>"});
  spec.bos = 256;
  spec.add_bos = true;
  const auto adds = make_tokenizer(spec);
  spec.add_bos = false;
  const auto adds_not = make_tokenizer(spec);
  const EncodeOptions special{.parse_special = true};
  CHECK(adds->encode("<s>hi", special) == Ids{256, 'h', 'i'});
  CHECK(adds_not->encode("<s>hi", special) == Ids{256, 'h', 'i'});
  CHECK(adds->encode("hi", special) == Ids{256, 'h', 'i'});
  CHECK(adds->encode("<s>x") == Ids{256, '<', 's', '>', 'x'});
  CHECK(adds->encode("<s>x", {.add_bos = false}) == Ids{'<', 's', '>', 'x'});
  CHECK(adds->encode("") == Ids{256});
}

TEST_CASE("BL-29, byte level: a byte without a token is the unknown token, or an error, never nothing") {
  TokenizerSpec spec = tiny_bpe({}, {"<unk>"});
  spec.pieces[0xE4] = "gone";
  CHECK_THROWS_WITH_AS(make_tokenizer(spec)->encode("\xE4\xBD\xA0"), doctest::Contains("byte 0xE4 has no token"),
                       Error);
  spec.unk = 256;
  CHECK(make_tokenizer(spec)->encode("\xE4\xBD\xA0") == Ids{256, 0xBD, 0xA0});
}

TEST_CASE("specs that contradict themselves are refused with the reason") {
  const auto fails = [](TokenizerSpec spec, const char* message) {
    CHECK_THROWS_WITH_AS(make_tokenizer(std::move(spec)), doctest::Contains(message), Error);
  };
  fails(TokenizerSpec{}, "no pieces");
  TokenizerSpec spec = tiny_bpe({"a b"});
  spec.kinds.pop_back();
  fails(spec, "257 pieces but 256 token types");
  spec = tiny_bpe({"a b"});
  spec.bos = 257;
  fails(spec, "BOS token is 257");
  spec = tiny_bpe({"a b"});
  spec.eos = {0, -5};
  fails(spec, "end-of-text token is -5");
  spec = tiny_bpe({"a b"});
  spec.add_bos = true;
  fails(spec, "names no BOS");
  for (const char* merge : {"a c", "a zz", "ab", "a b c", ""}) {
    spec = tiny_bpe({"a b"});
    spec.merges.emplace_back(merge);
    fails(spec, "merge 1");
  }
  const auto tokenizer = make_tokenizer(tiny_bpe({}));
  CHECK_THROWS_AS(tokenizer->token_bytes(256, false), Error);
  CHECK_THROWS_AS(tokenizer->token_bytes(-1, false), Error);
}
