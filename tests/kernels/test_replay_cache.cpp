// Which steps are recorded and how many records are kept, without a device: a record is a number here.
#include <doctest/doctest.h>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/replay_cache.hpp"

using namespace banyan::kernels::cuda;

namespace {

using Cache = ReplayCache<std::unique_ptr<int>>;  // a record that can only be moved

Cache::Key key_of(std::uint64_t n) {
  Cache::Key key{};
  key[3] = n;
  return key;
}

// What a step of key n comes to: launched, recorded now, or replayed.
enum class Step { launched, recorded, replayed };
Step step(Cache& cache, int n, std::int64_t n_nodes = 10) {
  if (const auto* record = cache.find(key_of(static_cast<std::uint64_t>(n)))) {
    CHECK(**record == n);
    return Step::replayed;
  }
  if (!cache.should_record()) return Step::launched;
  CHECK(**cache.add(std::make_unique<int>(n), n_nodes) == n);
  return Step::recorded;
}

}  // namespace

TEST_CASE("replay: a step that comes for the third time in a row is recorded, then replayed, also after others") {
  Cache cache;
  CHECK(step(cache, 7) == Step::launched);
  CHECK(step(cache, 7) == Step::launched);
  CHECK(step(cache, 8) == Step::launched);
  CHECK(step(cache, 7) == Step::launched);
  CHECK(step(cache, 7) == Step::launched);
  CHECK(step(cache, 7) == Step::recorded);
  CHECK(step(cache, 7) == Step::replayed);
  CHECK(step(cache, 8) == Step::launched);
  CHECK(step(cache, 7) == Step::replayed);
  for (int i = 0; i < 100; ++i) CHECK(step(cache, 100 + i % 2) == Step::launched);  // never three in a row
  CHECK(cache.n_records() == 1);
}

TEST_CASE("replay: records are bounded in number and in nodes; the longest unused go first") {
  Cache cache;
  const auto record = [&](int n, std::int64_t n_nodes) {
    Step last{};
    for (int i = 0; i < Cache::kLikeSteps; ++i) last = step(cache, n, n_nodes);
    return last;
  };
  const int n_most = static_cast<int>(Cache::kMostRecords);
  for (int n = 0; n < n_most; ++n) CHECK(record(n, 10) == Step::recorded);
  CHECK(step(cache, 0) == Step::replayed);
  CHECK(record(1000, 10) == Step::recorded);  // in the place of 1
  CHECK(cache.n_records() == Cache::kMostRecords);
  CHECK(step(cache, 0) == Step::replayed);
  CHECK(step(cache, 2) == Step::replayed);
  CHECK(step(cache, 1) == Step::launched);
  CHECK(record(2000, Cache::kMostNodes - 25) == Step::recorded);  // room for two small ones beside it
  CHECK(cache.n_records() == 3);
  CHECK(step(cache, 2) == Step::replayed);
  CHECK(record(3000, Cache::kMostNodes + 1) == Step::recorded);  // larger than the bound: alone
  CHECK(cache.n_records() == 1);

  std::mt19937 rng(3);
  for (int i = 0; i < 3000; ++i) {
    record(static_cast<int>(rng() % 60), 1 + static_cast<std::int64_t>(rng() % 3000));
    CHECK(cache.n_records() <= Cache::kMostRecords);
    CHECK(cache.n_nodes() <= Cache::kMostNodes);
  }
}
