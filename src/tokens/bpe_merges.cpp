#include "tokens/bpe_merges.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <functional>

namespace banyan {

namespace {

std::uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

// Up to here looking for the best pair by scanning beats the heap: measured on random runs of letters with GPT-2's
// merges, on a busy machine: 1.3 to 2 times at 6 to 64 symbols, near equal at 96.
constexpr std::size_t kShortWord = 64;

}  // namespace

MergeTable::MergeTable(std::size_t n_pairs) : slots_(std::bit_ceil(2 * n_pairs + 1)) {}

std::size_t MergeTable::slot_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  // Fibonacci hashing: the high bits of the product depend on all bits of both ids.
  auto i = static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15u) >> 32) & mask;
  while (slots_[i].pair != kFree && slots_[i].pair != pair) i = (i + 1) & mask;
  return i;
}

void MergeTable::add(TokenId left, TokenId right, Merge merge) {
  Slot& slot = slots_[slot_of(pair_key(left, right))];
  if (slot.pair == kFree) {
    assert(2 * n_used_ < slots_.size());
    ++n_used_;
    slot = {pair_key(left, right), merge};
  } else if (merge.rank < slot.merge.rank) {
    slot.merge = merge;
  }
}

Merge MergeTable::find(TokenId left, TokenId right) const { return slots_[slot_of(pair_key(left, right))].merge; }

void Merger::merge(std::vector<TokenId>& symbols) {
  if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
}

void Merger::merge_short(std::vector<TokenId>& symbols) {
  if (symbols.size() < 2) return;
  pairs_.resize(symbols.size() - 1);
  for (std::size_t i = 0; i < pairs_.size(); ++i) pairs_[i] = table_.find(symbols[i], symbols[i + 1]);
  const auto by_rank = [](const Merge& a, const Merge& b) { return a.rank < b.rank; };
  while (!pairs_.empty()) {
    const auto best = std::min_element(pairs_.begin(), pairs_.end(), by_rank);  // the first of equals
    if (best->rank == Merge::kNone) break;
    const auto i = static_cast<std::size_t>(best - pairs_.begin());
    symbols[i] = best->merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    pairs_.erase(best);
    if (i > 0) pairs_[i - 1] = table_.find(symbols[i - 1], symbols[i]);
    if (i < pairs_.size()) pairs_[i] = table_.find(symbols[i], symbols[i + 1]);
  }
}

void Merger::push(std::uint32_t position, Merge merge) {
  links_[position].merge = merge;
  if (merge.rank == Merge::kNone) return;
  heap_.push_back(static_cast<std::uint64_t>(merge.rank) << 32 | position);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void Merger::merge_long(std::vector<TokenId>& symbols) {
  const auto n = static_cast<std::uint32_t>(symbols.size());
  links_.resize(n);
  heap_.clear();
  for (std::uint32_t i = 0; i < n; ++i) {
    const bool last = i + 1 == n;
    const Merge merge = last ? Merge{} : table_.find(symbols[i], symbols[i + 1]);
    links_[i] = {i == 0 ? kEnd : i - 1, last ? kEnd : i + 1, merge};
    if (merge.rank != Merge::kNone) heap_.push_back(static_cast<std::uint64_t>(merge.rank) << 32 | i);
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());

  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto rank = static_cast<Merge::Rank>(heap_.back() >> 32);
    const auto left = static_cast<std::uint32_t>(heap_.back());
    heap_.pop_back();
    // Stale, unless the pair that stands there by now has the same rank: then it is this pair's turn all the same.
    if (links_[left].merge.rank != rank) continue;

    const std::uint32_t right = links_[left].next;
    const std::uint32_t after = links_[right].next;
    symbols[left] = links_[left].merge.merged;
    symbols[right] = kNoToken;
    links_[right].merge = {};
    links_[left].next = after;
    if (after != kEnd) links_[after].previous = left;
    push(left, after == kEnd ? Merge{} : table_.find(symbols[left], symbols[after]));
    if (const std::uint32_t before = links_[left].previous; before != kEnd) {
      push(before, table_.find(symbols[before], symbols[left]));
    }
  }
  std::erase(symbols, kNoToken);
}

}  // namespace banyan
