// One pool of KV token slots: the address book. Layer 2. It knows neither tokens nor bytes: the bytes live in a
// KvStore of the backend, laid out per layer as [k | v][n_heads_kv][slot][head_dim].
//
// A segment is a list of slot runs that may begin and end anywhere. Slots are handed out so that growing segments stay
// contiguous: a segment's first token comes from a block shared with other one-token segments; further growth takes
// whole blocks of kKvBlock slots, next to the last run where that is free. Runs that touch are one run.
// Invariants: every slot is free, or in exactly one segment (used or in its reserve). No allocation after warm-up.
#pragma once

#include <cstdint>
#include <span>
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

  // Grows `segment` by n slots; all or nothing. False when the pool has not enough free slots now.
  bool grow(KvSegment& segment, std::int64_t n);
  // Gives back everything behind the first n_keep slots (0: all), the reserve included.
  void shrink(KvSegment& segment, std::int64_t n_keep);
  // Takes the unused reserve of a segment back, so that others can use it.
  void trim(KvSegment& segment);

  std::int64_t n_slots() const { return n_slots_; }
  std::int64_t n_free() const { return n_free_; }  // slots in no segment and in no reserve

 private:
  friend struct KvPoolTest;
  std::int64_t n_slots_ = 0, n_free_ = 0;
  // implementation to be completed in src/tree/kv_pool.cpp
};

}  // namespace banyan
