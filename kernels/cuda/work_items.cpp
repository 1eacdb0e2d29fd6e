#include "kernels/cuda/work_items.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <string>

#include "banyan/error.hpp"

namespace banyan::kernels::cuda {
namespace {

constexpr std::int64_t kMax32 = std::numeric_limits<std::int32_t>::max();

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

void check_32_bits(std::int64_t n, const char* what) {
  if (n <= kMax32) return;
  throw Error(ErrorCode::usage, "attention of one step",
              "has " + std::to_string(n) + " " + what + "; " + std::to_string(kMax32) + " is the most on CUDA");
}

// Per kind of tile, for the choice of piece lengths. All are guesses from the H200's rates, not fitted yet.
struct KindCost {
  // Blocks of this kind that a multiprocessor runs at a time.
  std::int64_t blocks_per_sm;
  // What a piece costs beyond its keys, counted in keys: its partial goes out and comes back (at 128 dims and 4.3 TB/s
  // what 185 keys of 128 rows take at 400 TFLOP/s), its first keys are waited for.
  std::int64_t overhead_keys;
  // Shorter pieces only make more partials to merge.
  std::int64_t fewest_keys;
};
constexpr std::array<KindCost, kTileKinds> kKindCosts{{{12, 64, 64}, {3, 128, 128}, {2, 192, 256}, {1, 448, 512}}};
// Where more calls than these are cut, their pieces even each other out.
constexpr std::size_t kFewCalls = 32;

// Each partial that an item merges takes its lanes 32 loads, of which most idle where a tile has one row.
constexpr std::int32_t kMostMerged = 2;

constexpr std::int64_t n_equal_pieces(std::int64_t n_keys, std::int64_t length) {
  return std::max<std::int64_t>(1, (n_keys + length / 2) / length);
}

// Lengths are sorted by classes of some 20 %: tiles up to 16, then four classes per power of two.
constexpr std::int32_t kLengthClasses = 128;
std::int32_t length_class(std::int32_t n_keys) {
  const auto n_tiles = static_cast<std::uint32_t>(ceil_div(n_keys, kTilePositions));
  if (n_tiles <= 16) return static_cast<std::int32_t>(n_tiles);
  const int log = std::bit_width(n_tiles) - 1;
  return 4 * (log - 4) + static_cast<std::int32_t>(n_tiles >> (log - 2) & 3) + 17;
}

}  // namespace

void WorkItems::build(std::span<const std::int32_t> positions, std::span<const SlotRun> runs,
                      std::span<const AttentionCall> calls, const WorkOptions& options) {
  assert(options.n_heads_kv > 0 && options.n_heads_q % options.n_heads_kv == 0);
  options_ = options;
  group_ = static_cast<std::int32_t>(options.n_heads_q / options.n_heads_kv);
  positions_ = positions;
  runs_ = runs;
  calls_ = calls;
  check_32_bits(std::ssize(positions) * group_, "packed rows");
  check_32_bits(std::ssize(runs), "slot runs");
  for (const SlotRun& run : runs) check_32_bits(run.first + run.n, "KV slots");
  unsorted_.clear();
  keys_of_sort_.clear();
  n_phases_ = 0;
  states_.assign(positions.size(), {});

  const PieceLengths lengths = options.deterministic ? PieceLengths{} : piece_lengths();
  for (std::size_t c = 0; c < calls.size(); ++c) {
    const AttentionCall& call = calls[c];
    assert(call.row_begin >= 0 && call.row_end <= std::ssize(positions));
    if (call.row_begin >= call.row_end || call.n_keys <= 0) continue;
    check_32_bits(call.kv_position + call.n_keys, "positions");
    const std::int64_t n_packed = (call.row_end - call.row_begin) * group_;
    cut_keys(call, lengths.n_keys[static_cast<std::size_t>(kind_of(n_packed, n_packed))]);
    add_call(static_cast<std::int32_t>(c), call);
  }
  check_32_bits(std::ssize(unsorted_) * options.n_heads_kv, "work items");
  finish_rows();
  sort_items();
}

TileKind WorkItems::kind_of(std::int64_t n_left, std::int64_t n_packed) const {
  constexpr std::int64_t kFew = kTileRows[static_cast<std::size_t>(TileKind::narrow)];
  const bool warpgroup = options_.warpgroup_tiles && !options_.deterministic && tile_kind(n_packed) == TileKind::wide;
  return warpgroup && n_left > kFew ? TileKind::warpgroup : tile_kind(n_left);
}

WorkItems::PieceLengths WorkItems::piece_lengths() {
  const auto n_heads = static_cast<double>(options_.n_heads_kv);
  for (KindLoad& load : loads_) {
    load.long_calls.clear();
    load.longest = 0;
    load.n_items = load.n_keys = load.n_long_keys = 0;
  }
  for (const AttentionCall& call : calls_) {
    const std::int64_t n_packed = (call.row_end - call.row_begin) * group_;
    if (n_packed <= 0) continue;
    // As far as the last row sees: calls of no visible key change nothing, not even the pieces of others.
    const std::int64_t n_seen = n_visible(call, static_cast<std::int32_t>(call.row_end) - 1);
    if (n_seen == 0) continue;
    const auto kind = static_cast<std::size_t>(kind_of(n_packed, n_packed));
    KindLoad& load = loads_[kind];
    const std::int64_t n_tiles = ceil_div(n_packed, kTileRows[kind]);
    const double n_keys = static_cast<double>(n_tiles * n_seen) * n_heads;
    load.longest = std::max(load.longest, n_seen);
    if (n_seen > kKindCosts[kind].fewest_keys) {
      load.long_calls.push_back({n_tiles, n_seen});
      load.n_long_keys += n_keys;
    } else {
      load.n_items += static_cast<double>(n_tiles) * n_heads;
      load.n_keys += n_keys;
    }
  }
  PieceLengths lengths{};
  for (std::size_t kind = 0; kind < kTileKinds; ++kind) lengths.n_keys[kind] = piece_length(kind);
  return lengths;
}

// With w keys to walk per place where a block can run, and pieces of n keys, a place computes w keys and pays the
// overhead c for each of w / n pieces, and at the end waits half a piece for the slowest: w + c w / n + n / 2. That is
// least for n = sqrt(2 c w). Where few calls are cut, the last round of pieces may fill the device or leave it empty:
// then the best near that n is looked for.
std::int64_t WorkItems::piece_length(std::size_t kind) const {
  const KindCost& cost = kKindCosts[kind];
  const KindLoad& load = loads_[kind];
  const double w = (load.n_keys + load.n_long_keys) / static_cast<double>(cost.blocks_per_sm * options_.n_sms);
  const std::int64_t smooth =
      std::max(cost.fewest_keys, static_cast<std::int64_t>(std::sqrt(2 * static_cast<double>(cost.overhead_keys) * w)));
  if (load.long_calls.empty() || load.long_calls.size() > kFewCalls) return smooth;
  const std::int64_t n_pieces = std::max<std::int64_t>(1, load.longest / smooth);
  const std::int64_t step = std::max<std::int64_t>(1, n_pieces / 8);
  std::int64_t best = smooth;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t n = std::max<std::int64_t>(1, n_pieces / 2); n <= 2 * n_pieces + 1; n += step) {
    const std::int64_t length = ceil_div(load.longest, n);
    if (length < cost.fewest_keys && n > 1) break;
    const double time = makespan(kind, length);
    if (time >= least) continue;
    least = time;
    best = length;
  }
  return best;
}

// How long the items of a kind take with pieces of `length` keys, in keys: as all places together need for all of them,
// or as long as it takes to run the long pieces in whole rounds, one to a place.
double WorkItems::makespan(std::size_t kind, std::int64_t length) const {
  const KindCost& cost = kKindCosts[kind];
  const KindLoad& load = loads_[kind];
  const auto n_places = static_cast<double>(cost.blocks_per_sm * options_.n_sms);
  const auto overhead = static_cast<double>(cost.overhead_keys);
  double n_items = load.n_items, n_long = 0;
  for (const KindLoad::LongCall& call : load.long_calls) {
    const std::int64_t n_pieces = n_equal_pieces(call.n_keys, length);
    const auto n = static_cast<double>(call.n_tiles * n_pieces * options_.n_heads_kv);
    n_items += n;
    if (2 * call.n_keys > n_pieces * length) n_long += n;
  }
  const double even = (load.n_keys + load.n_long_keys + overhead * n_items) / n_places;
  return std::max(even, std::ceil(n_long / n_places) * (static_cast<double>(length) + overhead));
}

// Cuts the call's keys into pieces_: at units of the path, or else into equal pieces of about `length` keys.
void WorkItems::cut_keys(const AttentionCall& call, std::int64_t length) {
  pieces_.clear();
  std::int64_t run = call.run_begin, offset = 0;  // of the next piece's first key
  const std::int64_t n_equal = options_.deterministic ? 0 : n_equal_pieces(call.n_keys, length);
  const std::int64_t equal =
      options_.deterministic ? 0 : ceil_div(ceil_div(call.n_keys, n_equal), kTilePositions) * kTilePositions;
  for (std::int64_t begin = 0; begin < call.n_keys;) {
    const std::int64_t position = call.kv_position + begin;
    const std::int64_t unit = position / kUnitPositions;
    const std::int64_t end =
        std::min(call.n_keys, options_.deterministic ? (unit + 1) * kUnitPositions - call.kv_position : begin + equal);
    while (offset >= runs_[at(run)].n) offset -= runs_[at(run++)].n;
    assert(run < call.run_end && offset <= kMax32);
    pieces_.push_back({static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end), static_cast<std::int32_t>(run),
                       static_cast<std::int32_t>(offset),
                       options_.deterministic ? static_cast<std::int32_t>(unit) : -1});
    offset += end - begin;
    begin = end;
  }
}

std::int32_t WorkItems::n_visible(const AttentionCall& call, std::int32_t row) const {
  const std::int64_t n = positions_[at(row)] + std::int64_t{1} - call.kv_position;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(n, 0, call.n_keys));
}

std::int32_t WorkItems::most_visible(const AttentionCall& call, std::int32_t row_begin, std::int32_t row_end) const {
  std::int32_t most = 0;
  for (std::int32_t row = row_begin; row < row_end; ++row) most = std::max(most, n_visible(call, row));
  return most;
}

void WorkItems::add_call(std::int32_t index, const AttentionCall& call) {
  const auto call_end = static_cast<std::int32_t>(call.row_end);
  for (auto row = static_cast<std::int32_t>(call.row_begin); row < call_end;) {
    Segment s{row, row, std::numeric_limits<std::int32_t>::max(), 0};
    const RowState& first = states_[at(row)];
    for (; row < call_end && states_[at(row)].may_share_tile(first); ++row) {
      const std::int32_t n = n_visible(call, row);
      if (n == 0) break;
      s.fewest_keys = std::min(s.fewest_keys, n);
      s.most_keys = std::max(s.most_keys, n);
    }
    s.row_end = row;
    if (s.row_begin == s.row_end) {  // the row sees no key
      ++row;
      continue;
    }
    add_tiles(index, call, s);
    advance_rows(index, call, s);
  }
}

std::int32_t WorkItems::n_merged(const RowState& state, const Segment& segment, std::int32_t n_packed) const {
  const bool one_piece = pieces_.size() == 1 || pieces_[1].begin >= segment.most_keys;
  const bool all_done = static_cast<std::int32_t>(kind_of(n_packed, n_packed)) < state.kind;
  const bool merges = !options_.deterministic && one_piece && all_done && state.n_partials <= kMostMerged;
  return merges ? state.n_partials : 0;
}

void WorkItems::add_tiles(std::int32_t index, const AttentionCall& call, const Segment& segment) {
  const RowState& state = states_[at(segment.row_begin)];
  const bool goes_on = continues(state);
  const std::int32_t n_packed = (segment.row_end - segment.row_begin) * group_;
  const std::int32_t merged = n_merged(state, segment, n_packed);
  std::int32_t ordinal = state.n_slots - (goes_on || merged > 0 ? 1 : 0);
  for (const Piece& piece : pieces_) {
    if (piece.begin >= segment.most_keys) break;
    const bool is_chained = goes_on && &piece == pieces_.data();
    const std::int32_t phase = is_chained ? state.phase + 1 : 0;
    if (phase >= kMaxPhases) {
      throw Error(ErrorCode::usage, "attention call " + std::to_string(index),
                  "is part " + std::to_string(phase + 1) + " of a unit of " + std::to_string(kUnitPositions) +
                      " path positions; deterministic calls end at multiples of " + std::to_string(kTilePositions));
    }
    n_phases_ = std::max(n_phases_, phase + 1);
    for (std::int32_t begin = 0; begin < n_packed;) {
      const TileKind kind = kind_of(n_packed - begin, n_packed);
      const std::int32_t end =
          std::min(n_packed, begin + static_cast<std::int32_t>(kTileRows[static_cast<std::size_t>(kind)]));
      const std::int32_t n_seen =
          segment.fewest_keys >= piece.end
              ? piece.end
              : most_visible(call, segment.row_begin + begin / group_, segment.row_begin + (end - 1) / group_ + 1);
      const std::int32_t n_keys = std::min(n_seen, piece.end) - piece.begin;
      if (n_keys > 0) {
        unsorted_.push_back({piece.run, piece.run_offset, static_cast<std::int32_t>(call.kv_position) + piece.begin,
                             n_keys, segment.row_begin, begin, end - begin, ordinal, index, is_chained ? 1 : 0,
                             merged});
        const std::int32_t launch = phase * kTileKinds + static_cast<std::int32_t>(kind);
        keys_of_sort_.push_back((launch + 1) * kLengthClasses - 1 - length_class(n_keys));  // longest first
      }
      begin = end;
    }
    ++ordinal;
  }
}

void WorkItems::advance_rows(std::int32_t index, const AttentionCall& call, const Segment& segment) {
  const RowState before = states_[at(segment.row_begin)];
  const bool goes_on = continues(before);
  const std::int32_t n_packed = (segment.row_end - segment.row_begin) * group_;
  const std::int32_t merged = n_merged(before, segment, n_packed);
  const std::int32_t last_tile = (n_packed - 1) % static_cast<std::int32_t>(kTileRows[kTileKinds - 1]) + 1;
  const std::int32_t kind = std::min(before.kind, static_cast<std::int32_t>(kind_of(last_tile, n_packed)));
  const auto last = static_cast<std::int32_t>(pieces_.size()) - 1;
  for (std::int32_t row = segment.row_begin; row < segment.row_end; ++row) {
    std::int32_t i = last;  // the last piece of which the row sees a key
    if (segment.fewest_keys < call.n_keys) {
      const std::int32_t n = n_visible(call, row);
      while (pieces_[at(i)].begin >= n) --i;
    }
    RowState& state = states_[at(row)];
    state.phase = goes_on && i == 0 ? state.phase + 1 : 0;
    state.n_partials += i + (goes_on ? 0 : 1) - merged;
    state.n_slots += i + (goes_on || merged > 0 ? 0 : 1);
    state.n_pieces += i + 1;
    state.unit = pieces_[at(i)].unit;
    if (!options_.deterministic) state.kind = kind;
    state.last_call = index;
  }
}

void WorkItems::finish_rows() {
  rows_.clear();
  merge_rows_.clear();
  n_partials_ = 0;
  for (std::size_t row = 0; row < states_.size(); ++row) {
    const RowState& s = states_[row];
    rows_.push_back({positions_[row], static_cast<std::int32_t>(n_partials_), s.n_partials, s.last_call});
    if (s.n_pieces > 1) n_partials_ += s.n_slots;
    if (s.n_partials != 1) {
      merge_rows_.push_back(
          {static_cast<std::int32_t>(row), static_cast<std::int32_t>(n_partials_ - s.n_partials), s.n_partials});
    }
    check_32_bits(n_partials_, "partials");
  }
}

// A counting sort by launch and length.
void WorkItems::sort_items() {
  bucket_.assign(at(n_phases_ * kTileKinds * kLengthClasses + 1), 0);
  for (const std::int32_t key : keys_of_sort_) ++bucket_[at(key + 1)];
  for (std::size_t i = 1; i < bucket_.size(); ++i) bucket_[i] += bucket_[i - 1];
  header_ = {};
  for (int phase = 0; phase < n_phases_; ++phase) {
    for (int kind = 0; kind < kTileKinds; ++kind) {
      const std::size_t launch = at(phase * kTileKinds + kind);
      header_.items[phase][kind] = {bucket_[launch * kLengthClasses], bucket_[(launch + 1) * kLengthClasses]};
    }
  }
  header_.n_merge_rows = static_cast<std::int32_t>(merge_rows_.size());
  items_.resize(unsorted_.size());
  for (std::size_t i = 0; i < unsorted_.size(); ++i) items_[at(bucket_[at(keys_of_sort_[i])]++)] = unsorted_[i];
}

}  // namespace banyan::kernels::cuda
