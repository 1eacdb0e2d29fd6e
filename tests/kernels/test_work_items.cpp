// Work items of the CUDA attention, on the CPU: an interpreter does what the kernels do with them, in double precision,
// and must come to the path softmax.
#include <algorithm>
#include <array>
#include <cmath>
#include <doctest/doctest.h>
#include <map>

#include "bench/count_allocations.hpp"
#include "kernels/cuda/work_items.hpp"
#include "tests/kernels/forest.hpp"

using namespace banyan;
using namespace banyan::kernels;
using namespace banyan::kernels::cuda;

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Which keys went into each partial of each row, in order, as slots.
using RowKeys = std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int64_t>>;  // by (row, ordinal)

struct Interpreter {
  const Forest& forest;
  const Calls& calls;
  const WorkItems& work;
  std::int64_t group, d;

  struct State {
    double maximum = -INFINITY, sum = 0;
    std::vector<double> o;
  };
  std::vector<State> slots;    // [n_partials, n_heads_q]
  std::vector<double> o, lse;  // results; NaN where nothing was written
  RowKeys keys;
  bool computes;  // or only follows the keys, which is quick enough for long nodes

  Interpreter(const Forest& f, const Calls& c, const WorkItems& w, bool computes)
      : forest(f),
        calls(c),
        work(w),
        group(f.shape.n_heads_q / f.shape.n_heads_kv),
        d(f.shape.head_dim),
        computes(computes) {
    slots.resize(at(work.n_partials() * f.shape.n_heads_q));
    o.assign(f.q.size(), NAN);
    lse.assign(at(f.n_rows() * f.shape.n_heads_q), NAN);
    for (int phase = 0; phase < work.n_phases(); ++phase) {
      for (int kind = 0; kind < kTileKinds; ++kind) run_launch(phase, kind);
    }
    for (const std::int32_t row : work.merge_rows()) merge(row);
  }

  void run_launch(int phase, int kind) {
    const auto range = work.header().items[phase][kind];
    for (std::int32_t i = range.begin; i < range.end; ++i) {
      const WorkItem& item = work.items()[at(i)];
      REQUIRE(item.n_keys > 0);
      REQUIRE(item.n_packed > 0);
      REQUIRE(item.n_packed <= kTileRows[at(kind)]);
      REQUIRE((item.continues == 1) == (phase > 0));
      // Longest first, up to the classes of length.
      if (i > range.begin) CHECK(item.n_keys <= work.items()[at(i - 1)].n_keys * 1.26 + 64);
      for (std::int64_t head = 0; head < forest.shape.n_heads_kv; ++head) {
        for (std::int32_t p = 0; p < item.n_packed; ++p) run_row(item, head, item.packed_begin + p);
      }
    }
  }

  void run_row(const WorkItem& item, std::int64_t kv_head, std::int32_t packed) {
    const auto row = static_cast<std::int32_t>(item.row_begin + packed / group);
    const std::int64_t head = kv_head * group + packed % group;
    const AttentionCall& call = calls.calls[at(item.call)];
    REQUIRE(row >= call.row_begin);
    REQUIRE(row < call.row_end);
    const RowInfo& info = work.rows()[at(row)];
    const std::int64_t n = std::clamp<std::int64_t>(info.position + 1 - item.kv_position, 0, item.n_keys);
    if (n == 0) return;
    const bool is_result = info.n_partials == 1 && info.last_call == item.call;
    State fresh;
    fresh.o.assign(at(d), 0.0);
    const std::int64_t slot = (info.partial_begin + item.ordinal) * forest.shape.n_heads_q + head;
    if (!is_result || item.continues != 0) REQUIRE(item.ordinal < info.n_partials);
    State state = item.continues != 0 ? slots[at(slot)] : fresh;
    REQUIRE(std::ssize(state.o) == d);  // a state that is continued was stored before
    std::int64_t run = item.run, offset = item.run_offset;
    std::vector<std::int64_t>& followed = keys[{row, item.ordinal}];
    for (std::int64_t k = 0; k < n; ++k, ++offset) {
      for (; offset >= calls.runs[at(run)].n; offset = 0) REQUIRE(++run < call.run_end);
      const std::int64_t key = calls.runs[at(run)].first + offset;
      if (head == 0) followed.push_back(key);
      if (computes) add(state, row, head, kv_head, key);
    }
    if (is_result) {
      finish(row, head, state);
    } else {
      slots[at(slot)] = state;
    }
  }

  void add(State& s, std::int64_t row, std::int64_t head, std::int64_t kv_head, std::int64_t key) const {
    const float* q = forest.q.data() + (row * forest.shape.n_heads_q + head) * d;
    double score = 0;
    for (std::int64_t i = 0; i < d; ++i) score += double{q[i]} * forest.element(0, kv_head, key, i);
    score *= double{forest.scale()};
    const double larger = std::max(s.maximum, score), old = std::exp(s.maximum - larger), p = std::exp(score - larger);
    s.maximum = larger;
    s.sum = s.sum * old + p;
    for (std::int64_t i = 0; i < d; ++i) s.o[at(i)] = s.o[at(i)] * old + p * forest.element(1, kv_head, key, i);
  }

  void merge(std::int32_t row) {
    const RowInfo& info = work.rows()[at(row)];
    for (std::int64_t head = 0; head < forest.shape.n_heads_q; ++head) {
      State sum;
      sum.o.assign(at(d), 0.0);
      for (std::int32_t i = 0; i < info.n_partials; ++i) {
        const State& s = slots[at((info.partial_begin + i) * forest.shape.n_heads_q + head)];
        REQUIRE(!s.o.empty());  // was stored
        const double larger = std::max(s.maximum, sum.maximum);
        const double a = std::exp(sum.maximum - larger), b = std::exp(s.maximum - larger);
        for (std::int64_t j = 0; j < d; ++j) sum.o[at(j)] = sum.o[at(j)] * a + s.o[at(j)] * b;
        sum.sum = sum.sum * a + s.sum * b;
        sum.maximum = larger;
      }
      finish(row, head, sum);
    }
  }

  void finish(std::int64_t row, std::int64_t head, const State& s) {
    const std::int64_t i = row * forest.shape.n_heads_q + head;
    REQUIRE(std::isnan(lse[at(i)]));  // written once
    lse[at(i)] = s.maximum + std::log(s.sum);
    for (std::int64_t j = 0; j < d; ++j) o[at(i * d + j)] = s.sum == 0 ? 0 : s.o[at(j)] / s.sum;
  }
};

void check_near(const std::vector<double>& got, const std::vector<double>& right) {
  REQUIRE(got.size() == right.size());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == right[i]) continue;  // both -inf
    worst = std::max(worst, std::isnan(got[i]) ? INFINITY : std::fabs(got[i] - right[i]));
  }
  CHECK(worst < 1e-12);  // double arithmetic in another order
}

// Every row's partials, in order, have the keys of its path. If so told, their arithmetic has the right result too.
RowKeys check(const Forest& forest, const Calls& calls, bool deterministic, int n_sms, bool computes,
              bool warpgroup_tiles = false) {
  WorkItems work;
  work.build(forest.positions, calls.runs, calls.calls,
             {forest.shape.n_heads_q, forest.shape.n_heads_kv, deterministic, n_sms, warpgroup_tiles});
  Interpreter run(forest, calls, work, computes);
  if (computes) {
    const auto right = forest.oracle();
    check_near(run.o, right.o);
    check_near(run.lse, right.lse);
  }
  std::int64_t n_wrong = 0;
  auto next = run.keys.begin();
  for (std::int32_t row = 0; row < forest.n_rows(); ++row) {
    std::vector<std::int64_t> path;
    for (; next != run.keys.end() && next->first.first == row; ++next) {
      path.insert(path.end(), next->second.begin(), next->second.end());
    }
    n_wrong += path != forest.path_slots(forest.row_nodes[at(row)], 0, forest.positions[at(row)] + 1);
  }
  CHECK(n_wrong == 0);
  for (const WorkItem& item : work.items()) {
    if (deterministic) CHECK(item.kv_position % kTilePositions == 0);
  }
  return run.keys;
}

// A root of n_root keys, and n_leaves below it with a row and n_suffix keys each.
struct Fan {
  std::vector<std::int32_t> positions;
  Calls calls;
  Fan(std::int64_t n_root, std::int64_t n_leaves, std::int64_t n_suffix) {
    calls.runs.push_back({0, n_root});
    calls.calls.push_back({0, 1, n_root, 0, 0, n_leaves});
    for (std::int64_t i = 0; i < n_leaves; ++i) {
      positions.push_back(static_cast<std::int32_t>(n_root + n_suffix - 1));
      calls.runs.push_back({n_root + i * n_suffix, n_suffix});
      calls.calls.push_back({i + 1, i + 2, n_suffix, n_root, i, i + 1});
    }
  }
};

}  // namespace

TEST_CASE("work items compute the path softmax on random ragged forests, however calls are cut") {
  std::uint32_t seed = 0;
  for (const auto& [heads_q, heads_kv] : {std::pair{2, 2}, {6, 2}, {16, 1}, {40, 1}}) {
    for (int i = 0; i < 4; ++i) {
      std::mt19937 rng(++seed);
      const Forest forest(
          {.n_nodes = 5 + 8 * i, .longest_node = 70, .n_heads_q = heads_q, .n_heads_kv = heads_kv, .head_dim = 2}, rng);
      for (const int n_sms : {1, 132}) {
        check(forest, forest.by_node(), false, n_sms, true);
        check(forest, forest.by_node(), false, n_sms, true, true);
        check(forest, forest.by_tile(rng), false, n_sms, true);
      }
    }
  }
}

TEST_CASE("deterministic work items: what goes into each partial of a row, in which order, is its path's alone") {
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    std::mt19937 rng(seed);
    const Forest forest({.n_nodes = seed % 2 == 0 ? 6 : 20,
                         .longest_node = seed % 2 == 0 ? 1200 : 150,
                         .n_heads_q = 1,
                         .n_heads_kv = 1,
                         .head_dim = 1},
                        rng);
    const bool computes = seed == 1;
    const RowKeys one = check(forest, forest.by_tile(rng), true, 132, computes);
    CHECK(one == check(forest, forest.by_tile(rng), true, 1, computes));
    CHECK(one == check(forest, forest.by_tile(rng), true, 132, computes, true));  // no warpgroup tiles in these
    CHECK(one == check(forest, forest.by_row(), true, 132, computes));
    for (const auto& [place, keys] : one) CHECK(std::ssize(keys) <= kUnitPositions);
  }
}

TEST_CASE("work items: calls without visible keys make none, and rows of none are merged to the empty set") {
  const std::vector<std::int32_t> positions{0, 1, 2, 3};
  const std::vector<SlotRun> runs{{5, 2}, {9, 0}};
  const std::vector<AttentionCall> calls{
      {.run_begin = 0, .run_end = 1, .n_keys = 2, .kv_position = 2, .row_begin = 0, .row_end = 4},
      {.run_begin = 1, .run_end = 2, .n_keys = 0, .kv_position = 4, .row_begin = 0, .row_end = 4},
      {.run_begin = 0, .run_end = 1, .n_keys = 2, .kv_position = 1'000'000, .row_begin = 0, .row_end = 4},
      {.run_begin = 0, .run_end = 1, .n_keys = 2, .kv_position = 0, .row_begin = 2, .row_end = 2}};
  for (const bool deterministic : {false, true}) {
    WorkItems work;
    work.build(positions, runs, calls, {3, 1, deterministic, 132});
    REQUIRE(work.items().size() == 1);
    CHECK(work.items()[0].row_begin == 2);
    CHECK(work.items()[0].n_packed == 6);
    CHECK(work.n_partials() == 0);  // both rows are results at once
    CHECK(std::ranges::equal(work.merge_rows(), std::vector<std::int32_t>{0, 1}));
    work.build(positions, {}, {}, {3, 1, deterministic, 132});
    CHECK(work.items().empty());
    CHECK(work.merge_rows().size() == 4);
  }
}

TEST_CASE("work items: a long call with few rows is cut to fill the device; many calls are not") {
  WorkItems work;
  const Fan alone(16'384, 1, 64), many(16'384, 960, 64);
  work.build(alone.positions, alone.calls.runs, alone.calls.calls, {32, 8, false, 132});
  CHECK(work.items().size() > 16);
  work.build(many.positions, many.calls.runs, many.calls.calls, {40, 40, false, 132});
  const auto wide = work.header().items[0][2], narrow = work.header().items[0][0];
  // 8 tiles of 128 rows, 40 heads: 320 blocks' worth for 264 places, so pieces even it out.
  CHECK(wide.end - wide.begin >= 3 * 8);
  CHECK(wide.end - wide.begin <= 12 * 8);
  CHECK(narrow.end - narrow.begin == 960);
  for (std::int32_t i = narrow.begin; i < narrow.end; ++i) CHECK(work.items()[at(i)].n_keys == 64);
}

TEST_CASE(
    "work items: warpgroup tiles in place of wide ones, in whole rounds of pieces, and not in deterministic items") {
  constexpr auto kWide = static_cast<std::size_t>(TileKind::wide),
                 kWarpgroup = static_cast<std::size_t>(TileKind::warpgroup);
  const auto n_items = [](const WorkItems& work, std::size_t kind) {
    return work.header().items[0][kind].end - work.header().items[0][kind].begin;
  };
  WorkItems work;
  // 960 rows: seven tiles and a half, all of one kind, for 40 heads. Whole calls would run in three rounds on 132
  // multiprocessors, of which the last is nearly half empty; halves in five, all but full; thirds in eight.
  const Fan many(16'384, 960, 64);
  work.build(many.positions, many.calls.runs, many.calls.calls, {40, 40, false, 132, true});
  CHECK(n_items(work, kWarpgroup) == 2 * 8);
  CHECK(n_items(work, kWide) == 0);
  CHECK(work.header().items[0][0].end - work.header().items[0][0].begin == 960);
  work.build(many.positions, many.calls.runs, many.calls.calls, {40, 40, true, 132, true});
  CHECK(n_items(work, kWarpgroup) == 0);
  CHECK(n_items(work, kWide) == 7 * 8);  // and as many of 64 rows; units of 2,048 positions
  // A tile of few rows is no work for 128.
  const Fan one_more(16'384, 129, 64);
  work.build(one_more.positions, one_more.calls.runs, one_more.calls.calls, {1, 1, false, 1, true});
  for (const WorkItem& item : work.items())
    CHECK(((item.n_packed == 128) == (item.packed_begin == 0 && item.n_keys > 64)));
}

TEST_CASE("work items of a second build need no memory, and deterministic calls that end within a tile are refused") {
  const Fan fan(3000, 100, 70);
  for (const bool deterministic : {false, true}) {
    WorkItems work;
    const WorkOptions options{8, 2, deterministic, 132, true};
    work.build(fan.positions, fan.calls.runs, fan.calls.calls, options);
    const std::int64_t before = n_allocations;
    work.build(fan.positions, fan.calls.runs, fan.calls.calls, options);
    CHECK(n_allocations == before);
  }
  Calls one_by_one;
  for (std::int64_t i = 0; i < 40; ++i) {
    one_by_one.runs.push_back({i, 1});
    one_by_one.calls.push_back({i, i + 1, 1, i, 0, 1});
  }
  const std::array<std::int32_t, 1> positions{39};
  WorkItems work;
  CHECK_THROWS_AS(work.build(positions, one_by_one.runs, one_by_one.calls, {1, 1, true, 132}), Error);
  work.build(positions, one_by_one.runs, one_by_one.calls, {1, 1, false, 132});
  CHECK(work.rows()[0].n_partials == 40);
}
