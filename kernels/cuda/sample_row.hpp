// One query answered by one group of threads: the algorithm of the device sampler, free of CUDA. Layer 4.
//
// Gives the tokens of sampler.hpp bit for bit: weights are whole numbers (kernels/sample_math.hpp), whose sums do not
// depend on the order, and every cut goes through the order (larger logit, lower id). Log-probabilities go through
// float sums in an order fixed by the group's size.
//
// A Group is the block of a kernel, or, in tests, one thread or some threads of the host; so all that is decided here
// is tested without a GPU. It has warps of kLanes threads, and:
//   rank() size() lane() warp() n_warps() sync()
//   reduce(v, op), sum(v) over all threads, with the result for all; exclusive_sum(v) in rank order
//   warp_sum(v), warp_exclusive_sum(v): within a warp, in lane order
//   fetch_add(p, v) fetch_or(p, v) exchange(p, v): atomic, on words that the group shares
//   load4(row, i, n, x): x[j] = row[i + j], -inf from n on
//   fast_exp2(x): to a few units in the last place; may differ between groups
//   random_bits(query)
// All threads of a group call everything together.
//
// Passes over a row. The first one brings it from memory, later ones find it in the L2 cache, as a row stays with its
// block until it is done. One pass finds maximum, likeliest token and log-sum: greedy and log-probabilities need no
// more. A plain draw takes a second one (sums of segments; then one segment again). A cut (top-k, top-p, the list of
// the likeliest) takes two: a histogram over the distance to the maximum counts; the bins that can hold the border are
// gathered in shared memory and sorted. Where these are too many for it (thousands of equal logits), the border is
// found by narrowing the logits instead, in seventeen passes.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/sample_types.hpp"
#include "kernels/sample_math.hpp"

// In a .cu this is device code: a block's barriers and shuffles have no meaning on the host.
#ifdef __CUDACC__
#define BANYAN_ROW_CODE __device__ __forceinline__
#define BANYAN_ROW_CALL __device__ __noinline__  // one copy, with registers of its own
#define BANYAN_UNROLL _Pragma("unroll")
#else
#define BANYAN_ROW_CODE inline
#define BANYAN_ROW_CALL inline
#define BANYAN_UNROLL
#endif

namespace banyan::kernels::cuda {

using sampling::Weight;

constexpr int kSegment = 512;  // tokens that a warp takes at a time
constexpr int kMaxSegments = sampling::kMaxVocab / kSegment;
constexpr int kBins = 4096;
constexpr int kList = kMaxTop;

// Keeps x > logit, and of equal ones the ids up to `id`.
struct Cut {
  float logit = 0;
  std::int32_t id = 0;
};
BANYAN_ROW_CODE bool kept(Cut cut, std::int32_t i, float x) { return x > cut.logit || (x == cut.logit && i <= cut.id); }

struct RowStats {
  float max = 0, min = 0;  // min: of those that are not masked
  std::int32_t argmax = 0;
  RowStatus status = RowStatus::good;
  std::int32_t bad_token = 0;
  double log_sum = 0;  // ln sum exp(x - max)
};

// What the threads of a group share.
struct RowScratch {
  std::uint64_t list[kList];     // the order keys of candidates
  Weight segment[kMaxSegments];  // sums
  std::uint32_t bins[kBins];     // counts
  RowStats raw, edited;          // of the row as it came, and with penalties
  std::uint32_t n_list;
  std::int32_t first_bin, last_bin;
  std::int32_t found_segment, found_token;
  Weight left;
  Cut cut;
};

// Larger logit first, then lower id, as ascending integers.
BANYAN_ROW_CODE std::uint64_t order_key(std::int32_t i, float x) {
  return static_cast<std::uint64_t>(~sampling::ordered_bits(x)) << 32 | static_cast<std::uint32_t>(i);
}
BANYAN_ROW_CODE float key_logit(std::uint64_t key) {
  return sampling::from_ordered_bits(~static_cast<std::uint32_t>(key >> 32));
}
BANYAN_ROW_CODE std::int32_t key_id(std::uint64_t key) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(key));
}

// How a selection measures tokens: each counts 1, or its weight.
struct Measure {
  bool by_weight = false;
  float max = 0, scale = 0;  // of the weights

  BANYAN_ROW_CODE Weight of(float x) const {
    return by_weight ? sampling::weight_of(sampling::exp_of(x, max, scale)) : 1;
  }
};

// Bins of equal width in the distance to the maximum, in octaves of the weight. A smaller logit never has a smaller
// bin; the last one takes all that is beyond, masked tokens too.
struct Binning {
  static constexpr float kMaxOctaves = 46;  // weights are 0 from 45 on

  float max, scale;  // scale: octaves per unit of the logit
  float width, per_octave;

  BANYAN_ROW_CODE Binning(float max_logit, float min_logit, float octaves_per_unit)
      : max(max_logit), scale(octaves_per_unit) {
    const float span = sampling::mul(sampling::sub(max_logit, min_logit), scale);
    const float octaves = span < kMaxOctaves ? span : kMaxOctaves;
    const bool flat = !(octaves > 1e-30F);
    width = flat ? 0 : octaves / kBins;
    per_octave = flat ? 0 : kBins / octaves;
  }
  // NaN (a mask at a huge temperature) falls into the last bin.
  BANYAN_ROW_CODE int bin(float x) const {
    const float b = sampling::mul(sampling::mul(sampling::sub(max, x), scale), per_octave);
    return b < kBins - 1 ? static_cast<int>(b) : kBins - 1;
  }
  // Bounds of the measure of a token in a bin. Rounding moves an edge by up to 2^-22 of its 46 octaves, the weight by
  // 0.8e-5 of itself; 4e-5 is more than enough.
  BANYAN_ROW_CODE Weight most(int bin, const Measure& m) const {
    if (!m.by_weight) return 1;
    const double e = sampling::exp2_of(-width * static_cast<float>(bin));
    return static_cast<Weight>(e * 1.00004 * 0x1p44) + 1;
  }
  BANYAN_ROW_CODE Weight least(int bin, const Measure& m) const {
    if (!m.by_weight) return 1;
    const double e = bin == kBins - 1 ? 0 : sampling::exp2_of(-width * static_cast<float>(bin + 1));
    const auto w = static_cast<Weight>(e * 0.99996 * 0x1p44);
    return w > 0 ? w - 1 : 0;
  }
};

// Sorts list [n], n a power of two from 2 on, that the group shares and all of it sees.
template <class Group, class T, class Before>
BANYAN_ROW_CODE void bitonic_sort(Group g, T* list, std::int32_t n, Before before) {
  for (std::int32_t run = 2; run <= n; run *= 2) {
    for (std::int32_t apart = run / 2; apart > 0; apart /= 2) {
      for (std::int32_t pair = g.rank(); pair < n / 2; pair += g.size()) {
        const std::int32_t i = 2 * pair - (pair & (apart - 1));
        const T a = list[i], b = list[i + apart];
        const bool ascending = (i & run) == 0;
        if (ascending ? before(b, a) : before(a, b)) {
          list[i] = b;
          list[i + apart] = a;
        }
      }
      g.sync();
    }
  }
}

template <class Group>
class RowSampler {
 public:
  BANYAN_ROW_CODE RowSampler(Group group, RowScratch& scratch) : g_(group), s_(scratch) {}

  // row [vocab_size]; history: the flat tokens. Only with penalties: edited [vocab_size] is scratch, counts
  // [vocab_size] is 0 and is left 0. choice, top (of all queries) are written.
  BANYAN_ROW_CODE void answer(const RowQuery& q, const float* row, std::int32_t vocab_size, const std::int32_t* history,
                              float* edited, std::uint32_t* counts, RowChoice* choice, RowTop* top) {
    const RowStats& raw = s_.raw;
    scan(g_, s_, row, vocab_size, s_.raw);
    if (raw.status != RowStatus::good) {
      if (g_.rank() == 0) *choice = {raw.bad_token, row[raw.bad_token], 0, raw.status};
      return;
    }
    std::int32_t n_top = q.kind == RowQuery::logprob ? 0 : q.n_top;
    n_top = n_top < vocab_size ? n_top : vocab_size;
    if (n_top > 0) list_top(g_, s_, row, vocab_size, n_top, top + q.top_begin);

    std::int32_t token = q.kind == RowQuery::logprob ? q.target : -1;
    if (q.kind == RowQuery::draw) {
      if (q.penalties != 0) {
        penalise(g_, s_, q, row, vocab_size, history + q.history_begin, edited, counts);
        scan(g_, s_, edited, vocab_size, s_.edited);
        token = choose(q, edited, vocab_size, s_.edited);
      } else {
        token = choose(q, row, vocab_size, raw);
      }
    }
    if (g_.rank() == 0) *choice = {token, token < 0 ? 0 : to_logprob(row[token], raw), n_top, RowStatus::good};
  }

 private:
  static constexpr float kInfinity = sampling::kInfinity, kMaxFinite = sampling::kMaxFinite;

  struct Min {
    template <class T>
    BANYAN_ROW_CODE T operator()(T a, T b) const {
      return a < b ? a : b;
    }
  };
  struct Max {
    template <class T>
    BANYAN_ROW_CODE T operator()(T a, T b) const {
      return a > b ? a : b;
    }
  };

  BANYAN_ROW_CODE static Cut all() { return {-kInfinity, static_cast<std::int32_t>(sampling::kMaxVocab)}; }
  BANYAN_ROW_CODE static std::int32_t n_segments(std::int32_t n) { return (n + kSegment - 1) / kSegment; }
  BANYAN_ROW_CODE static float to_logprob(float logit, const RowStats& s) {
    return static_cast<float>(static_cast<double>(logit) - s.max - s.log_sum);
  }

  // --- passes ---

  // What a lane has under way at once: logits of ids that ascend, -inf for ids >= n.
  struct Batch {
    static constexpr int kStep = 4 * Group::kLanes;
    static constexpr int kLoads = kSegment / kStep < 4 ? kSegment / kStep : 4;
    std::int32_t base;
    float x[kLoads][4];

    // f(i, x) for each.
    template <class F>
    BANYAN_ROW_CODE void each(F&& f) const {
      BANYAN_UNROLL
      for (int load = 0; load < kLoads; ++load) {
        BANYAN_UNROLL
        for (int j = 0; j < 4; ++j) f(base + load * kStep + j, x[load][j]);
      }
    }
  };
  template <class F>
  BANYAN_ROW_CODE void for_batches(const float* row, std::int32_t n, std::int32_t segment, F&& f) {
    const std::int32_t begin = segment * kSegment, end = begin + kSegment < n ? begin + kSegment : n;
    Batch batch;
    for (batch.base = begin + 4 * g_.lane(); batch.base < end; batch.base += Batch::kLoads * Batch::kStep) {
      BANYAN_UNROLL
      for (int load = 0; load < Batch::kLoads; ++load) {
        g_.load4(row, batch.base + load * Batch::kStep, n, batch.x[load]);
      }
      f(batch);
    }
  }
  // f(i, x) for each token of a segment, ids ascending for each lane; for ids >= n too, with x = -inf.
  template <class F>
  BANYAN_ROW_CODE void for_segment(const float* row, std::int32_t n, std::int32_t segment, F&& f) {
    for_batches(row, n, segment, [&](const Batch& batch) { batch.each(f); });
  }
  template <class F>
  BANYAN_ROW_CODE void for_row(const float* row, std::int32_t n, F&& f) {
    for (std::int32_t segment = g_.warp(); segment < n_segments(n); segment += g_.n_warps()) {
      for_segment(row, n, segment, f);
    }
  }

  // Sets stats, which the group shares.
  BANYAN_ROW_CALL static void scan(Group g, RowScratch& s, const float* row, std::int32_t n, RowStats& stats) {
    const RowStats found = RowSampler(g, s).scan_row(row, n);
    if (g.rank() == 0) stats = found;
    g.sync();
  }
  BANYAN_ROW_CODE RowStats scan_row(const float* row, std::int32_t n) {
    // The sum is relative to the largest logit so far; of a batch in float, over batches in double.
    float best = -kInfinity, least = kInfinity;
    double sum = 0;
    std::int32_t at = n, bad = n;
    const auto add_batch = [&](const Batch& batch) {
      float largest = -kInfinity;
      bool finite = true;
      batch.each([&](std::int32_t, float x) {
        largest = x > largest ? x : largest;
        least = x > -kInfinity && x < least ? x : least;
        finite = finite && x <= kMaxFinite;
      });
      if (!finite) {
        batch.each([&](std::int32_t i, float x) { bad = !(x <= kMaxFinite) && i < bad ? i : bad; });
      }
      if (largest > best) {
        sum *= static_cast<double>(g_.fast_exp2((best - largest) * sampling::kLog2E));
        best = largest;
        at = n;
        batch.each([&](std::int32_t i, float x) { at = x == largest && i < at ? i : at; });
      }
      if (best == -kInfinity) return;
      float of_batch = 0;
      batch.each([&](std::int32_t, float x) { of_batch += g_.fast_exp2((x - best) * sampling::kLog2E); });
      sum += static_cast<double>(of_batch);
    };
    for (std::int32_t segment = g_.warp(); segment < n_segments(n); segment += g_.n_warps()) {
      for_batches(row, n, segment, add_batch);
    }
    RowStats r;
    r.bad_token = g_.reduce(bad, Min());
    r.max = g_.reduce(best, Max());
    r.status = r.bad_token < n ? RowStatus::not_finite : r.max == -kInfinity ? RowStatus::all_masked : RowStatus::good;
    if (r.status == RowStatus::all_masked) r.bad_token = 0;
    if (r.status != RowStatus::good) return r;
    r.min = g_.reduce(least, Min());
    r.argmax = g_.reduce(best == r.max ? at : n, Min());
    r.log_sum = log(g_.sum(sum * static_cast<double>(g_.fast_exp2((best - r.max) * sampling::kLog2E))));
    return r;
  }

  // Sets the sums of segments of weigh(i, x) (0 for ids beyond the row); returns the total.
  template <class F>
  BANYAN_ROW_CODE Weight sum_segments(const float* row, std::int32_t n, const F& weigh) {
    g_.sync();
    for (std::int32_t segment = g_.warp(); segment < n_segments(n); segment += g_.n_warps()) {
      Weight sum = 0;
      for_segment(row, n, segment, [&](std::int32_t i, float x) { sum += weigh(i, x); });
      sum = g_.warp_sum(sum);
      if (g_.lane() == 0) s_.segment[segment] = sum;
    }
    g_.sync();
    Weight mine = 0;
    for (std::int32_t i = g_.rank(); i < n_segments(n); i += g_.size()) mine += s_.segment[i];
    return g_.sum(mine);
  }

  // After sum_segments(): the first token, in id order, with a cumulative sum > left; left < total.
  template <class F>
  BANYAN_ROW_CODE std::int32_t locate(const float* row, std::int32_t n, const F& weigh, Weight left) {
    const Range mine = chunk(n_segments(n));
    Weight sum = 0;
    for (std::int32_t i = mine.begin; i < mine.end; ++i) sum += s_.segment[i];
    const Weight before = g_.exclusive_sum(sum);
    if (before <= left && left - before < sum) {
      std::int32_t i = mine.begin;
      Weight rest = left - before;
      for (; rest >= s_.segment[i]; ++i) rest -= s_.segment[i];
      s_.found_segment = i;
      s_.left = rest;
    }
    g_.sync();
    if (g_.warp() == 0) {
      constexpr int kPerLane = kSegment / Group::kLanes;  // neighbours
      const std::int32_t begin = s_.found_segment * kSegment + g_.lane() * kPerLane;
      const std::int32_t end = begin + kPerLane < n ? begin + kPerLane : n;
      Weight of_lane = 0;
      for (std::int32_t i = begin; i < end; ++i) of_lane += weigh(i, row[i]);
      const Weight before_lane = g_.warp_exclusive_sum(of_lane);
      if (before_lane <= s_.left && s_.left - before_lane < of_lane) {
        Weight rest = s_.left - before_lane;
        std::int32_t i = begin;
        for (Weight w; rest >= (w = weigh(i, row[i])); ++i) rest -= w;
        s_.found_token = i;
      }
    }
    g_.sync();
    return s_.found_token;
  }

  // --- cuts ---

  // A thread's share of n things, consecutive, in rank order.
  struct Range {
    std::int32_t begin, end;
  };
  BANYAN_ROW_CODE Range chunk(std::int32_t n) const {
    const std::int32_t each = (n + g_.size() - 1) / g_.size(), begin = each * g_.rank();
    return {begin < n ? begin : n, begin + each < n ? begin + each : n};
  }

  // The cut through what `within` keeps: k tokens, or, by weight, top_p of them.
  BANYAN_ROW_CALL static Cut cut(Group g, RowScratch& s, const float* row, std::int32_t n, const RowStats& stats,
                                 Measure measure, Cut within, Weight k, double top_p) {
    RowSampler sampler(g, s);
    const Binning binning(stats.max, stats.min, measure.by_weight ? measure.scale : sampling::kLog2E);
    const Weight total = sampler.count_bins(row, n, binning, measure, within);
    Weight wanted = measure.by_weight ? sampling::top_p_weight(top_p, total) : k;
    wanted = wanted > 0 ? wanted : 1;
    return sampler.select(row, n, binning, measure, within, wanted);
  }

  // Sets the bins to the counts of what `within` keeps; tokens without measure are not counted. Returns the measure of
  // all that it keeps.
  BANYAN_ROW_CODE Weight count_bins(const float* row, std::int32_t n, const Binning& binning, const Measure& measure,
                                    Cut within) {
    g_.sync();
    for (int b = g_.rank(); b < kBins; b += g_.size()) s_.bins[b] = 0;
    g_.sync();
    Weight total = 0;
    for_row(row, n, [&](std::int32_t i, float x) {
      if (i >= n || !kept(within, i, x)) return;
      const Weight w = measure.of(x);
      total += w;
      if (w > 0) g_.fetch_add(&s_.bins[binning.bin(x)], 1);
    });
    return g_.sum(total);
  }

  // After count_bins(): the cut that keeps the shortest beginning with a measure >= wanted, 1 <= wanted <= total.
  BANYAN_ROW_CODE Cut select(const float* row, std::int32_t n, const Binning& binning, const Measure& measure,
                             Cut within, Weight wanted) {
    find_bins(binning, measure, wanted);
    const int first = s_.first_bin, last = s_.last_bin;
    Weight n_candidates = 0;
    for (int b = first + g_.rank(); b <= last; b += g_.size()) n_candidates += s_.bins[b];
    if (g_.sum(n_candidates) > kList) return bisect(g_, s_, row, n, measure, within, wanted);

    begin_list();
    Weight above = 0;
    for_row(row, n, [&](std::int32_t i, float x) {
      if (i >= n || !kept(within, i, x)) return;
      const int b = binning.bin(x);
      if (b > last) return;
      const Weight w = measure.of(x);
      if (b < first) {
        above += w;
      } else if (w > 0) {
        push(i, x);
      }
    });
    return cut_in_list(measure, g_.sum(above), wanted);
  }

  // Sets first_bin and last_bin: the border lies between them.
  BANYAN_ROW_CODE void find_bins(const Binning& binning, const Measure& measure, Weight wanted) {
    const Range mine = chunk(kBins);
    Weight most = 0, least = 0;
    for (int b = mine.begin; b < mine.end; ++b) {
      const Weight n = s_.bins[b];
      if (n == 0) continue;
      most += n * binning.most(b, measure);
      least += n * binning.least(b, measure);
    }
    if (g_.rank() == 0) s_.first_bin = s_.last_bin = kBins - 1;
    Weight before_most = g_.exclusive_sum(most), before_least = g_.exclusive_sum(least);
    if (before_most < wanted && before_most + most >= wanted) {
      int b = mine.begin;
      while ((before_most += s_.bins[b] * binning.most(b, measure)) < wanted) ++b;
      s_.first_bin = b;
    }
    if (before_least < wanted && before_least + least >= wanted) {
      int b = mine.begin;
      while ((before_least += s_.bins[b] * binning.least(b, measure)) < wanted) ++b;
      s_.last_bin = b;
    }
    g_.sync();
  }

  BANYAN_ROW_CODE void begin_list() {
    g_.sync();
    if (g_.rank() == 0) s_.n_list = 0;
    g_.sync();
  }
  BANYAN_ROW_CODE void push(std::int32_t i, float x) { s_.list[g_.fetch_add(&s_.n_list, 1)] = order_key(i, x); }

  // Ascending keys, so best first. Returns the length.
  BANYAN_ROW_CODE std::int32_t sort_list() {
    g_.sync();
    const auto n = static_cast<std::int32_t>(s_.n_list);
    std::int32_t padded = 2;
    while (padded < n) padded *= 2;
    for (std::int32_t i = n + g_.rank(); i < padded; i += g_.size()) s_.list[i] = ~std::uint64_t{0};
    g_.sync();
    bitonic_sort(g_, s_.list, padded, [](std::uint64_t x, std::uint64_t y) { return x < y; });
    return n;
  }

  BANYAN_ROW_CODE Cut cut_in_list(const Measure& measure, Weight above, Weight wanted) {
    const Range mine = chunk(sort_list());
    Weight sum = 0;
    for (std::int32_t i = mine.begin; i < mine.end; ++i) sum += measure.of(key_logit(s_.list[i]));
    Weight before = above + g_.exclusive_sum(sum);
    if (before < wanted && before + sum >= wanted) {
      std::int32_t i = mine.begin;
      while ((before += measure.of(key_logit(s_.list[i]))) < wanted) ++i;
      s_.cut = {key_logit(s_.list[i]), key_id(s_.list[i])};
    }
    g_.sync();
    return s_.cut;
  }

  // Narrows the logits [low, high] (as ordered integers) that hold the border, by quarters; then counts equals.
  BANYAN_ROW_CALL static Cut bisect(Group g, RowScratch& s, const float* row, std::int32_t n, Measure measure,
                                    Cut within, Weight wanted) {
    constexpr int kParts = 4;
    RowSampler sampler(g, s);
    std::uint32_t low = 0, high = ~std::uint32_t{0};
    Weight above = 0;  // the measure of larger ones than high; < wanted
    while (low < high) {
      const std::uint64_t step = (std::uint64_t{high} - low) / kParts + 1;
      Weight from[kParts + 1] = {};  // from[p]: of what lies in [low + p * step, high]; 0 and kParts are not needed
      sampler.for_row(row, n, [&](std::int32_t i, float x) {
        const std::uint32_t key = sampling::ordered_bits(x);
        if (i >= n || !kept(within, i, x) || key < low || key > high) return;
        const Weight w = measure.of(x);
        BANYAN_UNROLL
        for (int p = 1; p < kParts; ++p) from[p] += key - low >= p * step ? w : 0;
      });
      std::uint64_t new_low = low, new_high = high;
      Weight above_part = 0;
      bool found = false;
      BANYAN_UNROLL
      for (int p = kParts - 1; p > 0; --p) {
        const Weight sum = g.sum(from[p]);
        if (found) continue;
        if (above + sum >= wanted) {
          new_low = low + p * step;
          found = true;
        } else {
          new_high = low + p * step - 1;
          above_part = sum;
        }
      }
      low = static_cast<std::uint32_t>(new_low);
      high = static_cast<std::uint32_t>(new_high < high ? new_high : high);
      above += above_part;
    }
    const float logit = sampling::from_ordered_bits(low);
    const Weight each = measure.of(logit), n_equal = (wanted - above + each - 1) / each;
    const auto is_equal = [&](std::int32_t i, float x) -> Weight { return i < n && x == logit && kept(within, i, x); };
    sampler.sum_segments(row, n, is_equal);
    return {logit, sampler.locate(row, n, is_equal, n_equal - 1)};
  }

  // --- what is answered ---

  // The k likeliest, 1 <= k <= min(n, kList).
  BANYAN_ROW_CALL static void list_top(Group g, RowScratch& s, const float* row, std::int32_t n, std::int32_t k,
                                       RowTop* top) {
    RowSampler sampler(g, s);
    const Cut best = sampler.top_k(row, n, s.raw, k);
    sampler.begin_list();
    sampler.for_row(row, n, [&](std::int32_t i, float x) {
      if (i < n && kept(best, i, x)) sampler.push(i, x);
    });
    sampler.sort_list();
    for (std::int32_t i = g.rank(); i < k; i += g.size()) {
      top[i] = {key_id(s.list[i]), to_logprob(key_logit(s.list[i]), s.raw)};
    }
  }

  BANYAN_ROW_CODE Cut top_k(const float* row, std::int32_t n, const RowStats& stats, std::int32_t k) {
    return cut(g_, s_, row, n, stats, {}, all(), static_cast<Weight>(k), 1);
  }

  // Temperature, filters, draw.
  BANYAN_ROW_CODE std::int32_t choose(const RowQuery& q, const float* row, std::int32_t n, const RowStats& stats) {
    if (q.greedy != 0) return stats.argmax;
    Cut left = all();
    if (q.top_k > 0 && q.top_k < n) left = top_k(row, n, stats, q.top_k);
    if (q.top_p < 1) {
      left = cut(g_, s_, row, n, stats, {true, stats.max, q.scale}, left, 0, q.top_p);
    }
    return draw(g_, s_, q, row, n, stats.max, left);
  }

  // Of what `left` and min-p keep.
  BANYAN_ROW_CALL static std::int32_t draw(Group g, RowScratch& s, const RowQuery& q, const float* row, std::int32_t n,
                                           float max, Cut left) {
    RowSampler sampler(g, s);
    const float scale = q.scale, min_p = q.min_p;
    const auto weigh = [=](std::int32_t i, float x) -> Weight {
      if (!kept(left, i, x)) return 0;
      const float e = sampling::exp_of(x, max, scale);
      return e >= min_p ? sampling::weight_of(e) : 0;
    };
    const Weight total = sampler.sum_segments(row, n, weigh);
    return sampler.locate(row, n, weigh, sampling::drawn_weight(g.random_bits(q), total));
  }

  // edited = row with the penalties of the history.
  BANYAN_ROW_CALL static void penalise(Group g, RowScratch& s, const RowQuery& q, const float* row, std::int32_t n,
                                       const std::int32_t* history, float* edited, std::uint32_t* counts) {
    constexpr std::uint32_t kInPrompt = 1u << 31;
    g.sync();
    RowSampler(g, s).for_row(row, n, [&](std::int32_t i, float x) {
      if (i < n) edited[i] = x;
    });
    const std::int64_t first = q.repetition != 1 ? 0 : q.n_prompt, end = q.n_prompt + q.n_generated;
    for (std::int64_t h = first + g.rank(); h < end; h += g.size()) {
      if (h < q.n_prompt) {
        g.fetch_or(&counts[history[h]], kInPrompt);
      } else {
        g.fetch_add(&counts[history[h]], 1);
      }
    }
    g.sync();
    // Of several threads with the same token, the one that takes its count does the work.
    for (std::int64_t h = first + g.rank(); h < end; h += g.size()) {
      const std::int32_t token = history[h];
      const std::uint32_t count = g.exchange(&counts[token], 0);
      if (count == 0) continue;
      edited[token] = sampling::penalised(edited[token], q.repetition, q.frequency, q.presence, count & ~kInPrompt);
    }
    g.sync();
  }

  Group g_;
  RowScratch& s_;
};

}  // namespace banyan::kernels::cuda
