// One pool of KV token slots: the address book. Layer 2. It knows neither tokens nor bytes: the bytes live in a
// KvStore of the backend, laid out per layer as [k | v][n_heads_kv][slot][head_dim].
//
// A segment is a list of slot runs that may begin and end anywhere. Slots are handed out so that growing segments stay
// contiguous: a segment that starts with one token takes it from a block shared with other one-token segments; growth
// takes whole blocks of kKvBlock slots, right behind the last run where they are free. Where they are not, a growing
// segment moves on to a place with kRoomBlocks free blocks, sought from the top of the pool down, so that it can go on
// there for long; what is larger than a block goes to the first hole that holds it, from the bottom up. What a whole
// block has beyond the wish is the segment's reserve. When no whole block is left, single free slots are taken wherever
// they are: grow() fails only for lack of slots, never for where they lie. Runs that touch are one run.
// Invariants: every slot is free, or in exactly one segment (used or in its reserve). The pool itself allocates in its
// constructor only; the run list of a segment may grow.
// Threads: none, as for the tree that uses it.
#pragma once

#include <cstdint>
#include <vector>

#include "banyan/attention_types.hpp"

namespace banyan {

constexpr std::int64_t kKvBlock = 16;  // slots; one cache line of f32 per dim in a key tile

// The slots of one node, in token order.
struct KvSegment {
  std::vector<SlotRun> runs;   // in use, in token order
  std::int64_t n_used = 0;     // sum of runs[i].n
  std::int64_t n_reserve = 0;  // free slots right behind the last run that belong to this segment
};

class KvPool {
 public:
  explicit KvPool(std::int64_t n_slots);  // throws Error{usage} if n_slots < 1

  // Grows `segment` by n >= 0 slots; all or nothing. False, and nothing changed, when n_free() and the segment's own
  // reserve together are fewer than n.
  bool grow(KvSegment& segment, std::int64_t n);
  // Gives back everything behind the first n_keep slots (0: all), the reserve included.
  void shrink(KvSegment& segment, std::int64_t n_keep);
  // Takes the unused reserve of a segment back, so that others can use it.
  void trim(KvSegment& segment);

  std::int64_t n_slots() const { return n_slots_; }
  std::int64_t n_free() const { return n_free_; }  // slots in no segment and in no reserve

 private:
  friend struct KvPoolTest;

  // A set of block numbers as bits, under levels of bits that say which words below are not zero: insert, erase and
  // "next member from here" touch one word a level (3 levels for 4 million slots).
  class BlockSet {
   public:
    explicit BlockSet(std::int64_t n_blocks);
    void assign(std::int64_t block, bool member);
    bool contains(std::int64_t block) const;
    std::int64_t next(std::int64_t from) const;                            // smallest member >= from; -1: none
    std::int64_t run_length(std::int64_t from, std::int64_t limit) const;  // members from, from + 1 ...; <= limit

   private:
    std::int64_t n_blocks_;
    std::vector<std::vector<std::uint64_t>> levels_;
  };

  void mark(std::int64_t first, std::int64_t n, bool free);
  void take(KvSegment& segment, std::int64_t first, std::int64_t n_taken, std::int64_t n_used);
  std::int64_t extend_in_place(KvSegment& segment, std::int64_t n);
  std::int64_t find_hole(std::int64_t n_blocks) const;
  std::int64_t take_blocks(KvSegment& segment, std::int64_t n);
  std::int64_t take_with_room(KvSegment& segment, std::int64_t n);
  void take_scattered(KvSegment& segment, std::int64_t n);

  std::int64_t n_slots_ = 0, n_free_ = 0;
  std::vector<std::uint16_t> free_;  // [n_blocks] bit i: slot block * kKvBlock + i is free
  BlockSet whole_;                   // blocks with all slots free
  BlockSet partial_;                 // blocks with some slots free, but not all
  std::int64_t room_cursor_ = 0;     // block where the last segment with room ahead was placed
};

}  // namespace banyan
