// Products with one panel. Part of isa_table.hpp.
//
// A tile of up to kTileRows x kTileVectors vectors of the result stays in registers while k runs. Each element of the
// result is one chain over k whatever the tile's height, so the height is free to follow the number of rows.
#pragma once

#include "kernels/cpu/simd.hpp"

namespace banyan::kernels {
namespace {

constexpr int kTileRows = 6;
constexpr std::int64_t least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
constexpr std::int64_t most(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

#if defined(__AVX512BF16__)
constexpr bool kBf16Dot = true;
using Bf16Operand = std::uint16_t;  // what round_bf16 writes
#else
constexpr bool kBf16Dot = false;
using Bf16Operand = float;  // rounded to bf16
#endif

BANYAN_INLINE Vec load_bits(const std::uint16_t* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

// Bytes to ask for while a tile is computed: `step` more with each k.
struct Prefetch {
  const char* p = nullptr;
  std::int64_t step = 0;
};

template <int R, int V>
BANYAN_INLINE void begin_tile(const PanelProduct& p, const float* c, std::int64_t row, Vec (&sum)[R][V]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      sum[r][v] = p.load_c ? load(c + r * p.c_stride + v * kWidth) : splat(0.0F);
      if (p.row_scale != nullptr) sum[r][v] = mul(sum[r][v], splat(p.row_scale[row + r]));
    }
  }
}

template <int R, int V>
BANYAN_INLINE void end_tile(const PanelProduct& p, float* c, std::int64_t column, const Vec (&sum)[R][V]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const Vec bias = p.bias != nullptr ? load(p.bias + column + v * kWidth) : splat(0.0F);
      store(c + r * p.c_stride + v * kWidth, p.bias != nullptr ? add(sum[r][v], bias) : sum[r][v]);
    }
  }
}

template <int R, int V>
void tile_f32(const PanelProduct& p, std::int64_t row, std::int64_t column, Prefetch next) {
  const float* a = static_cast<const float*>(p.a) + row * p.a_stride;
  const float* b = static_cast<const float*>(p.b) + column;
  float* c = p.c + row * p.c_stride + column;
  Vec sum[R][V];
  begin_tile(p, c, row, sum);
  for (std::int64_t k = 0; k < p.k; ++k, b += kPanelColumns, next.p += next.step) {
    __builtin_prefetch(next.p);
    Vec w[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) w[v] = load(b + v * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec x = splat(a[r * p.a_stride + k]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = fma(x, w[v], sum[r][v]);
    }
  }
  end_tile(p, c, column, sum);
}

template <int R, int V>
void tile_bf16(const PanelProduct& p, std::int64_t row, std::int64_t column, Prefetch next) {
  const Bf16Operand* a = static_cast<const Bf16Operand*>(p.a) + row * p.a_stride;
  const std::uint16_t* b = static_cast<const std::uint16_t*>(p.b) + 2 * column;
  float* c = p.c + row * p.c_stride + column;
  Vec sum[R][V];
  begin_tile(p, c, row, sum);
  for (std::int64_t k = 0; k < p.k; k += 2, b += 2 * kPanelColumns, next.p += next.step) {
    __builtin_prefetch(next.p);
#if defined(__AVX512BF16__)
    Vec w[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) w[v] = load_bits(b + 2 * v * kWidth);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      std::int32_t pair;
      __builtin_memcpy(&pair, a + r * p.a_stride + k, sizeof(pair));
      const __m512i x = _mm512_set1_epi32(pair);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)x, (__m512bh)w[v]);
    }
#else
    // One half of the pairs after the other: both at once need more registers than AVX2 has.
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      Vec w[V];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        const Vec pairs = load_bits(b + 2 * v * kWidth);
        w[v] = half == 0 ? first_halves(pairs) : second_halves(pairs);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Vec x = splat(a[r * p.a_stride + k + half]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sum[r][v] = fma(x, w[v], sum[r][v]);
      }
    }
#endif
  }
  end_tile(p, c, column, sum);
}

using Tile = void (*)(const PanelProduct&, std::int64_t row, std::int64_t column, Prefetch);

// Vectors of columns that a tile of so many rows takes at once. With 16 registers, few rows leave room for many
// columns, which makes enough independent chains and reads the panel in its own order.
constexpr int most_vectors(int n_rows) {
  if (kWidth == 16) return 4;
  return n_rows == 1 ? 8 : n_rows <= 3 ? 4 : 2;
}
// With n_left vectors to go. Without 512-bit vectors, only powers of two are compiled.
constexpr int tile_vectors(int n_rows, std::int64_t n_left) {
  int n = most_vectors(n_rows);
  while (n > n_left) n = kWidth == 16 ? n - 1 : n / 2;
  return n;
}
constexpr bool is_compiled(int n_rows, int n_vectors) { return tile_vectors(n_rows, n_vectors) == n_vectors; }

struct TileRow {
  Tile by_vectors[8] = {};  // [n - 1]
};
template <int R, int V>
constexpr void add_tiles(TileRow& f32, TileRow& bf16) {
  if constexpr (is_compiled(R, V)) {
    f32.by_vectors[V - 1] = tile_f32<R, V>;
    bf16.by_vectors[V - 1] = tile_bf16<R, V>;
  }
  if constexpr (V < 8) add_tiles<R, V + 1>(f32, bf16);
}
struct TileTable {
  TileRow f32[kTileRows], bf16[kTileRows];  // [n_rows - 1]
};
template <int R = 1>
constexpr TileTable make_tiles(TileTable t = {}) {
  add_tiles<R, 1>(t.f32[R - 1], t.bf16[R - 1]);
  if constexpr (R < kTileRows) return make_tiles<R + 1>(t);
  return t;
}
constexpr TileTable kTiles = make_tiles();

// Covers the rows with tiles of nearly equal height, all columns of the panel before the next rows.
BANYAN_INLINE void product(const PanelProduct& p, const TileRow (&tiles)[kTileRows]) {
  if (p.n_rows <= 0) return;
  const std::int64_t n_tiles = (p.n_rows + kTileRows - 1) / kTileRows, n_vectors = p.n_columns / kWidth;
  // A panel has 256 bytes per k in f32 and per two in bf16: the next one is asked for evenly over all passes of k.
  const std::int64_t n_passes = n_tiles * ((n_vectors + kTileVectors - 1) / kTileVectors);
  Prefetch next{static_cast<const char*>(p.prefetch != nullptr ? p.prefetch : p.b), 0};
  if (p.prefetch != nullptr) next.step = 4 * kPanelColumns / n_passes;
  for (std::int64_t i = 0, row = 0; i < n_tiles; ++i) {
    const int n = static_cast<int>(p.n_rows / n_tiles + (i < p.n_rows % n_tiles ? 1 : 0));
    for (std::int64_t v = 0; v < n_vectors;) {
      const int taken = tile_vectors(n, n_vectors - v);
      tiles[n - 1].by_vectors[taken - 1](p, row, v * kWidth, next);
      v += taken;
      next.p += next.step * p.k;
    }
    row += n;
  }
}

void gemm_f32(const PanelProduct& p) { product(p, kTiles.f32); }
void gemm_bf16(const PanelProduct& p) { product(p, kTiles.bf16); }

void round_bf16(const float* x, void* dst, std::int64_t n, std::int64_t n_padded) {
  auto* out = static_cast<Bf16Operand*>(dst);
  for (std::int64_t i = 0; i < n; i += kWidth) {
    const int m = static_cast<int>(least(kWidth, n - i));
#if defined(__AVX512BF16__)
    const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(load_first(x + i, m));
    _mm256_mask_storeu_epi16(out + i, first_lanes(m), rounded);
#else
    for (int j = 0; j < m; ++j) {
      const std::uint32_t u = static_cast<std::uint32_t>(bf16_bits(x[i + j])) << 16;
      __builtin_memcpy(out + i + j, &u, sizeof(u));
    }
#endif
  }
  for (std::int64_t i = n; i < n_padded; ++i) out[i] = 0;
}

}  // namespace
}  // namespace banyan::kernels
