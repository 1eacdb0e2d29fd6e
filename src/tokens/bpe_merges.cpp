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

MergeTable::MergeTable(std::size_t n_merges) : slots_(std::bit_ceil(2 * n_merges + 1)) { merged_.reserve(n_merges); }

std::size_t MergeTable::slot_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  // Fibonacci hashing: the high bits of the product depend on all bits of both ids.
  auto i = static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15u) >> 32) & mask;
  while (slots_[i].pair != kFree && slots_[i].pair != pair) i = (i + 1) & mask;
  return i;
}

void MergeTable::add(TokenId left, TokenId right, TokenId merged) {
  assert(2 * merged_.size() < slots_.size());
  Slot& slot = slots_[slot_of(pair_key(left, right))];
  if (slot.pair == kFree) slot = {pair_key(left, right), static_cast<Rank>(merged_.size())};
  merged_.push_back(merged);
}

MergeTable::Rank MergeTable::rank(TokenId left, TokenId right) const {
  return slots_[slot_of(pair_key(left, right))].rank;
}

void Merger::merge(std::vector<TokenId>& symbols) {
  if (symbols.size() <= kShortWord) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
}

void Merger::merge_short(std::vector<TokenId>& symbols) {
  if (symbols.size() < 2) return;
  ranks_.resize(symbols.size() - 1);
  for (std::size_t i = 0; i < ranks_.size(); ++i) ranks_[i] = table_.rank(symbols[i], symbols[i + 1]);
  while (!ranks_.empty()) {
    const auto best = std::min_element(ranks_.begin(), ranks_.end());  // the first of equals
    if (*best == MergeTable::kNoRank) break;
    const std::size_t i = static_cast<std::size_t>(best - ranks_.begin());
    symbols[i] = table_.merged(*best);
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks_.erase(best);
    if (i > 0) ranks_[i - 1] = table_.rank(symbols[i - 1], symbols[i]);
    if (i < ranks_.size()) ranks_[i] = table_.rank(symbols[i], symbols[i + 1]);
  }
}

void Merger::push(std::uint32_t position, MergeTable::Rank rank) {
  links_[position].rank = rank;
  if (rank == MergeTable::kNoRank) return;
  heap_.push_back(static_cast<std::uint64_t>(rank) << 32 | position);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void Merger::merge_long(std::vector<TokenId>& symbols) {
  const auto n = static_cast<std::uint32_t>(symbols.size());
  links_.resize(n);
  heap_.clear();
  for (std::uint32_t i = 0; i < n; ++i) {
    const bool last = i + 1 == n;
    const MergeTable::Rank rank = last ? MergeTable::kNoRank : table_.rank(symbols[i], symbols[i + 1]);
    links_[i] = {i == 0 ? kEnd : i - 1, last ? kEnd : i + 1, rank};
    if (rank != MergeTable::kNoRank) heap_.push_back(static_cast<std::uint64_t>(rank) << 32 | i);
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());

  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto rank = static_cast<MergeTable::Rank>(heap_.back() >> 32);
    const auto left = static_cast<std::uint32_t>(heap_.back());
    heap_.pop_back();
    // A rank names one pair, so an entry is stale exactly if the pair at its place has another rank by now.
    if (links_[left].rank != rank) continue;

    const std::uint32_t right = links_[left].next;
    const std::uint32_t after = links_[right].next;
    symbols[left] = table_.merged(rank);
    symbols[right] = kNoToken;
    links_[right].rank = MergeTable::kNoRank;
    links_[left].next = after;
    if (after != kEnd) links_[after].previous = left;
    push(left, after == kEnd ? MergeTable::kNoRank : table_.rank(symbols[left], symbols[after]));
    if (const std::uint32_t before = links_[left].previous; before != kEnd) {
      push(before, table_.rank(symbols[before], symbols[left]));
    }
  }
  std::erase(symbols, kNoToken);
}

}  // namespace banyan
