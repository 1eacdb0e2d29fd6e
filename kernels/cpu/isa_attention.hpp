// Attention of one unit (see AttentionUnit). Part of isa_table.hpp.
//
// The unit's queries, their running maxima and sums, and their unnormalised outputs stay in scratch while the calls are
// walked in order, tile after tile of at most kTilePositions keys:
//
//     K tile -> [head_dim][64 keys]  -.                      .-> scores -> maximum, 2^(score - maximum), sum
//     V tile -> [64 keys][head_dim]   |  per block of rows  -|
//                                     '----------------------'-> o = o * correction + p V
//
// Both products go through isa_product.hpp, so each score is one chain over head_dim and each output one chain over the
// tile's keys; sums of p run over lanes in one fixed order. A key that a row does not see has p = 0 exactly, and adding
// it changes no bit. Hence a row's bits depend on its own keys and on where tiles end, and nothing else.
//
// Scores are in base 2: the scale and log2(e) are multiplied into the queries once. With bf16 keys and a bf16 dot
// product, queries and p are rounded to bf16 (relatively by 2^-8 at most); sums of p use the unrounded values.
// Everything else is f32.
#pragma once

#include "kernels/cpu/isa.hpp"
#include "kernels/cpu/isa_product.hpp"
#include "kernels/cpu/isa_rows.hpp"
#include "kernels/cpu/simd.hpp"

namespace banyan::kernels {
namespace {

constexpr std::int64_t kTileKeys = kTilePositions;
static_assert(kTileKeys == kPanelColumns, "a tile of keys is one panel of the score product");
constexpr std::int64_t kRowBlock = 2 * kTileRows;  // packed rows between two visits of scores: 12 x 64 f32 are 3 KiB
constexpr float kMinusInfinity = -__builtin_inff();
constexpr float kLn2 = 0.693147181F;

struct UnitState {
  bool pairs = false;          // bf16 dot products
  std::int64_t n_packed = 0;   // (row, head of group)
  std::int64_t stride = 0;     // head_dim rounded up to 16
  float* q = nullptr;          // [n_packed, stride], or as many bf16 in the first half of the bytes
  float* o = nullptr;          // [n_packed, stride]
  float* maximum = nullptr;    // [n_packed] base 2
  float* sum = nullptr;        // [n_packed]
  float* k_tile = nullptr;     // [head_dim][64], or [head_dim / 2][64][2] in bf16
  float* v_tile = nullptr;     // [stride / 64][64][64], or [stride / 64][32][64][2] in bf16
  float* scores = nullptr;     // [kRowBlock][64]
  std::uint16_t* p = nullptr;  // [kRowBlock][64] in bf16
};

BANYAN_INLINE std::int64_t round_up(std::int64_t n, std::int64_t m) { return (n + m - 1) / m * m; }

// Keys that a row sees of those that begin at path position `first`.
BANYAN_INLINE std::int64_t n_visible(const AttentionUnit& u, std::int64_t row, std::int64_t first, std::int64_t n) {
  return most(0, least(n, u.positions[row] + std::int64_t{1} - first));
}

UnitState begin_unit(const AttentionUnit& u) {
  UnitState s;
  s.pairs = kBf16Dot && u.kv_type == DType::bf16;
  s.n_packed = (u.row_end - u.row_begin) * u.group;
  s.stride = round_up(u.head_dim, 16);
  const std::int64_t n_padded = round_up(s.n_packed, 16);
  auto* next = reinterpret_cast<float*>(u.scratch);
  const auto take = [&next](std::int64_t n) {
    float* p = next;
    next += n;
    return p;
  };
  s.q = take(n_padded * s.stride);
  s.o = take(n_padded * s.stride);
  s.maximum = take(n_padded);
  s.sum = take(n_padded);
  s.k_tile = take(s.stride * kTileKeys);
  s.v_tile = take(round_up(s.stride, kPanelColumns) * kTileKeys);
  s.scores = take(kRowBlock * kTileKeys);
  s.p = reinterpret_cast<std::uint16_t*>(take(kRowBlock * kTileKeys / 2));

  const Vec scale = splat(u.scale * kLog2E);
  for (std::int64_t i = 0; i < s.n_packed; ++i) {
    const std::int64_t row = u.row_begin + i / u.group, head = u.first_head + i % u.group;
    const float* q = u.q + (row * u.n_heads_q + head) * u.head_dim;
    float* scaled = s.pairs ? s.scores : s.q + i * s.stride;  // scores are free still, and longer than any head
    for (std::int64_t j = 0; j < s.stride; j += kWidth) {
      const int n = static_cast<int>(most(0, least(kWidth, u.head_dim - j)));
      store(scaled + j, mul(load_first(q + j, n), scale));
    }
    if (s.pairs) round_bf16(scaled, reinterpret_cast<std::uint16_t*>(s.q) + i * s.stride, s.stride, s.stride);
    s.maximum[i] = kMinusInfinity;
    s.sum[i] = 0.0F;
  }
  for (std::int64_t i = 0; i < s.n_packed * s.stride; i += kWidth) store(s.o + i, splat(0.0F));
  return s;
}

// n elements of a slot's row, from `column` on. scales: of the slots' rows, in f8_e4m3.
BANYAN_INLINE Vec widen(const AttentionUnit& u, const void* base, const float* scales, std::int64_t slot,
                        std::int64_t column, int n) {
  const std::int64_t index = slot * u.head_dim + column;
  if (u.kv_type == DType::f32) return load_first(static_cast<const float*>(base) + index, n);
  if (u.kv_type == DType::f8_e4m3) {
    return mul(widen_e4m3(static_cast<const std::uint8_t*>(base) + index, n), splat(scales[slot]));
  }
  const std::uint16_t* p = static_cast<const std::uint16_t*>(base) + index;
  return u.kv_type == DType::f16 ? widen_f16(p, n) : widen_bf16(p, n);
}

// n pairs of bf16 as lanes of 32 bits; of the last pair only the first half if n_elements is odd.
BANYAN_INLINE Vec load_pairs(const void* base, std::int64_t index, std::int64_t n_elements) {
#if defined(__AVX512BF16__)
  const std::uint16_t* p = static_cast<const std::uint16_t*>(base) + index;
  const __mmask32 mask = n_elements >= 32 ? 0xffffffffu : (1u << n_elements) - 1u;
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(mask, p));
#else
  (void)base, (void)index, (void)n_elements;
  return splat(0.0F);
#endif
}

// n elements from `column` on of the bf16 rows of two slots, as lanes of (first, second); 0 for slot -1.
BANYAN_INLINE Vec interleave(const void* base, std::int64_t head_dim, std::int64_t first, std::int64_t second,
                             std::int64_t column, int n) {
#if defined(__AVX512BF16__)
  const auto* v = static_cast<const std::uint16_t*>(base) + column;
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), v + first * head_dim));
  if (second < 0) return _mm512_castsi512_ps(low);
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), v + second * head_dim));
  return _mm512_castsi512_ps(_mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
#else
  (void)base, (void)head_dim, (void)first, (void)second, (void)column, (void)n;
  return splat(0.0F);
#endif
}

// K rows of the slots -> s.k_tile, a column per key; columns behind the last key up to a whole vector are 0.
void pack_keys(const AttentionUnit& u, const UnitState& s, const std::int64_t* slots, std::int64_t n_keys) {
  const std::int64_t n_rows = s.pairs ? (u.head_dim + 1) / 2 : u.head_dim;  // of the tile: lanes of 32 bits
  for (std::int64_t key = 0; key < round_up(n_keys, 16); key += kWidth) {
    for (std::int64_t i = 0; i < n_rows; i += kWidth) {
      Vec rows[kWidth];
      const int n = static_cast<int>(least(kWidth, n_rows - i));
#pragma GCC unroll 16
      for (int j = 0; j < kWidth; ++j) {
        rows[j] = splat(0.0F);
        if (key + j >= n_keys) continue;
        rows[j] = s.pairs ? load_pairs(u.k, slots[key + j] * u.head_dim + 2 * i, u.head_dim - 2 * i)
                          : widen(u, u.k, u.k_scales, slots[key + j], i, n);
      }
      store_transposed(rows, s.k_tile + i * kTileKeys + key, kTileKeys, n);
    }
  }
}

// V rows of the slots -> s.v_tile; columns behind head_dim are 0, and so is the key that completes the last pair.
void pack_values(const AttentionUnit& u, const UnitState& s, const std::int64_t* slots, std::int64_t n_keys) {
  const std::int64_t step = s.pairs ? 2 : 1, panel = kTileKeys * kPanelColumns / step;
  for (std::int64_t key = 0; key < n_keys; key += step) {
    for (std::int64_t column = 0; column < s.stride; column += kWidth) {
      float* out = s.v_tile + column / kPanelColumns * panel + key / step * kPanelColumns + column % kPanelColumns;
      const int n = static_cast<int>(most(0, least(kWidth, u.head_dim - column)));
      const std::int64_t second = key + 1 < n_keys ? slots[key + 1] : -1;
      store(out, s.pairs ? interleave(u.v, u.head_dim, slots[key], second, column, n)
                         : widen(u, u.v, u.v_scales, slots[key], column, n));
    }
  }
}

// Scores of n rows -> p in place (in s.p too, for bf16), correction[r] for what was summed before; maximum and sum of
// the packed rows from `first` on are brought up to date. Row r sees visible[r] keys, 0 leaves its state unchanged.
BANYAN_INLINE void softmax_block(const UnitState& s, std::int64_t first, std::int64_t n, const std::int32_t* visible,
                                 std::int64_t n_keys, float (&correction)[16]) {
  const std::int64_t n_vectors = (n_keys + kWidth - 1) / kWidth;
  const Vec nothing = splat(kMinusInfinity);
  float base[16];  // what is subtracted: the new maximum, or 0 while that is -inf, so that no -inf - -inf arises
  for (std::int64_t r = 0; r < n; ++r) {
    const float* row = s.scores + r * kTileKeys;
    Vec largest = nothing;
    for (std::int64_t i = 0; i < n_vectors; ++i) {
      const int seen = static_cast<int>(most(0, least(kWidth, visible[r] - i * kWidth)));
      largest = max_of(largest, keep_first(load(row + i * kWidth), seen, nothing));
    }
    const float tile = largest_of(largest);
    const float old = s.maximum[first + r];
    const float now = tile > old ? tile : old;
    base[r] = now == kMinusInfinity ? 0.0F : now;
    correction[r] = old - base[r];
    s.maximum[first + r] = now;
  }
  for (std::int64_t r = n; r < 16; ++r) correction[r] = 0.0F;
  for (int i = 0; i < 16; i += kWidth) store(correction + i, exp2_of(load(correction + i)));
  for (std::int64_t r = 0; r < n; ++r) {
    float* row = s.scores + r * kTileKeys;
    Vec sum = splat(0.0F);
    for (std::int64_t i = 0; i < n_vectors; ++i) {
      const int seen = static_cast<int>(most(0, least(kWidth, visible[r] - i * kWidth)));
      const Vec p = exp2_of(sub(keep_first(load(row + i * kWidth), seen, nothing), splat(base[r])));
      sum = add(sum, p);
#if defined(__AVX512BF16__)
      if (s.pairs) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(s.p + r * kTileKeys + i * kWidth),
                            (__m256i)_mm512_cvtneps_pbh(p));
      }
#endif
      store(row + i * kWidth, p);
    }
    s.sum[first + r] = s.sum[first + r] * correction[r] + sum_of(sum);
  }
}

// All packed rows [packed_begin, packed_end) against the tile in s.k_tile and s.v_tile.
void attend_tile(const AttentionUnit& u, const UnitState& s, std::int64_t packed_begin, std::int64_t packed_end,
                 std::int64_t position, std::int64_t n_keys) {
  const auto product = s.pairs ? gemm_bf16 : gemm_f32;
  for (std::int64_t first = packed_begin; first < packed_end; first += kRowBlock) {
    const std::int64_t n = least(kRowBlock, packed_end - first);
    std::int32_t visible[kRowBlock];
    for (std::int64_t r = 0; r < n; ++r) {
      visible[r] = static_cast<std::int32_t>(n_visible(u, u.row_begin + (first + r) / u.group, position, n_keys));
    }
    PanelProduct qk;
    qk.a = s.pairs ? static_cast<const void*>(reinterpret_cast<const std::uint16_t*>(s.q) + first * s.stride)
                   : s.q + first * s.stride;
    qk.a_stride = s.stride;
    qk.b = s.k_tile;
    qk.c = s.scores;
    qk.c_stride = kTileKeys;
    qk.n_rows = n;
    qk.n_columns = round_up(n_keys, 16);
    qk.k = u.head_dim;
    product(qk);

    float correction[16];
    softmax_block(s, first, n, visible, qk.n_columns, correction);

    PanelProduct pv;
    pv.a = s.pairs ? static_cast<const void*>(s.p) : s.scores;
    pv.a_stride = kTileKeys;
    pv.c_stride = s.stride;
    pv.n_rows = n;
    pv.k = n_keys;
    pv.load_c = true;
    pv.row_scale = correction;
    const std::int64_t panel = kTileKeys * kPanelColumns / (s.pairs ? 2 : 1);
    for (std::int64_t column = 0; column < s.stride; column += kPanelColumns) {
      pv.b = s.v_tile + column / kPanelColumns * panel;
      pv.c = s.o + first * s.stride + column;
      pv.n_columns = least(kPanelColumns, s.stride - column);
      product(pv);
    }
  }
}

// The tiles of a unit's calls, in order. A tile ends where the call does, or at a multiple of kTilePositions.
struct KeyTile {
  std::int64_t position = 0;          // of its first key
  std::int64_t n_keys = 0;            // 1 to kTileKeys
  std::int64_t row = 0, row_end = 0;  // rows that may see it; the first does
  std::int64_t slots[kTileKeys] = {};
};

class TileWalk {
 public:
  explicit TileWalk(const AttentionUnit& u) : u_(u) {}

  bool next(KeyTile& t) {
    while (first_ == n_keys_) {
      if (n_begun_ == u_.n_calls) return false;
      begin_call(u_.calls[u_.call_index[n_begun_++]]);
    }
    t.position = kv_position_ + first_;
    t.n_keys = least(kTileKeys - t.position % kTileKeys, n_keys_ - first_);
    while (n_visible(u_, row_, t.position, t.n_keys) == 0) ++row_;  // of a causal call the first rows are done
    t.row = row_;
    t.row_end = row_end_;
    take_slots(t.n_keys, t.slots);
    first_ += t.n_keys;
    return true;
  }

 private:
  void begin_call(const AttentionCall& call) {
    row_ = most(call.row_begin, u_.row_begin);
    row_end_ = least(call.row_end, u_.row_end);
    kv_position_ = call.kv_position;
    first_ = n_keys_ = 0;
    for (std::int64_t r = row_; r < row_end_; ++r) {
      n_keys_ = most(n_keys_, n_visible(u_, r, call.kv_position, call.n_keys));
    }
    run_ = u_.runs + call.run_begin;
    offset_ = 0;
  }

  void take_slots(std::int64_t n, std::int64_t* slots) {
    while (n > 0) {
      while (offset_ == run_->n) {
        ++run_;
        offset_ = 0;
      }
      const std::int64_t m = least(n, run_->n - offset_);
      for (std::int64_t i = 0; i < m; ++i) slots[i] = run_->first + offset_ + i;
      slots += m;
      offset_ += m;
      n -= m;
    }
  }

  const AttentionUnit& u_;
  std::int64_t n_begun_ = 0;             // calls
  std::int64_t first_ = 0, n_keys_ = 0;  // of the call: keys handed out, keys that some row sees
  std::int64_t row_ = 0, row_end_ = 0, kv_position_ = 0;
  const SlotRun* run_ = nullptr;
  std::int64_t offset_ = 0;  // in *run_
};

// Private keys come from memory and are used by few rows: asking for them one tile ahead hides the way.
void prefetch_tile(const AttentionUnit& u, const KeyTile& t) {
  const std::int64_t row_bytes = u.head_dim * (u.kv_type == DType::f32 ? 4 : u.kv_type == DType::f8_e4m3 ? 1 : 2);
  const void* const bases[] = {u.k, u.v};
  for (const void* base : bases) {
    for (std::int64_t i = 0; i < t.n_keys; ++i) {
      const char* p = static_cast<const char*>(base) + t.slots[i] * row_bytes;
      for (std::int64_t j = 0; j < row_bytes; j += 64) __builtin_prefetch(p + j);
    }
  }
}

void end_unit(const AttentionUnit& u, const UnitState& s) {
  for (std::int64_t i = 0; i < s.n_packed; ++i) {
    const std::int64_t row = u.row_begin + i / u.group, head = u.first_head + i % u.group;
    const float sum = s.sum[i];
    const Vec inverse = splat(sum == 0.0F ? 0.0F : 1.0F / sum);  // the empty set: o is 0, and stays 0
    float* o = u.o + (row * u.n_heads_q + head) * u.head_dim;
    for (std::int64_t j = 0; j < u.head_dim; j += kWidth) {
      store_first(o + j, mul(load(s.o + i * s.stride + j), inverse), lanes(u.head_dim - j));
    }
    if (u.lse != nullptr) {
      u.lse[row * u.n_heads_q + head] = sum == 0.0F ? kMinusInfinity : s.maximum[i] * kLn2 + __builtin_logf(sum);
    }
  }
}

void attention(const AttentionUnit& u) {
  const UnitState s = begin_unit(u);
  TileWalk walk(u);
  KeyTile tiles[2];
  int now = 0;
  for (bool more = walk.next(tiles[now]); more; now = 1 - now) {
    const KeyTile& t = tiles[now];
    pack_keys(u, s, t.slots, t.n_keys);
    pack_values(u, s, t.slots, t.n_keys);
    more = walk.next(tiles[1 - now]);
    if (more) prefetch_tile(u, tiles[1 - now]);
    attend_tile(u, s, (t.row - u.row_begin) * u.group, (t.row_end - u.row_begin) * u.group, t.position, t.n_keys);
  }
  end_unit(u, s);
}

}  // namespace
}  // namespace banyan::kernels
