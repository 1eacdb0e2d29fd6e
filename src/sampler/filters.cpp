#include "sampler/filters.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <functional>
#include <limits>

namespace banyan::sampling {
namespace {

// A border of so few candidates is sorted at once.
constexpr std::int64_t kSortAtOnce = 256;

// Keeps the candidates i for which keep(i) holds, in order.
template <typename Keep>
void keep_if(Candidates& c, Keep&& keep) {
  std::int64_t n = 0;
  for (std::int64_t i = 0; i < c.n; ++i) {
    const bool kept = keep(i);
    c.ids[n] = c.ids[i];
    c.e[n] = c.e[i];
    n += kept;
  }
  c.n = n;
}

}  // namespace

void Candidates::reserve(std::int64_t vocab_size) {
  if (std::ssize(ids) >= vocab_size) return;
  ids.resize(vocab_size);
  e.resize(vocab_size);
}

void Filters::reserve(std::int64_t vocab_size) {
  values_.reserve(vocab_size);
  keys_.reserve(vocab_size);
  border_.reserve(vocab_size);
}

void Filters::top_k(const RowKernels& kernels, std::span<const float> row, std::span<const float> block_max,
                    std::int64_t k, Candidates& out) {
  assert(k >= 1 && k <= std::ssize(row));
  // k blocks hold an element >= the k-th largest block maximum, so the k-th largest element is not below it.
  float bound = -std::numeric_limits<float>::infinity();
  if (k <= std::ssize(block_max)) {
    values_.assign(block_max.begin(), block_max.end());
    std::nth_element(values_.begin(), values_.begin() + (k - 1), values_.end(), std::greater<>());
    bound = values_[k - 1];
  }
  out.n = kernels.gather(row.data(), std::ssize(row), bound, out.ids.data());
  values_.resize(out.n);
  for (std::int64_t i = 0; i < out.n; ++i) values_[i] = row[out.ids[i]];
  std::nth_element(values_.begin(), values_.begin() + (k - 1), values_.end(), std::greater<>());
  const float last = values_[k - 1];
  std::int64_t n_equal =
      k - std::count_if(values_.begin(), values_.begin() + (k - 1), [last](float x) { return x > last; });
  keep_if(out, [&](std::int64_t i) {
    const float x = row[out.ids[i]];
    return x > last || (x == last && n_equal-- > 0);
  });
}

void Filters::before_top_p(const RowKernels& kernels, std::span<const float> e, Weight total, Weight wanted,
                           Candidates& out) {
  // All tokens of weight <= small together weigh at most total - wanted: the cut lies above them. The factor makes up
  // for the rounding of the bound to float, and for neighbouring logits whose e is not in their order by a last bit;
  // too many candidates do no harm. Below 2^-45 weights are 0.
  const Weight small = (total - wanted) / e.size();
  const float bound = std::max(static_cast<float>(static_cast<double>(small) * 0x1p-44) * 0.999999F, 0x1p-45F);
  out.n = kernels.gather(e.data(), std::ssize(e), bound, out.ids.data());
  for (std::int64_t i = 0; i < out.n; ++i) out.e[i] = e[out.ids[i]];
}

Weight Filters::find_border(const Candidates& c, Weight wanted, std::uint32_t& low, std::uint32_t& high) {
  Weight above = 0;
  const auto [least, most] = std::minmax_element(keys_.begin(), keys_.end());
  low = *least;
  high = *most;
  std::int64_t count = c.n;
  while (count > kSortAtOnce && low < high) {
    const int shift = std::max(0, static_cast<int>(std::bit_width(high - low)) - kBinBits);
    std::uint32_t bin = (high - low) >> shift;
    std::fill_n(bins_.begin(), bin + 1, Bin{});
    for (std::int64_t i = 0; i < c.n; ++i) {
      const std::uint32_t offset = keys_[i] - low;  // wraps below low, so one comparison will do
      if (offset > high - low) continue;
      Bin& b = bins_[offset >> shift];
      b.weight += weight_of(c.e[i]);
      ++b.count;
    }
    while (bin > 0 && above + bins_[bin].weight < wanted) above += bins_[bin--].weight;
    high = low + std::min(high - low, ((bin + 1) << shift) - 1);
    low += bin << shift;
    count = bins_[bin].count;
  }
  return above;
}

Weight Filters::top_p(std::span<const float> row, Weight wanted, Candidates& c) {
  keys_.resize(c.n);
  for (std::int64_t i = 0; i < c.n; ++i) keys_[i] = ordered_bits(row[c.ids[i]]);
  std::uint32_t low = 0, high = 0;
  Weight weight = find_border(c, wanted, low, high);
  keep_if(c, [&](std::int64_t i) { return keys_[i] >= low; });
  border_.clear();
  for (std::int64_t i = 0; i < c.n; ++i) {
    if (ordered_bits(row[c.ids[i]]) <= high) border_.push_back(static_cast<std::int32_t>(i));
  }
  std::sort(border_.begin(), border_.end(), [&](std::int32_t a, std::int32_t b) {
    const float x = row[c.ids[a]], y = row[c.ids[b]];
    return x != y ? x > y : a < b;
  });
  auto i = border_.begin();
  for (; i != border_.end() && (i == border_.begin() || weight < wanted); ++i) weight += weight_of(c.e[*i]);
  for (; i != border_.end(); ++i) c.e[*i] = 0;
  return weight;
}

Weight Filters::min_p(float floor, Candidates& c) {
  Weight weight = 0;
  for (std::int64_t i = 0; i < c.n; ++i) {
    if (c.e[i] < floor) c.e[i] = 0;
    weight += weight_of(c.e[i]);
  }
  return weight;
}

}  // namespace banyan::sampling
