#include <doctest/doctest.h>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tokens/bpe_merges.hpp"

using namespace banyan;

namespace {

using Merges = std::map<std::pair<TokenId, TokenId>, Merge>;

// The paper's loop, word for word: find the best pair of all, merge its first place, start again.
std::vector<TokenId> merge_naively(const Merges& merges, std::vector<TokenId> symbols) {
  for (;;) {
    Merge best;
    std::size_t best_at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = merges.find({symbols[i], symbols[i + 1]});
      if (it != merges.end() && it->second.rank < best.rank) {
        best = it->second;
        best_at = i;
      }
    }
    if (best.rank == Merge::kNone) return symbols;
    symbols[best_at] = best.merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

}  // namespace

TEST_CASE("Merger: equal to the naive loop on random merges and words, short and long, ranks shared or not") {
  std::mt19937 rng(3);
  for (int round = 0; round < 60; ++round) {
    const TokenId n_letters = 2 + static_cast<TokenId>(rng() % 4);
    const std::size_t n_merges = 1 + rng() % 40;
    const auto ranks_each = static_cast<Merge::Rank>(1 + (round % 2) * (rng() % 5));
    MergeTable table(n_merges);
    Merges merges;
    TokenId n_symbols = n_letters;
    while (merges.size() < n_merges) {
      const auto pair = std::make_pair(static_cast<TokenId>(rng() % static_cast<unsigned>(n_symbols)),
                                       static_cast<TokenId>(rng() % static_cast<unsigned>(n_symbols)));
      const Merge merge{static_cast<Merge::Rank>(merges.size()) / ranks_each, n_symbols};
      if (!merges.emplace(pair, merge).second) continue;
      table.add(pair.first, pair.second, merge);
      ++n_symbols;
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
  MergeTable table(4);
  table.add(1, 2, {0, 10});
  table.add(2, 1, {5, 11});
  table.add(1, 2, {2, 12});
  table.add(2, 1, {3, 13});
  CHECK(table.find(1, 2).merged == 10);
  CHECK(table.find(2, 1).merged == 13);
  CHECK(table.find(1, 1).rank == Merge::kNone);
}
