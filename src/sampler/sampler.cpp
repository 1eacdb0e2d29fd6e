#include "banyan/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "kernels/sample_errors.hpp"
#include "sampler/filters.hpp"
#include "sampler/penalties.hpp"
#include "sampler/random.hpp"
#include "sampler/row_kernels.hpp"

namespace banyan {
namespace {

using namespace sampling;

constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr double kGreedyBelow = 1e-5;

// A row without NaN and +inf, and with a finite maximum.
struct Row {
  std::span<const float> logits;  // [vocab_size]
  float max = 0;
};

// What can be drawn: weights in Scratch::e of the whole row, or those of the candidates.
struct Support {
  bool whole_row = false;
  Weight total = 0;
};

std::int64_t checked_count(std::int64_t n, const char* name) {
  if (n < 0) throw Error(ErrorCode::usage, name, fmt::format("{} is negative", n));
  return n;
}

[[noreturn]] void throw_bad_logits(std::span<const float> logits, std::int64_t row) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] <= std::numeric_limits<float>::max()) continue;
    throw bad_logit_error(row, static_cast<TokenId>(i), logits[i]);
  }
  throw all_masked_error(row, std::ssize(logits));
}

}  // namespace

struct Sampler::Scratch {
  const RowKernels& kernels = best_kernels();
  Filters filters;
  Penalties penalties;
  Candidates candidates;
  std::vector<float> penalised;       // [vocab_size]
  std::vector<float> e;               // [vocab_size] exp((logit - max) / T)
  std::vector<float> block_max;       // [n_blocks(vocab_size)] of the row scanned last
  std::vector<Weight> block_weight;   // [n_blocks(vocab_size)]
  std::vector<TokenLogprob> row_top;  // of one row of a beam

  void reserve(std::int64_t vocab_size);
  Row scan(std::span<const float> logits, std::int64_t row);
  Row apply_penalties(const Row& raw, const SamplerOptions& options, const TokenHistory& history, std::int64_t row);
  TokenId argmax(const Row& row) const;
  Support weigh(const Row& row, const SamplerOptions& options);
  TokenId draw(const Support& support, std::uint64_t bits) const;
  double log_sum(const Row& row) const;
  void select_top(const Row& row, std::int64_t k, std::vector<TokenLogprob>& out);
};

void Sampler::Scratch::reserve(std::int64_t vocab_size) {
  if (std::ssize(e) >= vocab_size) return;
  candidates.reserve(vocab_size);
  filters.reserve(vocab_size);
  penalised.resize(vocab_size);
  e.resize(vocab_size);
  block_max.resize(n_blocks(vocab_size));
  block_weight.resize(n_blocks(vocab_size));
}

// Checks the row, sets block_max.
Row Sampler::Scratch::scan(std::span<const float> logits, std::int64_t row) {
  const std::int64_t n = std::ssize(logits);
  if (n < 1 || n > kMaxVocab) {
    throw Error(ErrorCode::usage, fmt::format("row {}", row), fmt::format("{} logits; allowed: 1 to {}", n, kMaxVocab));
  }
  reserve(n);
  if (!kernels.block_max(logits.data(), n, block_max.data())) throw_bad_logits(logits, row);
  const float max = *std::max_element(block_max.begin(), block_max.begin() + n_blocks(n));
  if (max == kMasked) throw_bad_logits(logits, row);
  return {logits, max};
}

Row Sampler::Scratch::apply_penalties(const Row& raw, const SamplerOptions& options, const TokenHistory& history,
                                      std::int64_t row) {
  if (!has_penalties(options)) return raw;
  const std::span<float> copy(penalised.data(), raw.logits.size());
  std::copy(raw.logits.begin(), raw.logits.end(), copy.begin());
  penalties.apply(options, history, copy);
  return scan(copy, row);
}

// Needs block_max of the row.
TokenId Sampler::Scratch::argmax(const Row& row) const {
  const auto block = std::find(block_max.begin(), block_max.end(), row.max) - block_max.begin();
  const auto begin = row.logits.begin() + block * kBlock;
  return static_cast<TokenId>(std::find(begin, row.logits.end(), row.max) - row.logits.begin());
}

// Temperature and filters. Needs block_max of the row.
Support Sampler::Scratch::weigh(const Row& row, const SamplerOptions& options) {
  const std::int64_t n = std::ssize(row.logits);
  if (options.temperature < kGreedyBelow) {
    candidates.ids[0] = argmax(row);
    candidates.e[0] = 1;
    candidates.n = 1;
    return {false, weight_of(1)};
  }
  const bool use_top_k = options.top_k > 0 && options.top_k < n, use_top_p = options.top_p < 1;
  const auto scale = scale_of(options.temperature);
  const auto floor = static_cast<float>(options.min_p);
  if (!use_top_k && !use_top_p) {
    return {true, kernels.weigh(row.logits.data(), n, row.max, scale, floor, e.data(), block_weight.data())};
  }

  Weight total = 0;
  if (use_top_k) {
    filters.top_k(kernels, row.logits, {block_max.data(), static_cast<std::size_t>(n_blocks(n))}, options.top_k,
                  candidates);
    for (std::int64_t i = 0; i < candidates.n; ++i) candidates.e[i] = row.logits[candidates.ids[i]];
    total =
        kernels.weigh(candidates.e.data(), candidates.n, row.max, scale, 0, candidates.e.data(), block_weight.data());
  } else {
    total = kernels.weigh(row.logits.data(), n, row.max, scale, 0, e.data(), block_weight.data());
  }
  if (use_top_p) {
    const auto wanted = top_p_weight(options.top_p, total);
    if (!use_top_k) {
      Filters::before_top_p(kernels, {e.data(), static_cast<std::size_t>(n)}, total, wanted, candidates);
    }
    total = filters.top_p(row.logits, wanted, candidates);
  }
  if (floor > 0) total = Filters::min_p(floor, candidates);
  return {false, total};
}

// Inverse of the cumulative distribution in id order: the first token with cumulative weight > u * total.
TokenId Sampler::Scratch::draw(const Support& support, std::uint64_t bits) const {
  Weight left = drawn_weight(bits, support.total);
  std::size_t i = 0;
  if (!support.whole_row) {
    for (Weight w; left >= (w = weight_of(candidates.e[i])); ++i) left -= w;
    return candidates.ids[i];
  }
  std::size_t block = 0;
  for (; left >= block_weight[block]; ++block) left -= block_weight[block];
  i = block * kBlock;
  for (Weight w; left >= (w = weight_of(e[i])); ++i) left -= w;
  return static_cast<TokenId>(i);
}

// ln sum exp(logit - max)
double Sampler::Scratch::log_sum(const Row& row) const {
  return std::log(kernels.exp_sum(row.logits.data(), std::ssize(row.logits), row.max));
}

// Sets the ids and, in place of log-probabilities, the logits. Needs block_max of the row.
void Sampler::Scratch::select_top(const Row& row, std::int64_t k, std::vector<TokenLogprob>& out) {
  out.clear();
  k = std::min(k, std::ssize(row.logits));
  if (k == 0) return;
  const auto blocks = static_cast<std::size_t>(n_blocks(std::ssize(row.logits)));
  filters.top_k(kernels, row.logits, {block_max.data(), blocks}, k, candidates);
  for (std::int64_t i = 0; i < k; ++i) out.push_back({candidates.ids[i], row.logits[candidates.ids[i]]});
  std::sort(out.begin(), out.end(), [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.id < b.id;
  });
}

namespace {

float to_logprob(float logit, const Row& row, double log_sum) {
  return static_cast<float>(static_cast<double>(logit) - row.max - log_sum);
}

}  // namespace

Sampler::Sampler() : scratch_(std::make_unique<Scratch>()) {}
Sampler::~Sampler() = default;
void Sampler::reserve(std::int64_t vocab_size) { scratch_->reserve(vocab_size); }
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

void Sampler::draw(std::span<const float> logits, const SamplerOptions& options, const StreamKey& key,
                   const TokenHistory& history, std::int64_t n_top, std::int64_t row, Choice& out) {
  validate(options);
  checked_count(n_top, "n_top");
  const Row raw = scratch_->scan(logits, row);
  scratch_->select_top(raw, n_top, out.top);
  const Row penalised = scratch_->apply_penalties(raw, options, history, row);
  const Support support = scratch_->weigh(penalised, options);
  out.token = scratch_->draw(support, random_bits(key));

  const double log_sum = scratch_->log_sum(raw);
  out.logprob = to_logprob(logits[out.token], raw, log_sum);
  for (auto& t : out.top) t.logprob = to_logprob(t.logprob, raw, log_sum);
}

void Sampler::top(std::span<const float> logits, std::int64_t k, std::int64_t row, std::vector<TokenLogprob>& out) {
  checked_count(k, "k");
  const Row raw = scratch_->scan(logits, row);
  scratch_->select_top(raw, k, out);
  const double log_sum = scratch_->log_sum(raw);
  for (auto& t : out) t.logprob = to_logprob(t.logprob, raw, log_sum);
}

void Sampler::group_topk(std::span<const float> logits, std::span<const double> cumulative, std::int64_t k,
                         std::int64_t first_row, std::vector<Continuation>& out) {
  checked_count(k, "k");
  out.clear();
  if (cumulative.empty()) return;
  if (logits.size() % cumulative.size() != 0) {
    throw Error(ErrorCode::usage, "logits",
                fmt::format("{} of them are not {} rows of one length", logits.size(), cumulative.size()));
  }
  const std::size_t vocab_size = logits.size() / cumulative.size();
  const auto better = [](const Continuation& a, const Continuation& b) {
    if (a.score != b.score) return a.score > b.score;
    return a.row != b.row ? a.row < b.row : a.token < b.token;
  };
  auto& top = scratch_->row_top;
  for (std::size_t r = 0; r < cumulative.size(); ++r) {
    if (std::isnan(cumulative[r])) throw Error(ErrorCode::usage, "cumulative", fmt::format("that of row {} is nan", r));
    this->top(logits.subspan(r * vocab_size, vocab_size), k, first_row + static_cast<std::int64_t>(r), top);
    for (const TokenLogprob& t : top) {
      const double score = cumulative[r] + static_cast<double>(t.logprob);
      if (score > kMasked) out.push_back({score, static_cast<std::int64_t>(r), t.id, t.logprob});
    }
    const auto n_kept = std::min<std::int64_t>(k, std::ssize(out));
    std::partial_sort(out.begin(), out.begin() + n_kept, out.end(), better);
    out.resize(static_cast<std::size_t>(n_kept));
  }
}

float Sampler::logprob(std::span<const float> logits, TokenId token, std::int64_t row) {
  if (token < 0 || token >= std::ssize(logits)) throw target_error(token, std::ssize(logits));
  const Row raw = scratch_->scan(logits, row);
  return to_logprob(logits[token], raw, scratch_->log_sum(raw));
}

void Sampler::distribution(std::span<const float> logits, const SamplerOptions& options, const TokenHistory& history,
                           std::int64_t row, std::vector<double>& out) {
  validate(options);
  const Row raw = scratch_->scan(logits, row);
  const Row penalised = scratch_->apply_penalties(raw, options, history, row);
  const Support support = scratch_->weigh(penalised, options);
  out.assign(logits.size(), 0.0);
  const auto total = static_cast<double>(support.total);
  if (support.whole_row) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(weight_of(scratch_->e[i])) / total;
    return;
  }
  const Candidates& c = scratch_->candidates;
  for (std::int64_t i = 0; i < c.n; ++i) out[c.ids[i]] = static_cast<double>(weight_of(c.e[i])) / total;
}

}  // namespace banyan
