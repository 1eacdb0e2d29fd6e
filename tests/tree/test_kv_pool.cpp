#include <doctest/doctest.h>
#include <random>
#include <vector>

#include "banyan/error.hpp"
#include "banyan/kv_pool.hpp"

using namespace banyan;

namespace banyan {

// Looks behind the pool's face: its block sets must say what its bitmap says.
struct KvPoolTest {
  static bool is_free(const KvPool& pool, std::int64_t slot) {
    return ((pool.free_[static_cast<std::size_t>(slot / kKvBlock)] >> (slot % kKvBlock)) & 1) != 0;
  }
  static void check_sets(const KvPool& pool) {
    const auto n_blocks = static_cast<std::int64_t>(pool.free_.size());
    std::int64_t next_whole = -1;
    std::int64_t next_partial = -1;
    for (std::int64_t b = n_blocks - 1; b >= 0; --b) {
      const auto mask = pool.free_[static_cast<std::size_t>(b)];
      REQUIRE(pool.whole_.contains(b) == (mask == 0xffff));
      REQUIRE(pool.partial_.contains(b) == (mask != 0 && mask != 0xffff));
      if (mask == 0xffff) next_whole = b;
      if (mask != 0 && mask != 0xffff) next_partial = b;
      REQUIRE(pool.whole_.next(b) == next_whole);
      REQUIRE(pool.partial_.next(b) == next_partial);
    }
  }
};

}  // namespace banyan

namespace {

// The flat scan: who owns each slot, by reading every segment.
void check_against_scan(const KvPool& pool, const std::vector<KvSegment>& segments) {
  std::vector<char> owned(static_cast<std::size_t>(pool.n_slots()), 0);
  std::int64_t n_owned = 0;
  std::int64_t n_wrong = 0;
  const auto own = [&](std::int64_t first, std::int64_t n) {
    REQUIRE(first >= 0);
    REQUIRE(first + n <= pool.n_slots());
    for (std::int64_t slot = first; slot < first + n; ++slot) {
      n_wrong += owned[static_cast<std::size_t>(slot)];
      owned[static_cast<std::size_t>(slot)] = 1;
      ++n_owned;
    }
  };
  for (const KvSegment& s : segments) {
    std::int64_t n_used = 0;
    for (std::size_t i = 0; i < s.runs.size(); ++i) {
      REQUIRE(s.runs[i].n > 0);
      if (i > 0) REQUIRE(s.runs[i - 1].first + s.runs[i - 1].n != s.runs[i].first);  // runs that touch are one
      own(s.runs[i].first, s.runs[i].n);
      n_used += s.runs[i].n;
    }
    REQUIRE(s.n_used == n_used);
    REQUIRE(s.n_reserve >= 0);
    if (s.n_reserve > 0) own(s.runs.back().first + s.runs.back().n, s.n_reserve);
  }
  REQUIRE(pool.n_free() == pool.n_slots() - n_owned);
  for (std::int64_t slot = 0; slot < pool.n_slots(); ++slot) {
    n_wrong += KvPoolTest::is_free(pool, slot) != (owned[static_cast<std::size_t>(slot)] == 0);
  }
  REQUIRE(n_wrong == 0);
}

std::vector<SlotRun> first_slots(const KvSegment& s, std::int64_t n) {
  std::vector<SlotRun> out;
  for (const SlotRun& run : s.runs) {
    if (n == 0) break;
    out.push_back({run.first, std::min(n, run.n)});
    n -= out.back().n;
  }
  return out;
}

void random_history(std::int64_t n_slots, std::int64_t largest, unsigned seed, int n_steps) {
  std::mt19937 rng(seed);
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(n)); };
  KvPool pool(n_slots);
  std::vector<KvSegment> segments(24);
  for (int step = 0; step < n_steps; ++step) {
    KvSegment& s = segments[static_cast<std::size_t>(below(24))];
    const KvSegment before = s;
    switch (below(6)) {
      case 0: pool.trim(s); break;
      case 1: {
        const std::int64_t n_keep = below(3) == 0 ? 0 : below(s.n_used + 1);
        pool.shrink(s, n_keep);
        REQUIRE(s.n_used == n_keep);
        REQUIRE(s.n_reserve == 0);
        REQUIRE(s.runs == first_slots(before, n_keep));
        break;
      }
      default: {
        const std::int64_t n = below(3) == 0 ? below(largest) : below(3);
        const bool enough = pool.n_free() + s.n_reserve >= n;
        REQUIRE(pool.grow(s, n) == enough);
        REQUIRE(s.n_used == before.n_used + (enough ? n : 0));
        REQUIRE(first_slots(s, before.n_used) == before.runs);  // what was given stays where it is
        break;
      }
    }
    check_against_scan(pool, segments);
    if (step % 16 == 0) KvPoolTest::check_sets(pool);
  }
  for (KvSegment& s : segments) pool.shrink(s, 0);
  CHECK(pool.n_free() == n_slots);
  KvPoolTest::check_sets(pool);
}

}  // namespace

TEST_CASE("KvPool: random histories agree with a flat scan of all segments") {
  random_history(1, 3, 1, 200);
  random_history(37, 20, 2, 2000);
  random_history(400, 90, 3, 3000);
  random_history(1024, 200, 4, 3000);
  random_history(1500, 700, 5, 2000);  // two levels of words
}

TEST_CASE("KvPool: the sets of blocks work over several levels of words") {
  const std::int64_t n_slots = kKvBlock * (64 * 64 + 5);
  KvPool pool(n_slots);
  KvSegment all;
  REQUIRE(pool.grow(all, n_slots));
  CHECK(all.runs == std::vector<SlotRun>{{0, n_slots}});
  pool.shrink(all, n_slots - 4 * kKvBlock - 3);
  KvPoolTest::check_sets(pool);
  KvSegment s;
  REQUIRE(pool.grow(s, 4 * kKvBlock));
  CHECK(s.runs == std::vector<SlotRun>{{n_slots - 4 * kKvBlock, 4 * kKvBlock}});
}

TEST_CASE("KvPool: first tokens share a block; growth is contiguous and in whole blocks") {
  KvPool pool(10 * kKvBlock);
  std::vector<KvSegment> leaves(16);
  for (KvSegment& s : leaves) REQUIRE(pool.grow(s, 1));
  for (std::int64_t i = 0; i < 16; ++i) {
    CHECK(leaves[static_cast<std::size_t>(i)].runs == std::vector<SlotRun>{{i, 1}});
  }
  CHECK(pool.n_free() == 9 * kKvBlock);

  REQUIRE(pool.grow(leaves[3], 1));
  CHECK(leaves[3].runs == std::vector<SlotRun>{{3, 1}, {16, 1}});
  CHECK(leaves[3].n_reserve == 15);
  REQUIRE(pool.grow(leaves[3], 20));  // the reserve, then the free block behind it
  CHECK(leaves[3].runs == std::vector<SlotRun>{{3, 1}, {16, 21}});
  CHECK(leaves[3].n_reserve == 11);

  REQUIRE(pool.grow(leaves[15], 3));  // ends at a block's end: the block behind it is taken, so a new place is sought
  CHECK(leaves[15].runs == std::vector<SlotRun>{{15, 1}, {48, 3}});

  KvSegment prompt;
  REQUIRE(pool.grow(prompt, 33));
  CHECK(prompt.runs == std::vector<SlotRun>{{64, 33}});
}

TEST_CASE("KvPool: a long wish goes to the hole that holds it; scattered slots are used before it fails") {
  KvPool pool(8 * kKvBlock);
  std::vector<KvSegment> s(8);
  for (KvSegment& segment : s) REQUIRE(pool.grow(segment, 16));
  for (const std::size_t i : {1U, 4U, 5U, 6U}) pool.shrink(s[i], 0);
  KvSegment a;
  REQUIRE(pool.grow(a, 40));
  CHECK(a.runs == std::vector<SlotRun>{{4 * 16, 40}});
  CHECK(pool.n_free() == 16);
  pool.trim(a);
  CHECK(pool.n_free() == 24);
  for (const std::size_t i : {0U, 2U, 3U}) pool.shrink(s[i], 15);
  KvSegment b;
  CHECK_FALSE(pool.grow(b, 28));
  CHECK(b.runs.empty());
  REQUIRE(pool.grow(b, 27));
  CHECK(pool.n_free() == 0);
  CHECK(b.n_reserve == 0);
  check_against_scan(pool, {s[0], s[2], s[3], s[7], a, b});
}

TEST_CASE("KvPool: leaves that grow side by side have one run for their first token and one for 256 more") {
  KvPool pool(64 * (16 + 256) + 1600);
  KvSegment prompt;
  REQUIRE(pool.grow(prompt, 1000));
  std::vector<KvSegment> leaves(64);
  for (int step = 0; step < 257; ++step) {
    for (KvSegment& leaf : leaves) REQUIRE(pool.grow(leaf, 1));
  }
  for (const KvSegment& leaf : leaves) CHECK(leaf.runs.size() <= 2);
  REQUIRE(pool.grow(prompt, 500));
  CHECK(prompt.runs.size() <= 2);
}

TEST_CASE("KvPool: refuses a pool without slots") {
  CHECK_THROWS_WITH_AS(KvPool(0), "KV pool: needs at least 1 slot, not 0", Error);
  CHECK_THROWS_AS(KvPool(-5), Error);
}
