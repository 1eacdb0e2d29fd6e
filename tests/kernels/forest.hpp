// Random forests with queries and KV for attention tests, two independent ways to call a kernel on them, and the
// oracle: a softmax in double precision over each row's explicit path, which knows neither calls nor merges.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "banyan/attention_types.hpp"
#include "banyan/types.hpp"
#include "kernels/ops.hpp"
#include "tests/kernels/e4m3_oracle.hpp"

namespace banyan::kernels {

struct Calls {
  std::vector<SlotRun> runs;
  std::vector<AttentionCall> calls;
};

struct AttentionResult {
  std::vector<float> o, lse;
};

class Forest {
 public:
  struct Shape {
    std::int64_t n_nodes = 30, longest_node = 90, n_heads_q = 4, n_heads_kv = 2, head_dim = 64;
    DType type = DType::f32;
    float deviation = 1.0F;  // of queries; large ones make the running maximum move
  };

  struct Node {
    std::int64_t parent = -1, begin = 0, end = 0;  // path positions [begin, end)
    std::int64_t row_begin = 0, row_own_end = 0, row_end = 0;
    std::vector<std::int64_t> slots;  // of its tokens
  };

  Forest(const Shape& s, std::mt19937& rng) : shape(s) {
    grow(rng);
    std::uniform_int_distribution<std::int64_t> n_queries(1, 7);
    for (std::int64_t i = 0; i < s.n_nodes; ++i) {
      if (nodes[at(i)].parent < 0) number_rows(i, n_queries, rng);
    }
    fill(rng);
  }

  std::int64_t n_rows() const { return static_cast<std::int64_t>(positions.size()); }

  // One call per node, for all rows below it: the plain Hydragen cut.
  Calls by_node() const {
    Calls c;
    for (const std::int64_t i : order) {
      const Node& n = nodes[at(i)];
      add_call(c, i, n.begin, n.end, n.row_begin, n.row_end);
    }
    return c;
  }

  // Cut at multiples of kTilePositions: a tile that straddles a fork is computed again on each side. Then cut further,
  // at random multiples and between random rows, which must change no bit.
  Calls by_tile(std::mt19937& rng) const {
    Calls c;
    for (const std::int64_t i : order) {
      const Node& n = nodes[at(i)];
      const std::int64_t begin = down(n.begin), end = std::max(begin, down(n.end));
      add_pieces(c, i, begin, end, n.row_begin, n.row_end, rng);
      add_call(c, i, end, n.end, n.row_begin, n.row_own_end);
    }
    return c;
  }

  // Each row reads its whole path by itself.
  Calls by_row() const {
    Calls c;
    for (const std::int64_t i : order) {
      const Node& n = nodes[at(i)];
      for (std::int64_t r = n.row_begin; r < n.row_own_end; ++r) add_call(c, i, 0, positions[at(r)] + 1, r, r + 1);
    }
    return c;
  }

  AttentionResult run(Backend& backend, const Calls& c) const {
    AttentionResult r;
    r.o.assign(q.size(), -1.0F);
    r.lse.assign(at(n_rows() * shape.n_heads_q), -1.0F);
    backend.begin_step(step(c));
    backend.attention(arguments(r));
    return r;
  }

  StepArrays step(const Calls& c) const {
    return {.n_rows = n_rows(),
            .positions = positions,
            .runs = c.runs,
            .calls = c.calls,
            .n_heads_q = shape.n_heads_q,
            .n_heads_kv = shape.n_heads_kv,
            .head_dim = shape.head_dim};
  }

  AttentionArgs arguments(AttentionResult& r) const {
    AttentionArgs a;
    a.q = q.data();
    a.o = r.o.data();
    a.lse = r.lse.data();
    a.n_heads_q = shape.n_heads_q;
    a.kv = {const_cast<std::byte*>(kv.data()), shape.type, n_slots, shape.n_heads_kv, shape.head_dim,
            const_cast<float*>(scales.data())};
    a.scale = scale();
    return a;
  }

  float scale() const { return 1.0F / std::sqrt(static_cast<float>(shape.head_dim)); }

  struct Oracle {
    std::vector<double> o, lse;
  };
  Oracle oracle() const {
    Oracle r;
    const std::int64_t d = shape.head_dim, group = shape.n_heads_q / shape.n_heads_kv;
    r.o.assign(q.size(), 0.0);
    r.lse.assign(at(n_rows() * shape.n_heads_q), -std::numeric_limits<double>::infinity());
    for (std::int64_t row = 0; row < n_rows(); ++row) {
      const auto slots = path_slots(row_nodes[at(row)], 0, positions[at(row)] + 1);
      for (std::int64_t h = 0; h < shape.n_heads_q; ++h) {
        const float* query = q.data() + (row * shape.n_heads_q + h) * d;
        std::vector<double> scores;
        for (const auto slot : slots) {
          double s = 0;
          for (std::int64_t i = 0; i < d; ++i) s += double{query[i]} * element(0, h / group, slot, i);
          scores.push_back(s * double{scale()});
        }
        const double top = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (const double s : scores) sum += std::exp(s - top);
        double* out = r.o.data() + (row * shape.n_heads_q + h) * d;
        for (std::size_t j = 0; j < slots.size(); ++j) {
          const double p = std::exp(scores[j] - top) / sum;
          for (std::int64_t i = 0; i < d; ++i) out[i] += p * element(1, h / group, slots[j], i);
        }
        r.lse[at(row * shape.n_heads_q + h)] = top + std::log(sum);
      }
    }
    return r;
  }

  // Of the stored keys (which = 0) and values (1).
  double element(std::int64_t which, std::int64_t head, std::int64_t slot, std::int64_t i) const {
    const std::int64_t j = ((which * shape.n_heads_kv + head) * n_slots + slot) * shape.head_dim + i;
    if (shape.type == DType::f32) return reinterpret_cast<const float*>(kv.data())[j];
    if (shape.type == DType::bf16) return to_float(reinterpret_cast<const bf16*>(kv.data())[j]);
    if (shape.type == DType::f8_e4m3) {
      return e4m3_oracle_value(std::to_integer<std::uint8_t>(kv[at(j)])) * double{scales[at(j / shape.head_dim)]};
    }
    return to_float(reinterpret_cast<const f16*>(kv.data())[j]);
  }

  // Slots of path positions [begin, end) of a path through node i.
  std::vector<std::int64_t> path_slots(std::int64_t i, std::int64_t begin, std::int64_t end) const {
    std::vector<std::int64_t> slots;
    if (i < 0 || begin >= end) return slots;
    const Node& n = nodes[at(i)];
    slots = path_slots(n.parent, begin, std::min(end, n.begin));
    for (std::int64_t p = std::max(begin, n.begin); p < std::min(end, n.end); ++p)
      slots.push_back(n.slots[at(p - n.begin)]);
    return slots;
  }

  Shape shape;
  std::vector<Node> nodes;
  std::vector<std::int64_t> order;  // depth-first
  std::vector<float> q;             // [n_rows, n_heads_q, head_dim]
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> row_nodes;
  std::int64_t n_slots = 0;
  std::vector<std::byte> kv;
  std::vector<float> scales;  // [2, n_heads_kv, n_slots] of f8_e4m3

  // Every finite code among the values of a forest in f8_e4m3.
  void scatter_codes(std::mt19937& rng) {
    std::uniform_int_distribution<int> code(0, 253);
    for (auto i = std::ssize(kv) / 2; i < std::ssize(kv); ++i) {
      const int c = code(rng);
      kv[at(i)] = static_cast<std::byte>(c < 127 ? c : c + 1);
    }
  }

  // The same forest, with keys and values of the same numbers in another type that has them.
  Forest with_type(DType type) const {
    Forest f = *this;
    f.shape.type = type;
    f.scales.clear();
    const std::int64_t n = 2 * shape.n_heads_kv * n_slots * shape.head_dim;
    f.kv.assign(at(dtype_bytes(type, n)), std::byte{});
    const std::int64_t plane = n_slots * shape.head_dim;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t which = i / plane / shape.n_heads_kv, head = i / plane % shape.n_heads_kv;
      f.store(i, static_cast<float>(element(which, head, i % plane / shape.head_dim, i % shape.head_dim)));
    }
    return f;
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  static std::int64_t down(std::int64_t position) { return position / kTilePositions * kTilePositions; }

  void grow(std::mt19937& rng) {
    std::uniform_int_distribution<std::int64_t> length(0, shape.longest_node), kind(0, 5);
    std::vector<std::int64_t> depth;
    for (std::int64_t i = 0; i < shape.n_nodes; ++i) {
      Node n;
      if (i > 2) {  // three roots; a later node hangs mostly below a recent one, so that the forest gets deep
        const std::int64_t first = kind(rng) < 4 ? std::max<std::int64_t>(0, i - 4) : 0;
        n.parent = std::uniform_int_distribution<std::int64_t>(first, i - 1)(rng);
        while (depth[at(n.parent)] >= 12) n.parent = nodes[at(n.parent)].parent;
        n.begin = nodes[at(n.parent)].end;
      }
      depth.push_back(n.parent < 0 ? 0 : depth[at(n.parent)] + 1);
      const std::int64_t k = kind(rng);
      n.end = n.begin + (k == 0 ? 0 : k == 1 ? 1 : length(rng));
      n_slots += n.end - n.begin;
      nodes.push_back(n);
    }
    // Slots in runs of random lengths, in random places.
    n_slots += 7;
    std::vector<std::int64_t> free(at(n_slots));
    std::iota(free.begin(), free.end(), 0);
    for (std::int64_t i = 0; i < n_slots;) {
      const std::int64_t n = std::min(n_slots - i, std::uniform_int_distribution<std::int64_t>(1, 40)(rng));
      std::rotate(free.begin(), free.begin() + std::min(n_slots, i + n), free.end());
      i += 2 * n;
    }
    std::size_t next = 0;
    for (Node& n : nodes) {
      for (std::int64_t i = n.begin; i < n.end; ++i) n.slots.push_back(free[next++]);
    }
  }

  void number_rows(std::int64_t i, std::uniform_int_distribution<std::int64_t>& n_queries, std::mt19937& rng) {
    Node& n = nodes[at(i)];
    order.push_back(i);
    n.row_begin = n_rows();
    const std::int64_t wanted =
        n_queries(rng) == 1 ? n.end - n.begin : n_queries(rng);  // a whole prompt, or a few rows
    for (std::int64_t p = std::max(n.begin, n.end - wanted); p < n.end; ++p) {
      positions.push_back(static_cast<std::int32_t>(p));
      row_nodes.push_back(i);
    }
    n.row_own_end = n_rows();
    for (std::int64_t child = i + 1; child < shape.n_nodes; ++child) {
      if (nodes[at(child)].parent == i) number_rows(child, n_queries, rng);
    }
    nodes[at(i)].row_end = n_rows();
  }

  void fill(std::mt19937& rng) {
    std::normal_distribution<float> normal;
    q.resize(at(n_rows() * shape.n_heads_q * shape.head_dim));
    for (float& x : q) x = normal(rng) * shape.deviation;
    const std::int64_t n = 2 * shape.n_heads_kv * n_slots * shape.head_dim;
    kv.resize(at(dtype_bytes(shape.type, n)));
    std::vector<float> row(at(shape.head_dim));
    for (std::int64_t i = 0; i < n; i += shape.head_dim) {
      float largest = 0;
      for (float& x : row) {
        x = normal(rng);
        largest = std::max(largest, std::fabs(x));
      }
      if (shape.type == DType::f8_e4m3) {
        const auto scale = static_cast<float>(e4m3_oracle_scale(double{largest}));
        scales.push_back(scale);
        for (float& x : row) x /= scale;
      }
      for (std::int64_t j = 0; j < shape.head_dim; ++j) store(i + j, row[at(j)]);
    }
  }

  void store(std::int64_t i, float x) {
    if (shape.type == DType::f32) reinterpret_cast<float*>(kv.data())[i] = x;
    if (shape.type == DType::bf16) reinterpret_cast<bf16*>(kv.data())[i] = to_bf16(x);
    if (shape.type == DType::f16) reinterpret_cast<f16*>(kv.data())[i] = to_f16(x);
    if (shape.type == DType::f8_e4m3) kv[at(i)] = std::byte{e4m3_oracle_code(double{x})};
  }

  void add_call(Calls& c, std::int64_t i, std::int64_t begin, std::int64_t end, std::int64_t row_begin,
                std::int64_t row_end) const {
    AttentionCall call;
    call.run_begin = std::ssize(c.runs);
    for (const auto slot : path_slots(i, begin, end)) {
      const bool joins = std::ssize(c.runs) > call.run_begin && c.runs.back().first + c.runs.back().n == slot;
      if (joins) ++c.runs.back().n;
      if (!joins) c.runs.push_back({slot, 1});
    }
    call.run_end = std::ssize(c.runs);
    call.n_keys = std::max<std::int64_t>(0, end - begin);
    call.kv_position = begin;
    call.row_begin = row_begin;
    call.row_end = row_end;
    c.calls.push_back(call);
  }

  void add_pieces(Calls& c, std::int64_t i, std::int64_t begin, std::int64_t end, std::int64_t row_begin,
                  std::int64_t row_end, std::mt19937& rng) const {
    std::uniform_int_distribution<int> coin(0, 2);
    if (end - begin > kTilePositions && coin(rng) != 0) {
      const std::int64_t middle = down((begin + end) / 2);
      add_pieces(c, i, begin, std::max(begin, middle), row_begin, row_end, rng);
      add_pieces(c, i, std::max(begin, middle), end, row_begin, row_end, rng);
    } else if (row_end - row_begin > 1 && coin(rng) == 0) {
      const std::int64_t middle = std::uniform_int_distribution<std::int64_t>(row_begin, row_end)(rng);
      add_call(c, i, begin, end, row_begin, middle);
      add_call(c, i, begin, end, middle, row_end);
    } else {
      add_call(c, i, begin, end, row_begin, row_end);
    }
  }
};

}  // namespace banyan::kernels
