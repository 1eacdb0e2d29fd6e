// The merge loop of byte-pair encoding, on ids. Knows no text. The table is immutable after the last add(); the scratch
// belongs to one call.
//
// Rule (Sennrich et al., arXiv 1508.07909): as long as some neighbours have a merge, apply the one of the lowest rank,
// leftmost first. A list of merges ranks each pair by its place; sentencepiece ranks pairs by the score of what they
// make, so several may have one rank. Done with a heap of (rank, position), so n symbols take O(n log n), however long
// a word is.
#pragma once

#include <cstdint>
#include <vector>

#include "banyan/types.hpp"

namespace banyan {

struct Merge {
  using Rank = std::uint32_t;
  static constexpr Rank kNone = 0xFFFFFFFFu;  // the two do not merge
  Rank rank = kNone;
  TokenId merged = kNoToken;
};

class MergeTable {
 public:
  explicit MergeTable(std::size_t n_pairs);

  // At most n_pairs times. A pair that is there already keeps its better rank.
  void add(TokenId left, TokenId right, Merge merge);
  Merge find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    std::uint64_t pair = kFree;
    Merge merge;
  };
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};  // ids are not negative, so no pair looks like this
  std::size_t slot_of(std::uint64_t pair) const;             // where it is, or the free slot where it belongs

  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  std::size_t n_used_ = 0;
};

// Merges the symbols in place. Keeps its memory from word to word.
class Merger {
 public:
  explicit Merger(const MergeTable& table) : table_(table) {}
  void merge(std::vector<TokenId>& symbols);

 private:
  struct Link {
    std::uint32_t previous, next;  // positions; kEnd at either end
    Merge merge;                   // of the pair that starts here
  };
  static constexpr std::uint32_t kEnd = 0xFFFFFFFFu;

  void merge_short(std::vector<TokenId>& symbols);
  void merge_long(std::vector<TokenId>& symbols);
  void push(std::uint32_t position, Merge merge);

  const MergeTable& table_;
  std::vector<Link> links_;
  std::vector<std::uint64_t> heap_;  // rank << 32 | position of the left symbol, best at the front
  std::vector<Merge> pairs_;
};

}  // namespace banyan
