#include <doctest/doctest.h>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tokens/bpe_merges.hpp"

using namespace banyan;

namespace {

using Merges = std::map<std::pair<TokenId, TokenId>, std::pair<std::size_t, TokenId>>;  // pair → rank, result

// The paper's loop, word for word: find the best pair of all, merge its first place, start again.
std::vector<TokenId> merge_naively(const Merges& merges, std::vector<TokenId> symbols) {
  for (;;) {
    std::size_t best_rank = merges.size(), best_at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = merges.find({symbols[i], symbols[i + 1]});
      if (it != merges.end() && it->second.first < best_rank) {
        best_rank = it->second.first;
        best_at = i;
      }
    }
    if (best_rank == merges.size()) return symbols;
    symbols[best_at] = merges.at({symbols[best_at], symbols[best_at + 1]}).second;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

}  // namespace

TEST_CASE("Merger: equal to the naive loop on random merges and words, short and long") {
  std::mt19937 rng(3);
  for (int round = 0; round < 60; ++round) {
    const TokenId n_letters = 2 + static_cast<TokenId>(rng() % 4);
    const std::size_t n_merges = 1 + rng() % 40;
    MergeTable table(n_merges);
    Merges merges;
    TokenId n_symbols = n_letters;
    while (merges.size() < n_merges) {
      const auto pair = std::make_pair(static_cast<TokenId>(rng() % static_cast<unsigned>(n_symbols)),
                                       static_cast<TokenId>(rng() % static_cast<unsigned>(n_symbols)));
      if (!merges.emplace(pair, std::make_pair(merges.size(), n_symbols)).second) continue;
      table.add(pair.first, pair.second, n_symbols++);
    }
    Merger merger(table);
    for (int word = 0; word < 30; ++word) {
      std::vector<TokenId> symbols(rng() % 150);
      for (auto& s : symbols) s = static_cast<TokenId>(rng() % static_cast<unsigned>(n_letters));
      const std::vector<TokenId> expected = merge_naively(merges, symbols);
      merger.merge(symbols);
      REQUIRE(symbols == expected);
    }
  }
}

TEST_CASE("MergeTable: a pair given twice keeps its better rank; unknown pairs have none") {
  MergeTable table(3);
  table.add(1, 2, 10);
  table.add(2, 1, 11);
  table.add(1, 2, 12);
  CHECK(table.merged(table.rank(1, 2)) == 10);
  CHECK(table.merged(table.rank(2, 1)) == 11);
  CHECK(table.rank(1, 1) == MergeTable::kNoRank);
}
