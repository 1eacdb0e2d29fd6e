#include <cstdio>
#include <ctime>
#include <doctest/doctest.h>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "banyan/tokenizer.hpp"
#include "tokens/gguf_vocab.hpp"

using namespace banyan;
using namespace banyan::test;

using Ids = std::vector<TokenId>;

// The bound is loose, for sanitizers and busy machines: a quadratic encoder needs hours. Times are printed.
TEST_CASE("1 MB is encoded in near linear time, prose, code and one word alike") {
  constexpr std::size_t kBytes = 1'000'000;
  std::mt19937 rng(23);
  const auto repeated = [&](const std::string& unit) {
    std::string text;
    while (text.size() < kBytes) text += unit;
    return text.substr(0, kBytes);
  };
  std::string letters(kBytes, 'a');
  for (auto& c : letters) c = static_cast<char>('a' + rng() % 26);
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"prose", repeated("It was the best of times, it was the worst of times, it was the age of wisdom. ")},
      {"code", repeated("    for (int i = 0; i < n; ++i) sum += a[i];\n")},
      {"one letter", std::string(kBytes, 'a')},
      {"random letters", letters},
      {"spaces", std::string(kBytes, ' ')},
      {"digits", repeated("0123456789")},
      {"less-than signs", std::string(kBytes, '<')},
      {"bytes FF", std::string(kBytes, '\xFF')}};
  for (const std::string name : {"gpt-2", "llama-bpe", "llama-spm"}) {
    const auto tokenizer = load_shared_vocab(name);
    if (!tokenizer) {
      MESSAGE("skipped: ", name);
      continue;
    }
    for (const auto& [label, text] : texts) {
      const std::clock_t begin = std::clock();  // time of this process alone, however busy the machine is
      const Ids ids = tokenizer->encode(text, {.parse_special = true});
      const double ms = 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
      std::printf("%s, %s: %.0f ms, %zu tokens\n", name.c_str(), label.c_str(), ms, ids.size());
      CHECK(ms < 20'000);
      CHECK(tokenizer->decode(ids) == text);
    }
  }
}
