#include <algorithm>
#include <cmath>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <random>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>
#include <string>
#include <vector>

#include "banyan/tokenizer.hpp"
#include "tokens/gguf_vocab.hpp"
#include "tokens/sentencepiece_proto.hpp"
#include "tokens/sentencepiece_writer.hpp"
#include "tokens/spm_tokenizer.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

using Ids = std::vector<TokenId>;
const std::string kMark = "\xE2\x96\x81";  // U+2581

TokenId find(const TokenizerSpec& spec, const std::string& piece) {
  const auto it = std::find(spec.pieces.begin(), spec.pieces.end(), piece);
  REQUIRE(it != spec.pieces.end());
  return static_cast<TokenId>(it - spec.pieces.begin());
}

Ids without_bos(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_bos = false});
}

}  // namespace

TEST_CASE("BL-26: decoding piece by piece keeps spaces; parent text + child text is the whole text at every fork") {
  const TokenizerSpec spec = tiny_spm({kMark + "I", kMark + "am", kMark + "test", "ing"}, true);
  const auto tokenizer = make_tokenizer(spec);
  const Ids ids = {find(spec, kMark + "I"), find(spec, kMark + "am"), find(spec, kMark + "test"), find(spec, "ing")};
  CHECK(tokenizer->decode(ids) == "I am testing");
  std::string one_by_one;
  for (std::size_t i = 0; i < ids.size(); ++i) one_by_one += tokenizer->token_bytes(ids[i], i == 0);
  CHECK(one_by_one == "I am testing");
  CHECK(tokenizer->decode(std::span(ids).subspan(1), false) == " am testing");
  for (std::size_t fork = 1; fork < ids.size(); ++fork) {
    CHECK(tokenizer->decode(std::span(ids).first(fork)) + tokenizer->decode(std::span(ids).subspan(fork), false) ==
          "I am testing");
  }
  // BOS in front opens no text.
  Ids with_bos = {1};
  with_bos.insert(with_bos.end(), ids.begin(), ids.end());
  CHECK(tokenizer->decode(with_bos) == "I am testing");
  CHECK(tokenizer->decode(with_bos, true, true) == "<s>I am testing");
}

TEST_CASE("BL-29: characters outside the vocabulary are bytes, or one unknown id, never nothing") {
  const std::vector<std::string> pieces = {kMark, "e", "<", "0", "x", "4", "1", ">", "A"};
  const TokenizerSpec spec = tiny_spm(pieces, true);
  const auto with_bytes = make_tokenizer(spec);
  const TokenId mark = find(spec, kMark);
  CHECK(without_bos(*with_bytes, "\xE4\xBD\xA0") == Ids{mark, 3 + 0xE4, 3 + 0xBD, 3 + 0xA0});
  for (const std::string text :
       {"\xE4\xBD\xA0", "<0x41>", "\xF0\x9F\xA6\x99", "e\xCC\x81", "A<0x41>", " ", "  ", "", "\n"}) {
    const Ids ids = without_bos(*with_bytes, text);
    CHECK(with_bytes->decode(ids) == text);
    CHECK(ids.empty() == text.empty());
  }
  const auto without_bytes = make_tokenizer(tiny_spm(pieces, false));
  CHECK(without_bos(*without_bytes, "\xE4\xBD\xA0") == Ids{3, 0});
  CHECK(without_bytes->decode(Ids{3, 0}) == "\xEF\xBF\xBD");
  CHECK(without_bos(*without_bytes, "\xFF") == Ids{0});
}

TEST_CASE("BL-27, sentencepiece: exactly one BOS; its text is plain text where special tokens are not parsed") {
  TokenizerSpec spec = tiny_spm({kMark, "h", "<", "s", ">", "x"}, true);
  spec.add_bos = true;
  const auto adds = make_tokenizer(spec);
  spec.add_bos = false;
  const auto adds_not = make_tokenizer(spec);
  const EncodeOptions special{.parse_special = true};
  const TokenId mark = find(spec, kMark), h = find(spec, "h");
  CHECK(adds->encode("<s>h", special) == Ids{1, mark, h});
  CHECK(adds_not->encode("<s>h", special) == Ids{1, mark, h});
  CHECK(adds->encode("h", special) == Ids{1, mark, h});
  CHECK(adds->encode("<s>x") == Ids{1, mark, find(spec, "<"), find(spec, "s"), find(spec, ">"), find(spec, "x")});
}

TEST_CASE("sentencepiece: ill-formed bytes and NUL survive, with and without the prefix") {
  TokenizerSpec spec = tiny_spm({kMark, "a", "b", "ab"}, true);
  for (const bool prefix : {true, false}) {
    spec.add_space_prefix = prefix;
    const auto tokenizer = make_tokenizer(spec);
    std::mt19937 rng(11);
    for (int round = 0; round < 500; ++round) {
      std::string text(rng() % 40, '\0');
      for (auto& c : text) c = static_cast<char>(round % 2 == 0 ? rng() : "ab \0\n\xFF"[rng() % 6]);
      if (text.find(kMark) != std::string::npos)
        continue;  // the mark itself reads back as a space, by design of the format
      REQUIRE(tokenizer->decode(without_bos(*tokenizer, text)) == text);
    }
  }
}

TEST_CASE("sentencepiece: fillers, doubles and added tokens keep their ids; broken vocabularies are refused") {
  TokenizerSpec spec = tiny_spm({kMark, "a", "a", "", "[PAD263]", "<add me>", "[PAD1]"}, true);
  spec.kinds[263] = spec.kinds[264] = TokenKind::user_defined;
  const auto tokenizer = make_tokenizer(spec);
  CHECK(without_bos(*tokenizer, "a") == Ids{259, 260});
  CHECK(without_bos(*tokenizer, "a<add me>a") == Ids{259, 260, 264, 260});
  CHECK(tokenizer->decode(Ids{259, 260, 264, 260}) == "a<add me>a");

  const auto fails = [](TokenizerSpec broken, const char* message) {
    CHECK_THROWS_WITH_AS(make_tokenizer(std::move(broken)), doctest::Contains(message), Error);
  };
  TokenizerSpec broken = tiny_spm({"a"}, true);
  broken.pieces[5] = "<0xZZ>";
  fails(broken, "<0xZZ>");
  broken = tiny_spm({"a"}, true);
  broken.kinds[5] = TokenKind::normal;
  fails(broken, "255 byte tokens");
  broken = tiny_spm({"a"}, false);
  broken.kinds[0] = TokenKind::normal;
  broken.unk = kNoToken;
  fails(broken, "without unknown token");
  broken = tiny_spm({"a"}, true);
  broken.scores[5] = std::nanf("");
  fails(broken, "score of token 5 is NaN");
  fails(tiny_spm({std::string(257, 'a')}, true), "257 bytes");
  broken = tiny_spm({"a"}, true);
  broken.scores.pop_back();
  fails(broken, "scores");
}

// The library's ids for a text that it is given as it is, with the space in front that the vocabulary wants.
Ids ids_of_library(const sentencepiece::SentencePieceProcessor& library, const TokenizerSpec& spec,
                   const std::string& text) {
  return library.EncodeAsIds((spec.add_space_prefix && !text.empty() ? " " : "") + text);
}

TEST_CASE("sentencepiece: ids are those of the library, on the LLaMA vocabulary and on made ones") {
  std::mt19937 rng(29);
  const auto compare = [&](const TokenizerSpec& spec, const std::vector<std::string>& parts, int n_rounds) {
    sentencepiece::SentencePieceProcessor library;
    const auto status = library.LoadFromSerializedProto(write_sentencepiece_model(spec));
    REQUIRE_MESSAGE(status.ok(), status.ToString());
    const auto tokenizer = make_tokenizer(spec);
    for (int round = 0; round < n_rounds; ++round) {
      std::string text;
      for (std::size_t n = rng() % 40; n > 0; --n) text += parts[rng() % parts.size()];
      CAPTURE(text);
      REQUIRE(without_bos(*tokenizer, text) == ids_of_library(library, spec, text));
    }
  };
  // Made ones: random pieces over few letters, so that many merges compete; scores in no order, some equal; unused
  // pieces, added ones, marks inside of pieces, characters that are no pieces.
  const std::vector<std::string> letters = {"a", "b", "c", "d", " ", " ", "\xC3\xA9", "\xE4\xBD\xA0", "z", kMark};
  for (int vocabulary = 0; vocabulary < 60; ++vocabulary) {
    std::vector<std::string> pieces = {kMark, "a", "b", "c", "\xC3\xA9"};
    for (int i = 0; i < 60; ++i) {
      std::string piece;
      for (std::size_t n = 2 + rng() % 3; n > 0; --n)
        piece += vocabulary % 2 == 0 ? letters[rng() % 4] : letters[rng() % letters.size()];
      std::string marked;
      for (const char c : piece) marked += c == ' ' ? kMark : std::string(1, c);
      if (std::find(pieces.begin(), pieces.end(), marked) == pieces.end()) pieces.push_back(marked);
    }
    TokenizerSpec spec = tiny_spm(pieces, vocabulary % 3 != 0);
    for (auto& score : spec.scores) score = static_cast<float>(rng() % 40);
    for (std::size_t i = spec.pieces.size() - 20; i < spec.pieces.size(); ++i) {
      if (vocabulary % 4 == 1 && rng() % 12 == 0) spec.kinds[i] = TokenKind::user_defined;
    }
    compare(spec, letters, 40);
  }
  if (const auto path = shared_vocab_path("llama-spm")) {
    const std::vector<std::string> words = {"the",
                                            "Hello",
                                            " world",
                                            "  ",
                                            "    ",
                                            "\n",
                                            "\t",
                                            ".",
                                            "ing",
                                            "\xC3\xA9t\xC3\xA9",
                                            "12",
                                            "0x7f",
                                            "(",
                                            "->",
                                            "_",
                                            "\xE4\xBD\xA0\xE5\xA5\xBD",
                                            "\xF0\x9F\xA6\x99",
                                            "e\xCC\x81",
                                            "\xD0\xBF\xD1\x80\xD0\xB8",
                                            "a",
                                            "A",
                                            "z",
                                            " ",
                                            " t",
                                            "<s>",
                                            "<0x41>",
                                            kMark};
    compare(read_gguf_vocab(*path), words, 1500);
  } else {
    MESSAGE("skipped: no shared vocabulary");
  }
}

TEST_CASE("sentencepiece: a tokenizer.model that banyan writes is one for the library, with the same ids") {
  const auto check = [](const TokenizerSpec& spec, const std::vector<std::string>& texts) {
    const std::string bytes = sentencepiece_file_of(spec);
    sentencepiece::SentencePieceProcessor library;
    REQUIRE(library.LoadFromSerializedProto(bytes).ok());
    CHECK(library.GetPieceSize() == static_cast<int>(spec.pieces.size()));
    CHECK(library.bos_id() == spec.bos);
    CHECK(library.eos_id() == spec.eos.front());
    CHECK(library.unk_id() == spec.unk);
    const SentencepieceFile back = read_sentencepiece_model(bytes, "back");
    CHECK(back.scores == spec.scores);
    CHECK(back.kinds == spec.kinds);
    const auto tokenizer = make_tokenizer(spec);
    for (const std::string& text : texts) {
      CAPTURE(text);
      CHECK(without_bos(*tokenizer, text) == library.EncodeAsIds(text));
    }
  };
  for (const bool space_prefix : {true, false}) {
    TokenizerSpec spec = tiny_spm({kMark, "a", "b", kMark + "a", "ab", "a b", "b" + kMark}, true);
    spec.kinds[spec.pieces.size() - 2] = TokenKind::user_defined;
    spec.kinds.back() = TokenKind::unused;
    spec.add_space_prefix = space_prefix;
    spec.bos = 1;
    spec.eos = {2};
    spec.unk = 0;
    check(spec, {"a", " a b", "aab  ba b", "\xE4\xBD\xA0", "<s>"});
    spec.scores.clear();
    CHECK_THROWS_WITH_AS(sentencepiece_file_of(spec), doctest::Contains("without scores"), Error);
  }
  if (const auto path = shared_vocab_path("llama-spm")) {
    check(read_gguf_vocab(*path), read_inputs(*path));
  } else {
    MESSAGE("skipped: no shared vocabulary");
  }
}

TEST_CASE("sentencepiece: an unused piece is merged through, and is its parts in the end") {
  TokenizerSpec spec = tiny_spm({kMark, "a", "b", "c", "abc", "ab"}, true);
  spec.add_space_prefix = false;
  spec.kinds.back() = TokenKind::unused;
  sentencepiece::SentencePieceProcessor library;
  REQUIRE(library.LoadFromSerializedProto(write_sentencepiece_model(spec)).ok());
  const auto tokenizer = make_tokenizer(spec);
  for (const std::string text : {"abc", "ab", "abab", "cabcab"}) {
    CHECK(without_bos(*tokenizer, text) == library.EncodeAsIds(text));
  }
  CHECK(without_bos(*tokenizer, "ab") == Ids{find(spec, "a"), find(spec, "b")});
  CHECK(without_bos(*tokenizer, "abc") == Ids{find(spec, "abc")});
}

TEST_CASE("sentencepiece: spaces in front, for each part, or not") {
  TokenizerSpec spec = tiny_spm({kMark, "a", kMark + "a"}, true);
  const TokenId mark = find(spec, kMark), a = find(spec, "a"), opened = find(spec, kMark + "a");
  const auto encode = [&](std::string_view text, bool first = true) {
    return make_tokenizer(spec)->encode(text, {.add_bos = false, .parse_special = true, .first = first});
  };
  CHECK(encode("a<s>a") == Ids{opened, 1, opened});
  CHECK(encode(" a") == Ids{mark, opened});
  CHECK(encode("a", false) == Ids{a});
  spec.prefix_each_part = false;
  CHECK(encode("a<s>a") == Ids{opened, 1, a});
  CHECK(encode("<s>a") == Ids{1, a});
  spec.prefix_before_space = false;
  CHECK(encode(" a") == Ids{opened});
  CHECK(encode(kMark + "a") == Ids{opened});
  CHECK(encode("a") == Ids{opened});
}

TEST_CASE("tokenizer.model: equal to the library's own encoding of a trained model; other settings refused by name") {
  const auto dir = std::filesystem::temp_directory_path() / "banyan_test_spm";
  std::filesystem::create_directories(dir);
  const auto corpus = dir / "corpus.txt";
  std::ofstream(corpus) << "the cat sat on the mat\nthe dog ate the cat's hat\n  two spaces here\nx = f(x) + 12;\n";
  const auto train = [&](const std::string& name, const std::string& options) {
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        "--minloglevel=3 --hard_vocab_limit=false --vocab_size=330 --byte_fallback=true --input=" + corpus.string() +
        " --model_prefix=" + (dir / name).string() + " " + options);
    REQUIRE_MESSAGE(status.ok(), status.ToString());
    return (dir / (name + ".model")).string();
  };
  const std::string identity = "--normalization_rule_name=identity ";
  const std::string good =
      train("good", identity + "--model_type=bpe --remove_extra_whitespaces=false --user_defined_symbols=<add>");
  TokenizerSpec spec = read_sentencepiece_file(good);
  CHECK(spec.bos == 1);
  CHECK(spec.eos == Ids{2});
  CHECK(spec.unk == 0);
  CHECK(spec.add_bos);
  const auto tokenizer = make_tokenizer(spec);
  sentencepiece::SentencePieceProcessor processor;
  REQUIRE(processor.Load(good).ok());
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    const auto i = static_cast<std::size_t>(id);
    REQUIRE(spec.pieces[i] == processor.IdToPiece(id));
    REQUIRE(spec.scores[i] == processor.GetScore(id));
    REQUIRE((spec.kinds[i] == TokenKind::byte) == processor.IsByte(id));
    REQUIRE((spec.kinds[i] == TokenKind::control) == processor.IsControl(id));
  }
  for (const std::string text :
       {"", "the cat", "  the  dog ", "a<add>b <s>", "\n\t", "\xE4\xBD\xA0 x", "x = f(12)", "."}) {
    CHECK(without_bos(*tokenizer, text) == processor.EncodeAsIds(text));
    CHECK(tokenizer->decode(without_bos(*tokenizer, text)) == text);
  }
  const auto refused = [&](const std::string& path, const char* setting) {
    CHECK_THROWS_WITH_AS(read_sentencepiece_file(path), doctest::Contains(setting), Error);
  };
  refused(train("unigram", identity + "--model_type=unigram --remove_extra_whitespaces=false"), "model_type 1");
  refused(train("nfkc", "--model_type=bpe --remove_extra_whitespaces=false"), "normalizer_spec \"nmt_nfkc\"");
  refused(train("spaces", identity + "--model_type=bpe"), "remove_extra_whitespaces");

  // Cut anywhere, the file is refused or complete as a message; it never reads past its end.
  std::ifstream file(good, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  for (std::size_t n = 1; n < bytes.size(); n += 7) {
    try {
      read_sentencepiece_model(std::string_view(bytes).substr(0, n), "cut");
    } catch (const Error& e) {
      REQUIRE(e.code() == ErrorCode::bad_file);
    }
  }
  std::filesystem::remove_all(dir);
}
