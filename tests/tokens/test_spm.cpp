#include <algorithm>
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
  broken = tiny_spm({"a"}, true);
  broken.kinds[0] = TokenKind::normal;
  broken.unk = kNoToken;
  fails(broken, "without unknown token");
  broken = tiny_spm({"a"}, true);
  broken.scores.pop_back();
  fails(broken, "scores");
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
  for (const std::string text : {"the cat", "  the  dog ", "a<add>b <s>", "\n\t", "\xE4\xBD\xA0 x", "x = f(12)", "."}) {
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
