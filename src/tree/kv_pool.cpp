#include "banyan/kv_pool.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <string>

#include "banyan/error.hpp"

namespace banyan {

namespace {

constexpr std::uint16_t kAllFree = 0xffff;
static_assert(kKvBlock == 16, "free_ holds one 16-bit word a block");
constexpr std::int64_t kWordBits = 64;
// A sample of 256 tokens stays one run. With one block at a time, 1,024 leaves that grow side by side had a run per 16
// tokens, and the plan's run list outgrew the level 2 cache.
constexpr std::int64_t kRoomBlocks = 16;
constexpr int kRoomTries = 8;  // of places, before the first free block is taken

std::int64_t div_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t checked_n_slots(std::int64_t n_slots) {
  if (n_slots < 1) throw Error(ErrorCode::usage, "KV pool", "needs at least 1 slot, not " + std::to_string(n_slots));
  return n_slots;
}

}  // namespace

KvPool::BlockSet::BlockSet(std::int64_t n_blocks) : n_blocks_(n_blocks) {
  for (std::int64_t n = n_blocks;;) {
    n = div_up(n, kWordBits);
    levels_.emplace_back(static_cast<std::size_t>(n), 0);
    if (n == 1) break;
  }
}

void KvPool::BlockSet::assign(std::int64_t block, bool member) {
  auto bit = static_cast<std::size_t>(block);
  for (auto& level : levels_) {
    std::uint64_t& word = level[bit / kWordBits];
    const bool was_empty = word == 0;
    const std::uint64_t mask = std::uint64_t{1} << (bit % kWordBits);
    word = member ? word | mask : word & ~mask;
    // The level above only says whether the word is zero.
    if (was_empty == (word == 0)) return;
    bit /= kWordBits;
  }
}

bool KvPool::BlockSet::contains(std::int64_t block) const {
  if (block < 0 || block >= n_blocks_) return false;
  const auto bit = static_cast<std::size_t>(block);
  return ((levels_[0][bit / kWordBits] >> (bit % kWordBits)) & 1) != 0;
}

std::int64_t KvPool::BlockSet::next(std::int64_t from) const {
  auto bit = static_cast<std::size_t>(from);
  for (std::size_t level = 0; level < levels_.size(); ++level) {
    if (bit / kWordBits < levels_[level].size()) {
      const std::uint64_t rest = levels_[level][bit / kWordBits] >> (bit % kWordBits);
      if (rest != 0) {
        bit += static_cast<std::size_t>(std::countr_zero(rest));
        while (level > 0) {
          --level;
          bit = bit * kWordBits + static_cast<std::size_t>(std::countr_zero(levels_[level][bit]));
        }
        return static_cast<std::int64_t>(bit);
      }
    }
    bit = bit / kWordBits + 1;
  }
  return -1;
}

std::int64_t KvPool::BlockSet::run_length(std::int64_t from, std::int64_t limit) const {
  limit = std::min(limit, n_blocks_ - from);
  std::int64_t n = 0;
  while (n < limit) {
    const auto bit = static_cast<std::size_t>(from + n);
    const std::uint64_t rest = levels_[0][bit / kWordBits] >> (bit % kWordBits);
    const std::int64_t ones = std::countr_one(rest);
    n += ones;
    if (ones < kWordBits - static_cast<std::int64_t>(bit % kWordBits)) break;
  }
  return std::min(n, limit);
}

KvPool::KvPool(std::int64_t n_slots)
    : n_slots_(checked_n_slots(n_slots)),
      free_(static_cast<std::size_t>(div_up(n_slots, kKvBlock)), 0),
      whole_(div_up(n_slots, kKvBlock)),
      partial_(div_up(n_slots, kKvBlock)) {
  mark(0, n_slots, true);
}

// Marks slots [first, first + n) free or taken and keeps the block sets and the count.
void KvPool::mark(std::int64_t first, std::int64_t n, bool free) {
  for (std::int64_t slot = first; slot < first + n;) {
    const std::int64_t block = slot / kKvBlock;
    const std::int64_t end = std::min(first + n, (block + 1) * kKvBlock);
    const auto mask = static_cast<std::uint16_t>(((1u << (end - slot)) - 1u) << (slot % kKvBlock));
    std::uint16_t& word = free_[static_cast<std::size_t>(block)];
    const std::uint16_t before = word;
    assert((before & mask) == (free ? 0 : mask));
    word = static_cast<std::uint16_t>(before ^ mask);
    if ((before == kAllFree) != (word == kAllFree)) whole_.assign(block, word == kAllFree);
    const bool was_partial = before != 0 && before != kAllFree;
    const bool is_partial = word != 0 && word != kAllFree;
    if (was_partial != is_partial) partial_.assign(block, is_partial);
    slot = end;
  }
  n_free_ += free ? n : -n;
}

// Takes free slots [first, first + n_taken) for a segment without reserve: n_used in use, the others its reserve.
void KvPool::take(KvSegment& segment, std::int64_t first, std::int64_t n_taken, std::int64_t n_used) {
  assert(segment.n_reserve == 0 && n_used >= 1 && n_used <= n_taken);
  if (!segment.runs.empty() && segment.runs.back().first + segment.runs.back().n == first) {
    segment.runs.back().n += n_used;
  } else {
    segment.runs.push_back({first, n_used});
  }
  mark(first, n_taken, false);
  segment.n_used += n_used;
  segment.n_reserve = n_taken - n_used;
}

bool KvPool::grow(KvSegment& segment, std::int64_t n) {
  assert(n >= 0);
  if (n > n_free_ + segment.n_reserve) return false;
  const std::int64_t from_reserve = std::min(n, segment.n_reserve);
  if (from_reserve > 0) {
    segment.runs.back().n += from_reserve;
    segment.n_used += from_reserve;
    segment.n_reserve -= from_reserve;
    n -= from_reserve;
  }
  if (n == 0) return true;
  if (segment.n_used == 0 && n == 1) {
    const std::int64_t shared = partial_.next(0);
    const std::int64_t block = shared >= 0 ? shared : whole_.next(0);
    take(segment, block * kKvBlock + std::countr_zero(free_[static_cast<std::size_t>(block)]), 1, 1);
    return true;
  }
  n -= extend_in_place(segment, n);
  if (n > 0 && n <= kKvBlock && segment.n_used > 0) n -= take_with_room(segment, n);
  if (n > 0) n -= take_blocks(segment, n);
  take_scattered(segment, n);
  return true;
}

// Takes the free rest of the block that the segment ends in, and whole blocks behind; returns how many of n it got.
std::int64_t KvPool::extend_in_place(KvSegment& segment, std::int64_t n) {
  if (segment.runs.empty()) return 0;
  const std::int64_t n_before = segment.n_used;
  std::int64_t end = segment.runs.back().first + segment.runs.back().n;
  if (end % kKvBlock != 0) {
    const std::int64_t rest = kKvBlock - end % kKvBlock;
    if (free_[static_cast<std::size_t>(end / kKvBlock)] >> (end % kKvBlock) != (1 << rest) - 1) return 0;
    const std::int64_t used = std::min(n, rest);
    take(segment, end, rest, used);
    n -= used;
    end += rest;
  }
  if (n > 0 && whole_.contains(end / kKvBlock)) {
    const std::int64_t blocks = whole_.run_length(end / kKvBlock, div_up(n, kKvBlock));
    take(segment, end, blocks * kKvBlock, std::min(n, blocks * kKvBlock));
  }
  return segment.n_used - n_before;
}

// First hole of n_blocks whole blocks; -1: none.
std::int64_t KvPool::find_hole(std::int64_t n_blocks) const {
  for (std::int64_t block = whole_.next(0); block >= 0;) {
    const std::int64_t length = whole_.run_length(block, n_blocks);
    if (length == n_blocks) return block;
    block = whole_.next(block + length);
  }
  return -1;
}

// Takes whole blocks while there are any: the first hole with room for all of n, else hole after hole. Returns how many
// slots of n it got.
std::int64_t KvPool::take_blocks(KvSegment& segment, std::int64_t n) {
  const std::int64_t n_before = segment.n_used;
  std::int64_t missing = n;
  const std::int64_t hole = find_hole(div_up(n, kKvBlock));
  for (std::int64_t block = hole >= 0 ? hole : whole_.next(0); missing > 0 && block >= 0; block = whole_.next(0)) {
    const std::int64_t slots = whole_.run_length(block, div_up(missing, kKvBlock)) * kKvBlock;
    take(segment, block * kKvBlock, slots, std::min(missing, slots));
    missing = n - (segment.n_used - n_before);
  }
  return n - missing;
}

// Takes a block with free ones behind it, for n <= kKvBlock slots: all, or none where a few places tried have no room.
std::int64_t KvPool::take_with_room(KvSegment& segment, std::int64_t n) {
  const auto n_blocks = static_cast<std::int64_t>(free_.size());
  if (n_blocks < kRoomBlocks) return 0;
  for (int i = 0; i < kRoomTries; ++i) {
    room_cursor_ -= kRoomBlocks;
    if (room_cursor_ < 0) room_cursor_ = n_blocks - kRoomBlocks;
    if (whole_.run_length(room_cursor_, kRoomBlocks) == kRoomBlocks) {
      take(segment, room_cursor_ * kKvBlock, kKvBlock, n);
      return n;
    }
  }
  return 0;
}

void KvPool::take_scattered(KvSegment& segment, std::int64_t n) {
  while (n > 0) {
    const std::int64_t block = partial_.next(0);
    assert(block >= 0);
    const unsigned mask = free_[static_cast<std::size_t>(block)];
    const int begin = std::countr_zero(mask);
    const std::int64_t used = std::min<std::int64_t>(n, std::countr_one(mask >> begin));
    take(segment, block * kKvBlock + begin, used, used);
    n -= used;
  }
}

void KvPool::shrink(KvSegment& segment, std::int64_t n_keep) {
  assert(n_keep >= 0 && n_keep <= segment.n_used);
  trim(segment);
  while (segment.n_used > n_keep) {
    SlotRun& last = segment.runs.back();
    const std::int64_t n = std::min(last.n, segment.n_used - n_keep);
    last.n -= n;
    segment.n_used -= n;
    mark(last.first + last.n, n, true);
    if (last.n == 0) segment.runs.pop_back();
  }
}

void KvPool::trim(KvSegment& segment) {
  if (segment.n_reserve == 0) return;
  mark(segment.runs.back().first + segment.runs.back().n, segment.n_reserve, true);
  segment.n_reserve = 0;
}

}  // namespace banyan
