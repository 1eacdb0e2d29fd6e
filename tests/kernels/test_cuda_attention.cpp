// CUDA attention against the double-precision path softmax, both kernels.
#include <cstdio>
#include <cstring>
#include <doctest/doctest.h>

#include "banyan/lse.hpp"
#include "tests/kernels/attention_errors.hpp"
#include "tests/kernels/cuda_problem.hpp"

using namespace banyan;
using namespace banyan::kernels;
using namespace banyan::kernels::cuda;

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

using banyan::kernels::same_bits;
bool same_bits(const Result& a, const Result& b) { return same_bits(a.f32, b.f32) && same_bits(a.o_bf16, b.o_bf16); }

// Keys and values are normal(0, 1), queries normal(0, deviation), all as stored; scores have that deviation.
//
// Generic: f32 throughout. A score is a sum of head_dim products with a relative error of some 2^-24 each; weights and
// O are off by as much as scores are, relatively, and |V| is up to 5. LSE is off by what scores are.
//
// Tiles: scores as above (products of 16-bit numbers are exact, sums f32, the tensor cores' own sums somewhat coarser).
// Weights are rounded to the KV type, with u = 2^-8 (bf16) or 2^-11 (f16): O is off by at most u sum p |v| <= u 5, and
// in the root mean square by u / sqrt(3) or less. Weights are summed before they are rounded, so LSE is as exact as
// the scores.
AttentionErrors tolerance(DType type, double deviation, bool tiles) {
  if (!tiles) return {2e-5 * deviation, 2e-6 * deviation, 1e-5 * deviation};
  const double u = type == DType::bf16 ? 0x1p-8 : 0x1p-11;
  return {5 * u + 5e-5 * deviation, u / std::sqrt(3.0) + 5e-6 * deviation, 3e-5 * deviation};
}

void check_result(const char* kernel, const Result& r, const Forest& f, const Forest::Oracle& right, bool tiles) {
  const AttentionErrors e = errors(r.f32, right), most = tolerance(f.shape.type, f.shape.deviation, tiles);
  std::printf("%-22s dim %3d heads %2d/%-2d %-4s rows %4d keys %5d: O %.1e (%.1e) rms %.1e (%.1e) LSE %.1e (%.1e)\n",
              kernel, static_cast<int>(f.shape.head_dim), static_cast<int>(f.shape.n_heads_q),
              static_cast<int>(f.shape.n_heads_kv), std::string(to_string(f.shape.type)).c_str(),
              static_cast<int>(f.n_rows()), static_cast<int>(f.n_slots), e.o, most.o, e.o_rms, most.o_rms, e.lse,
              most.lse);
  CAPTURE(kernel);
  CAPTURE(f.shape.head_dim);
  CAPTURE(to_string(f.shape.type));
  CHECK(e.o < most.o);
  CHECK(e.o_rms < most.o_rms);
  CHECK(e.lse < most.lse);
  CHECK(same_bits(r.o_bf16, to_bf16(r.f32.o)));  // rounded once
}

void check_shape(const Forest::Shape& shape, std::uint32_t seed) {
  std::mt19937 rng(seed);
  const Forest f = rounded_forest(shape, rng);
  const auto right = f.oracle();
  const Problem node = problem_of(f, f.by_node()), tile = problem_of(f, f.by_tile(rng)),
                tile_again = problem_of(f, f.by_tile(rng)), row = problem_of(f, f.by_row());
  const ProblemOnDevice by_node(node), by_tile(tile), by_tile_again(tile_again), by_row(row);
  check_result("generic", by_node.generic(), f, right, false);
  CHECK(same_bits(by_node.generic(), by_row.generic()));  // key after key, whatever the calls
  if (!supports({shape.n_heads_q, shape.n_heads_kv, shape.head_dim, shape.type})) return;

  const Result nodes = by_node.tiles(false);
  check_result("tiles, by node", nodes, f, right, true);
  CHECK(same_bits(nodes, by_node.tiles(false)));  // run to run
  check_result("tiles, 1 SM's pieces", by_node.tiles(false, 1), f, right, true);
  check_result("tiles, by tile", by_tile.tiles(false), f, right, true);
  check_result("tiles, by row", by_row.tiles(false), f, right, true);
  check_result("tiles, none of Hopper's", by_node.tiles(false, 132, false), f, right, true);

  // Bits are the path's alone: not of the calls, the tiles' kinds, the company (by_row: none), or the device.
  const Result deterministic = by_tile.tiles(true);
  check_result("tiles, deterministic", deterministic, f, right, true);
  CHECK(same_bits(deterministic, by_tile.tiles(true, 7)));
  CHECK(same_bits(deterministic, by_tile_again.tiles(true)));
  CHECK(same_bits(deterministic, by_row.tiles(true)));
}

Problem small_problem(std::int64_t n_slots, std::int64_t n_heads_q, std::int64_t n_heads_kv, std::int64_t head_dim,
                      DType type, std::vector<std::int32_t> positions, Calls calls, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  Problem p;
  p.n_heads_q = n_heads_q;
  p.n_heads_kv = n_heads_kv;
  p.head_dim = head_dim;
  p.n_slots = n_slots;
  p.type = type;
  p.positions = std::move(positions);
  p.calls = std::move(calls);
  p.q.resize(at(p.n_rows() * n_heads_q * head_dim));
  for (float& x : p.q) x = to_float(banyan::to_bf16(normal(rng)));
  p.kv.resize(at(dtype_bytes(type, 2 * n_heads_kv * n_slots * head_dim)));
  for (std::int64_t i = 0; i < 2 * n_heads_kv * n_slots * head_dim; ++i) {
    const float x = normal(rng);
    if (type == DType::f32) reinterpret_cast<float*>(p.kv.data())[i] = x;
    if (type == DType::bf16) reinterpret_cast<bf16*>(p.kv.data())[i] = banyan::to_bf16(x);
    if (type == DType::f16) reinterpret_cast<f16*>(p.kv.data())[i] = to_f16(x);
  }
  return p;
}

float kv_element(const Problem& p, std::int64_t which, std::int64_t head, std::int64_t slot, std::int64_t i) {
  const std::int64_t j = ((which * p.n_heads_kv + head) * p.n_slots + slot) * p.head_dim + i;
  if (p.type == DType::f32) return reinterpret_cast<const float*>(p.kv.data())[j];
  if (p.type == DType::bf16) return to_float(reinterpret_cast<const bf16*>(p.kv.data())[j]);
  return to_float(reinterpret_cast<const f16*>(p.kv.data())[j]);
}

// Every kernel and mode that takes the problem.
template <class Check>
void for_each_kernel(const Problem& p, const Check& check_one) {
  const ProblemOnDevice device(p);
  {
    INFO("generic");
    check_one(device.generic());
  }
  if (!supports({p.n_heads_q, p.n_heads_kv, p.head_dim, p.type})) return;
  for (const bool deterministic : {false, true}) {
    CAPTURE(deterministic);
    check_one(device.tiles(deterministic));
  }
}

}  // namespace

TEST_CASE("CUDA attention equals the double-precision path softmax: each head dim and KV type") {
  std::uint32_t seed = 100;
  for (const std::int64_t d : {64, 80, 96, 128, 256}) {
    for (const DType type : {DType::bf16, DType::f16}) {
      check_shape({.n_nodes = 40, .longest_node = 90, .n_heads_q = 8, .n_heads_kv = 2, .head_dim = d, .type = type},
                  ++seed);
      check_shape({.n_nodes = 5, .longest_node = 1500, .n_heads_q = 2, .n_heads_kv = 1, .head_dim = d, .type = type},
                  ++seed);
    }
    check_shape({.n_nodes = 30, .longest_node = 90, .n_heads_q = 4, .n_heads_kv = 2, .head_dim = d, .type = DType::f32},
                ++seed);
  }
}

TEST_CASE("CUDA attention: groups of 1 to 16 heads and beyond, odd head dims, moving maxima") {
  std::uint32_t seed = 200;
  for (const std::int64_t group : {1, 2, 3, 5, 8, 16, 71}) {
    check_shape(
        {.n_nodes = 40, .longest_node = 60, .n_heads_q = group, .n_heads_kv = 1, .head_dim = 64, .type = DType::bf16},
        ++seed);
  }
  for (const std::int64_t d : {1, 8, 17, 25, 200}) {
    check_shape({.n_nodes = 20, .longest_node = 40, .n_heads_q = 4, .n_heads_kv = 2, .head_dim = d, .type = DType::f16},
                ++seed);
  }
  check_shape({.n_nodes = 20, .longest_node = 300, .head_dim = 128, .type = DType::bf16, .deviation = 4.0F}, ++seed);
  check_shape({.n_nodes = 20, .longest_node = 300, .head_dim = 128, .type = DType::f16, .deviation = 30.0F}, ++seed);
}

TEST_CASE("CUDA attention: units of deterministic mode that many calls share") {
  // Short nodes below each other: a unit of 2,048 positions is a chain of calls, each of which goes on from a state.
  check_shape(
      {.n_nodes = 60, .longest_node = 400, .n_heads_q = 4, .n_heads_kv = 1, .head_dim = 128, .type = DType::bf16}, 301);
  check_shape(
      {.n_nodes = 12, .longest_node = 3000, .n_heads_q = 2, .n_heads_kv = 2, .head_dim = 64, .type = DType::f16}, 302);
}

// Every way to meet the warpgroup tiles: pieces that end within a tile of keys, runs that end anywhere, several tiles
// of rows and a partial one, rows that stop inside the keys (causal) or before them.
TEST_CASE("CUDA attention: warpgroup tiles equal the generic kernel, and themselves") {
  if (!has_warpgroup_tiles()) MESSAGE("the device has no warpgroup tiles: wide ones do their work");
  std::uint32_t seed = 400;
  for (const std::int64_t d : {64, 96, 128, 256}) {
    for (const std::int64_t group : {1, 2, 5, 16}) {
      for (const DType type : {DType::bf16, DType::f16}) {
        std::mt19937 rng(++seed);
        const std::int64_t n_rows = 3 * 128 / group + 37, n_prefix = 2900 + 13 * group,
                           n_slots = n_prefix + n_rows + 40;
        Calls calls;
        for (std::int64_t begin = 0; begin < n_prefix;) {  // runs in reverse order of slots
          const std::int64_t n =
              std::min(n_prefix - begin, std::uniform_int_distribution<std::int64_t>(0, begin > 2000 ? 700 : 90)(rng));
          calls.runs.push_back({n_slots - begin - n, n});
          begin += n;
        }
        const auto n_runs = std::ssize(calls.runs);
        calls.runs.push_back({0, n_rows});
        calls.calls = {{0, n_runs, n_prefix, 0, 0, n_rows}, {n_runs, n_runs + 1, n_rows, n_prefix, 0, n_rows}};
        std::vector<std::int32_t> positions;
        for (std::int64_t row = 0; row < n_rows; ++row) {
          positions.push_back(static_cast<std::int32_t>(row % 31 == 30 ? row * 7 : n_prefix + row));
        }
        const Problem p = small_problem(n_slots, 2 * group, 2, d, type, positions, calls, seed);
        const ProblemOnDevice device(p);
        const Result generic = device.generic(), tiles = device.tiles(false, 132, true);
        const auto items = tiles.work.header().items[0][static_cast<int>(TileKind::warpgroup)];
        CHECK(items.end - items.begin > 4);
        const Forest::Oracle right{{generic.f32.o.begin(), generic.f32.o.end()},
                                   {generic.f32.lse.begin(), generic.f32.lse.end()}};
        const double deviation = double{p.scale} * std::sqrt(static_cast<double>(d));
        const AttentionErrors e = errors(tiles.f32, right), most = tolerance(type, deviation, true);
        CAPTURE(d);
        CAPTURE(group);
        CAPTURE(to_string(type));
        CHECK(e.o < most.o);
        CHECK(e.o_rms < most.o_rms);
        CHECK(e.lse < most.lse);
        CHECK(same_bits(tiles.o_bf16, to_bf16(tiles.f32.o)));
        for (int again = 0; again < 3; ++again) CHECK(same_bits(tiles, device.tiles(false, 132, true)));
      }
    }
  }
}

TEST_CASE("BL-01 on CUDA: calls that see no key change nothing, bit for bit, and no call at all is the empty set") {
  for (const std::int64_t d : {64, 80}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      std::mt19937 rng(7);
      const Forest f = rounded_forest({.n_nodes = 8, .head_dim = d, .type = type}, rng);
      Problem plain = problem_of(f, f.by_tile(rng)), mixed = plain, none = plain;
      mixed.calls.calls.clear();
      for (const AttentionCall& call : plain.calls.calls) {
        AttentionCall empty = call, later = call;
        empty.n_keys = 0;
        empty.run_end = empty.run_begin;
        later.kv_position = 1'000'000;  // keys that no row sees yet
        mixed.calls.calls.insert(mixed.calls.calls.end(), {empty, later, call, later, empty});
      }
      none.calls = {};
      const ProblemOnDevice on_plain(plain), on_mixed(mixed);
      CHECK(same_bits(on_mixed.generic(), on_plain.generic()));
      if (type != DType::f32) {
        CHECK(same_bits(on_mixed.tiles(false, 1), on_plain.tiles(false, 1)));
        CHECK(same_bits(on_mixed.tiles(true), on_plain.tiles(true)));
      }
      for_each_kernel(none, [](const Result& r) {
        CHECK(std::ranges::all_of(r.f32.o, [](float o) { return o == 0.0F; }));
        CHECK(std::ranges::all_of(r.f32.lse, [](float lse) { return lse == kEmptyLse; }));
        CHECK(std::ranges::all_of(r.o_bf16, [](bf16 o) { return o.bits == 0; }));
      });
    }
  }
}

TEST_CASE("BL-02 on CUDA: rows without visible keys are empty; zero-length entries; an empty node in a path") {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    // Four queries aligned to the end of two keys: query i sees keys up to i - 2.
    const Calls causal{{{5, 2}},
                       {{.run_begin = 0, .run_end = 1, .n_keys = 2, .kv_position = 2, .row_begin = 0, .row_end = 4}}};
    const Problem p = small_problem(16, 9, 3, 64, type, {0, 1, 2, 3}, causal, 3);
    for_each_kernel(p, [&](const Result& r) {
      for (std::int64_t h = 0; h < 4 * 9; ++h) {
        const std::int64_t row = h / 9;
        if (row < 2) CHECK(r.f32.lse[at(h)] == kEmptyLse);
        if (row >= 2) CHECK(std::isfinite(r.f32.lse[at(h)]));
        for (std::int64_t i = 0; i < 64; ++i) {
          const float o = r.f32.o[at(h * 64 + i)];
          if (row < 2) CHECK(o == 0.0F);
          // One key: its value, but for the rounding of exp2(score - maximum), one product of which is fused.
          const float v = static_cast<float>(kv_element(p, 1, h % 9 / 3, 5, i));
          if (row == 2) CHECK(std::fabs(o - v) <= 2e-6F * std::fabs(v));
        }
      }
    });
    // Queries per node [0, 1, 0, 1], keys per node [0, 3, 0, 5]; then with runs of zero slots inside and between.
    Problem dense =
        small_problem(16, 9, 3, 64, type, {2, 4}, {{{1, 3}, {6, 5}}, {{0, 1, 3, 0, 0, 1}, {1, 2, 5, 0, 1, 2}}}, 3);
    Problem ragged = dense, holed = dense;
    ragged.calls.calls = {{0, 0, 0, 0, 0, 0}, {0, 1, 3, 0, 0, 1}, {1, 1, 0, 0, 1, 1}, {1, 2, 5, 0, 1, 2}};
    holed.calls = {{{1, 1}, {9, 0}, {2, 2}, {0, 0}, {6, 5}}, {{0, 3, 3, 0, 0, 1}, {3, 5, 5, 0, 1, 2}}};
    const ProblemOnDevice on_dense(dense), on_ragged(ragged), on_holed(holed);
    const Result right = on_dense.generic();
    CHECK(same_bits(on_ragged.generic(), right));
    CHECK(same_bits(on_holed.generic(), right));
    if (type == DType::f32) continue;
    for (const bool deterministic : {false, true}) {
      const Result tiles = on_dense.tiles(deterministic);
      CHECK(same_bits(on_ragged.tiles(deterministic), tiles));
      CHECK(same_bits(on_holed.tiles(deterministic), tiles));
      for (std::size_t i = 0; i < tiles.f32.lse.size(); ++i) {
        CHECK(tiles.f32.lse[i] == doctest::Approx(right.f32.lse[i]).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("BL-05 on CUDA: the keys of one branch do not reach the other") {
  // Root 3 keys, children X and Y of 2 each. X is computed, then Y's keys are overwritten, then X again.
  const Calls calls{{{0, 3}, {3, 2}, {5, 2}}, {{0, 1, 3, 0, 0, 4}, {1, 2, 2, 3, 0, 2}, {2, 3, 2, 3, 2, 4}}};
  for (const std::int64_t d : {64, 128}) {
    Problem p = small_problem(7, 4, 2, d, DType::bf16, {3, 4, 3, 4}, calls, 11), other = p;
    for (std::int64_t head = 0; head < 4; ++head) {  // K and V of both KV heads
      auto* slots = reinterpret_cast<bf16*>(other.kv.data()) + head * 7 * d;
      for (std::int64_t i = 5 * d; i < 7 * d; ++i) slots[i] = banyan::to_bf16(3.0F * to_float(slots[i]) + 1.0F);
    }
    const ProblemOnDevice first(p), second(other);
    const auto n = at(2 * 4 * d);
    const auto check_branches = [&](const Result& a, const Result& b) {
      CHECK(std::memcmp(a.f32.o.data(), b.f32.o.data(), n * sizeof(float)) == 0);
      CHECK(std::memcmp(a.f32.o.data() + n, b.f32.o.data() + n, n * sizeof(float)) != 0);
    };
    check_branches(first.generic(), second.generic());
    check_branches(first.tiles(false), second.tiles(false));
    check_branches(first.tiles(true), second.tiles(true));
  }
}

TEST_CASE("BL-11 on CUDA: query heads of one group are neighbours and share a KV head") {
  for (const std::int64_t n_heads_kv : {4, 2, 1}) {
    for (const std::int64_t d : {16, 64, 128}) {
      Problem p = small_problem(3, 4, n_heads_kv, d, DType::bf16, {2}, {{{0, 3}}, {{0, 1, 3, 0, 0, 1}}}, 1);
      auto* v = reinterpret_cast<bf16*>(p.kv.data()) + n_heads_kv * 3 * d;
      for (std::int64_t i = 0; i < n_heads_kv * 3 * d; ++i) {
        v[i] = banyan::to_bf16(10.0F * static_cast<float>(i / (3 * d) + 1));
      }
      for_each_kernel(p, [&](const Result& r) {
        for (std::int64_t h = 0; h < 4; ++h) {
          const auto right = static_cast<float>(10 * (h / (4 / n_heads_kv) + 1));
          for (std::int64_t i = 0; i < d; ++i) {  // weights are rounded to bf16 each, their sum is not
            CHECK(r.f32.o[at(h * d + i)] == doctest::Approx(right).epsilon(0x1p-8));
          }
        }
      });
    }
  }
}

TEST_CASE("BL-13 on CUDA: 70,000 rows in one call, and 70,000 leaves with a call each") {
  constexpr std::int64_t n = 70'000;
  for (const std::int64_t d : {16, 64}) {
    Calls calls{{{0, 8}}, {{0, 1, 8, 0, 0, n}}};
    for (const bool leaves : {false, true}) {
      CAPTURE(d);
      CAPTURE(leaves);
      for (std::int64_t leaf = 0; leaves && leaf < n; ++leaf) {
        calls.runs.push_back({8 + leaf, 1});
        calls.calls.push_back({leaf + 1, leaf + 2, 1, 8, leaf, leaf + 1});
      }
      const Problem p = small_problem(8 + n, 1, 1, d, DType::bf16,
                                      std::vector<std::int32_t>(static_cast<std::size_t>(n), 8), calls, 5);
      for_each_kernel(p, [&](const Result& r) {
        for (const std::int64_t row : {0, 65534, 65535, 65536, 69999}) {
          std::vector<double> o(at(d), 0.0);
          double sum = 0;
          for (std::int64_t key = 0; key < (leaves ? 9 : 8); ++key) {
            const std::int64_t slot = key < 8 ? key : 8 + row;
            double score = 0;
            for (std::int64_t i = 0; i < d; ++i) score += double{p.q[at(row * d + i)]} * kv_element(p, 0, 0, slot, i);
            const double w = std::exp(score * double{p.scale});
            sum += w;
            for (std::int64_t i = 0; i < d; ++i) o[at(i)] += w * kv_element(p, 1, 0, slot, i);
          }
          CHECK(r.f32.lse[at(row)] == doctest::Approx(std::log(sum)).epsilon(1e-5));
          for (std::int64_t i = 0; i < d; ++i) CHECK(std::fabs(r.f32.o[at(row * d + i)] - o[at(i)] / sum) < 2e-2);
        }
        CHECK(std::ranges::all_of(r.f32.lse, [](float lse) { return std::isfinite(lse); }));
      });
    }
  }
}

TEST_CASE("CUDA attention: slots beyond element 2^31 of the pool") {
  // One head of 128 dims and 20,000,000 slots: K ends at element 2.56e9, V at 5.12e9. Only the last slots are set.
  constexpr std::int64_t n_slots = 20'000'000, d = 128, n_keys = 100;
  const Problem near =
      small_problem(n_keys, 1, 1, d, DType::bf16, {99, 50}, {{{0, n_keys}}, {{0, 1, n_keys, 0, 0, 2}}}, 21);
  bf16* far_kv = nullptr;
  const std::size_t n_bytes = 2 * n_slots * d * sizeof(bf16);
  if (cudaMalloc(reinterpret_cast<void**>(&far_kv), n_bytes) != cudaSuccess) {
    cudaGetLastError();
    MESSAGE("skipped: the device has no 10 GB free");
    return;
  }
  check(cudaMemset(far_kv, 0xff, n_bytes), "cudaMemset");
  for (std::int64_t which = 0; which < 2; ++which) {
    check(cudaMemcpy(far_kv + ((which + 1) * n_slots - n_keys) * d,
                     reinterpret_cast<const bf16*>(near.kv.data()) + which * n_keys * d, n_keys * d * sizeof(bf16),
                     cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  Problem far = near;
  far.n_slots = n_slots;
  far.calls.runs = {{n_slots - n_keys, n_keys}};
  const ProblemOnDevice on_near(near);
  const ProblemOnDevice on_far(far, reinterpret_cast<std::byte*>(far_kv));
  CHECK(same_bits(on_far.generic(), on_near.generic()));
  CHECK(same_bits(on_far.tiles(false), on_near.tiles(false)));
  cudaFree(far_kv);
}

TEST_CASE("CUDA attention: a row with NaN queries harms itself alone") {
  std::mt19937 rng(9);
  const Forest f =
      rounded_forest({.n_nodes = 10, .n_heads_q = 4, .n_heads_kv = 2, .head_dim = 64, .type = DType::bf16}, rng);
  const Problem clean = problem_of(f, f.by_node());
  Problem bad = clean;
  const std::int64_t row = f.n_rows() / 2, width = 4 * 64;
  for (std::int64_t i = 0; i < width; ++i) bad.q[at(row * width + i)] = NAN;
  const ProblemOnDevice on_clean(clean), on_bad(bad);
  const auto check_rows = [&](const Result& right, const Result& got) {
    for (std::int64_t r = 0; r < f.n_rows(); ++r) {
      const float* a = right.f32.o.data() + r * width;
      const float* b = got.f32.o.data() + r * width;
      if (r == row) CHECK(std::isnan(b[0]));
      if (r != row) CHECK(std::memcmp(a, b, at(width) * sizeof(float)) == 0);
    }
  };
  check_rows(on_clean.generic(), on_bad.generic());
  check_rows(on_clean.tiles(false), on_bad.tiles(false));
  check_rows(on_clean.tiles(true), on_bad.tiles(true));
}

TEST_CASE("CUDA attention refuses by name what it does not do") {
  CHECK(!supports({4, 2, 72, DType::bf16}));
  CHECK(!supports({4, 2, 64, DType::f32}));
  CHECK(!supports({5, 2, 64, DType::bf16}));
  CHECK_THROWS_WITH_AS(TileAttention({4, 2, 72, DType::bf16}), doctest::Contains("72 dims"), Error);
  AttentionTensors t;
  t.kv.head_dim = 320;
  CHECK_THROWS_WITH_AS(attention_generic(t, {}, nullptr), doctest::Contains("head_dim 320"), Error);
  t.kv = {nullptr, DType::q8_0, 1, 1, 64};
  CHECK_THROWS_WITH_AS(attention_generic(t, {}, nullptr), doctest::Contains("q8_0"), Error);
}
