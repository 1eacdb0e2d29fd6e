#include <cstring>
#include <doctest/doctest.h>

#include "banyan/lse.hpp"
#include "tests/kernels/attention_errors.hpp"
#include "tests/kernels/backends.hpp"
#include "tests/kernels/forest.hpp"

using namespace banyan;
using namespace banyan::kernels;

namespace {

// Elements of q, k and v are normal(0, 1), scores have deviation `query deviation`.
//
// f32 arithmetic (f32 and f16 KV, and bf16 KV where there is no bf16 dot product): a score is a chain of head_dim
// products of relative error 2^-24, so it is off by some 1e-6 times its deviation; p and o are off by as much
// relatively, and o is an average of values up to 5.
//
// bf16 dot products (bf16 KV): queries are rounded by up to 2^-8 relatively, 0.0016 in the root mean square, so a score
// of deviation 1 is off by 0.0016 in the root mean square; p is rounded likewise. Few keys leave that unaveraged: o is
// off by about 0.002 times values of deviation 1 in the root mean square, and by up to ten times that at the worst.
AttentionErrors tolerance(const Forest::Shape& s, const Backend& backend) {
  const bool bf16_dot = s.type == DType::bf16 && backend.describe().find("bf16") != std::string::npos;
  const double deviation = s.deviation;
  if (bf16_dot) return {0.03 * deviation, 0.003 * deviation, 0.01 * deviation};
  return {2e-5 * deviation, 2e-6 * deviation, 1e-5 * deviation};
}

void check_shape(const Forest::Shape& shape, std::uint32_t seed) {
  std::mt19937 rng(seed);
  const Forest forest(shape, rng);
  const auto right = forest.oracle();
  const Calls by_tile = forest.by_tile(rng), by_tile_again = forest.by_tile(rng);
  for (const auto& backend : all_backends(2)) {
    CAPTURE(backend->describe());
    CAPTURE(shape.head_dim);
    CAPTURE(to_string(shape.type));
    const AttentionErrors allowed = tolerance(shape, *backend);
    const AttentionResult tiled = forest.run(*backend, by_tile);
    for (const auto& got : {forest.run(*backend, forest.by_node()), tiled}) {
      const AttentionErrors e = errors(got, right);
      CHECK(e.o < allowed.o);
      CHECK(e.o_rms < allowed.o_rms);
      CHECK(e.lse < allowed.lse);
    }
    // Bits follow from the path alone, when calls are cut at tiles: not from other rows, cuts or threads.
    CHECK(same_bits(forest.run(*backend, by_tile_again), tiled));
    CHECK(same_bits(forest.run(*backend, forest.by_row()), tiled));
  }
  const auto one_thread = fast_backends(1), three_threads = fast_backends(3);
  for (std::size_t i = 0; i < one_thread.size(); ++i) {
    CHECK(same_bits(forest.run(*one_thread[i], by_tile), forest.run(*three_threads[i], by_tile_again)));
  }
}

// A pool of `n_slots` slots whose keys and values are given by functions of (kv head, slot, dim).
struct SmallKv {
  std::int64_t n_slots, n_heads_kv, head_dim;
  std::vector<float> values;
  SmallKv(std::int64_t slots, std::int64_t heads, std::int64_t dim)
      : n_slots(slots), n_heads_kv(heads), head_dim(dim), values(static_cast<std::size_t>(2 * heads * slots * dim)) {}
  float* row(std::int64_t which, std::int64_t head, std::int64_t slot) {
    return values.data() + ((which * n_heads_kv + head) * n_slots + slot) * head_dim;
  }
  KvView view() { return {values.data(), DType::f32, n_slots, n_heads_kv, head_dim}; }
};

AttentionResult run(Backend& backend, KvView kv, const std::vector<float>& q, std::int64_t n_heads_q,
                    const std::vector<std::int32_t>& positions, const Calls& c) {
  AttentionResult r;
  r.o.assign(q.size(), 7.0F);
  r.lse.assign(positions.size() * static_cast<std::size_t>(n_heads_q), 7.0F);
  AttentionArgs a;
  a.q = q.data();
  a.o = r.o.data();
  a.lse = r.lse.data();
  a.n_heads_q = n_heads_q;
  a.kv = kv;
  a.scale = 0.25F;
  backend.begin_step({.n_rows = std::ssize(positions),
                      .positions = positions,
                      .runs = c.runs,
                      .calls = c.calls,
                      .n_heads_q = n_heads_q,
                      .n_heads_kv = kv.n_heads_kv});
  backend.attention(a);
  return r;
}

}  // namespace

TEST_CASE(
    "attention equals the double-precision path softmax on random ragged forests, and its bits the path's alone") {
  std::uint32_t seed = 10;
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t d : {8, 16, 64, 80, 128, 256}) {
      check_shape({.n_nodes = 10, .longest_node = 90, .n_heads_q = 4, .n_heads_kv = 2, .head_dim = d, .type = type},
                  ++seed);
    }
  }
}

TEST_CASE("attention: groups of 1 to 16 heads, odd head dims, deep trees, moving maxima") {
  check_shape({.n_nodes = 60, .longest_node = 20, .n_heads_q = 16, .n_heads_kv = 1, .head_dim = 32}, 1);
  check_shape({.n_nodes = 60, .longest_node = 20, .n_heads_q = 5, .n_heads_kv = 5, .head_dim = 17}, 2);
  check_shape({.n_nodes = 40, .longest_node = 30, .n_heads_q = 9, .n_heads_kv = 3, .head_dim = 25, .type = DType::bf16},
              3);
  check_shape({.n_nodes = 40, .longest_node = 3, .n_heads_q = 4, .n_heads_kv = 4, .head_dim = 9, .type = DType::f16},
              4);
  check_shape({.n_nodes = 20, .longest_node = 200, .head_dim = 64, .type = DType::bf16, .deviation = 4.0F}, 5);
  check_shape({.n_nodes = 20, .longest_node = 200, .head_dim = 64, .deviation = 30.0F}, 6);
}

TEST_CASE("BL-01: calls that see no key change nothing, bit for bit, and no call at all is the empty set") {
  for (const std::int64_t d : {64, 80}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      std::mt19937 rng(7);
      const Forest forest({.n_nodes = 8, .head_dim = d, .type = type}, rng);
      for (const auto& backend : all_backends(2)) {
        CAPTURE(backend->describe());
        const Calls plain = forest.by_node();
        Calls mixed{plain.runs, {}};
        for (const AttentionCall& call : plain.calls) {
          AttentionCall none = call, later = call;
          none.n_keys = 0;  // no keys
          none.run_end = none.run_begin;
          later.kv_position = 1'000'000;  // keys that no row sees yet
          mixed.calls.insert(mixed.calls.end(), {none, later, call, later, none});
        }
        CHECK(same_bits(forest.run(*backend, mixed), forest.run(*backend, plain)));

        const AttentionResult empty = forest.run(*backend, {});
        CHECK(std::ranges::all_of(empty.o, [](float o) { return o == 0.0F; }));
        CHECK(std::ranges::all_of(empty.lse, [](float lse) { return lse == kEmptyLse; }));
      }
    }
  }
}

TEST_CASE(
    "BL-02: rows without visible keys are empty; ragged batches with zero-length entries; an empty node in a path") {
  std::mt19937 rng(3);
  SmallKv kv(16, 3, 64);
  for (float& x : kv.values) x = random_floats(1, rng)[0];
  const std::int64_t n_heads = 9, d = 64;
  const auto q = random_floats(4 * n_heads * d, rng);

  for (const auto& backend : all_backends(2)) {
    CAPTURE(backend->describe());
    // Four queries aligned to the end of two keys: query i sees keys up to i - 2.
    const Calls causal{{{5, 2}},
                       {{.run_begin = 0, .run_end = 1, .n_keys = 2, .kv_position = 2, .row_begin = 0, .row_end = 4}}};
    const AttentionResult r = run(*backend, kv.view(), q, n_heads, {0, 1, 2, 3}, causal);
    for (std::int64_t h = 0; h < 4 * n_heads; ++h) {
      const std::int64_t row = h / n_heads;
      if (row < 2) CHECK(r.lse[static_cast<std::size_t>(h)] == kEmptyLse);
      for (std::int64_t i = 0; i < d; ++i) {
        const float o = r.o[static_cast<std::size_t>(h * d + i)];
        if (row < 2) CHECK(o == 0.0F);
        if (row == 2) CHECK(o == kv.row(1, h % n_heads / 3, 5)[i]);  // one key: its value, exactly
      }
    }
    // Row 3 alone with the same two keys.
    const std::vector<float> last(q.begin() + 3 * n_heads * d, q.end());
    const Calls alone{{{5, 2}},
                      {{.run_begin = 0, .run_end = 1, .n_keys = 2, .kv_position = 2, .row_begin = 0, .row_end = 1}}};
    const AttentionResult one = run(*backend, kv.view(), last, n_heads, {3}, alone);
    CHECK(std::memcmp(one.o.data(), r.o.data() + 3 * n_heads * d, one.o.size() * sizeof(float)) == 0);

    // Queries per node [0, 1, 0, 1], keys per node [0, 3, 0, 5].
    const std::vector<float> two(q.begin(), q.begin() + 2 * n_heads * d);
    const Calls ragged{{{1, 3}, {6, 5}},
                       {{0, 0, 0, 0, 0, 0}, {0, 1, 3, 0, 0, 1}, {1, 1, 0, 0, 1, 1}, {1, 2, 5, 0, 1, 2}}};
    const Calls dense{{{1, 3}, {6, 5}}, {{0, 1, 3, 0, 0, 1}, {1, 2, 5, 0, 1, 2}}};
    const Calls holed{{{1, 1}, {9, 0}, {2, 2}, {0, 0}, {6, 5}},  // runs of zero slots inside and between
                      {{0, 3, 3, 0, 0, 1}, {3, 5, 5, 0, 1, 2}}};
    const AttentionResult right = run(*backend, kv.view(), two, n_heads, {2, 4}, dense);
    CHECK(same_bits(run(*backend, kv.view(), two, n_heads, {2, 4}, ragged), right));
    CHECK(same_bits(run(*backend, kv.view(), two, n_heads, {2, 4}, holed), right));
    for (const float lse : right.lse) CHECK(std::isfinite(lse));
  }
}

TEST_CASE("BL-11: query heads of one group are neighbours and share a KV head") {
  for (const auto& backend : all_backends(2)) {
    CAPTURE(backend->describe());
    for (const std::int64_t n_heads_kv : {4, 2, 1}) {
      SmallKv kv(3, n_heads_kv, 16);
      std::mt19937 rng(1);
      for (std::int64_t h = 0; h < n_heads_kv; ++h) {
        for (std::int64_t slot = 0; slot < 3; ++slot) {
          for (std::int64_t i = 0; i < 16; ++i) {
            kv.row(0, h, slot)[i] = random_floats(1, rng)[0];
            kv.row(1, h, slot)[i] = 10.0F * static_cast<float>(h + 1);
          }
        }
      }
      const Calls calls{{{0, 3}}, {{0, 1, 3, 0, 0, 1}}};
      const AttentionResult r = run(*backend, kv.view(), random_floats(4 * 16, rng), 4, {2}, calls);
      for (std::int64_t h = 0; h < 4; ++h) {
        const auto right = static_cast<float>(10 * (h / (4 / n_heads_kv) + 1));
        CHECK(r.o[static_cast<std::size_t>(h * 16)] == doctest::Approx(right).epsilon(1e-6));
      }
    }
  }
}

TEST_CASE("BL-13: 70,000 rows in one call, and 70,000 leaves with a call each") {
  constexpr std::int64_t n = 70'000, d = 16;
  std::mt19937 rng(5);
  SmallKv kv(8 + n, 1, d);
  kv.values = random_floats(std::ssize(kv.values), rng);
  const auto q = random_floats(n * d, rng);
  const std::vector<std::int32_t> positions(static_cast<std::size_t>(n), 8);
  Calls calls{{{0, 8}}, {{.run_begin = 0, .run_end = 1, .n_keys = 8, .kv_position = 0, .row_begin = 0, .row_end = n}}};

  const auto check_rows = [&](Backend& backend) {
    const AttentionResult r = run(backend, kv.view(), q, 1, positions, calls);
    const auto reference = make_reference_backend();
    for (const std::int64_t row : {0, 65534, 65535, 65536, 69999}) {
      Calls alone{calls.runs, {}};
      for (AttentionCall call : calls.calls) {
        if (row < call.row_begin || row >= call.row_end) continue;
        call.row_begin = 0;
        call.row_end = 1;
        alone.calls.push_back(call);
      }
      const std::vector<float> query(q.begin() + row * d, q.begin() + (row + 1) * d);
      const AttentionResult right = run(*reference, kv.view(), query, 1, {8}, alone);
      CHECK(r.lse[static_cast<std::size_t>(row)] == doctest::Approx(right.lse[0]).epsilon(1e-5));
      for (std::int64_t i = 0; i < d; ++i) {
        const auto at = static_cast<std::size_t>(row * d + i);
        CHECK(std::fabs(r.o[at] - right.o[static_cast<std::size_t>(i)]) < 1e-5F);
      }
    }
  };
  for (const auto& backend : fast_backends(2)) check_rows(*backend);
  for (std::int64_t leaf = 0; leaf < n; ++leaf) {
    calls.runs.push_back({8 + leaf, 1});
    calls.calls.push_back({leaf + 1, leaf + 2, 1, 8, leaf, leaf + 1});
  }
  for (const auto& backend : fast_backends(2)) check_rows(*backend);
}

TEST_CASE("attention: a row with NaN or infinite queries harms itself alone") {
  std::mt19937 rng(9);
  const Forest clean({.n_nodes = 10, .head_dim = 64, .type = DType::bf16}, rng);
  Forest bad = clean;
  const std::int64_t row = bad.n_rows() / 2, width = bad.shape.n_heads_q * bad.shape.head_dim;
  for (std::int64_t i = 0; i < width; ++i) bad.q[static_cast<std::size_t>(row * width + i)] = NAN;
  for (const auto& backend : all_backends(2)) {
    CAPTURE(backend->describe());
    const AttentionResult right = clean.run(*backend, clean.by_node()), got = bad.run(*backend, bad.by_node());
    for (std::int64_t r = 0; r < bad.n_rows(); ++r) {
      const float* a = right.o.data() + r * width;
      const float* b = got.o.data() + r * width;
      if (r == row) CHECK(std::isnan(b[0]));
      if (r != row) CHECK(std::memcmp(a, b, static_cast<std::size_t>(width) * sizeof(float)) == 0);
    }
  }
}
