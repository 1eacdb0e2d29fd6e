// Rows of all kinds with queries of all options, and banyan::Sampler's answers to them: what a device sampler must
// give.
#pragma once

#include <cmath>
#include <doctest/doctest.h>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "banyan/sampler.hpp"
#include "kernels/cuda/sample_query.hpp"
#include "oracle.hpp"

namespace banyan::test {

using kernels::cuda::RowQuery;
using kernels::cuda::RowTop;
using kernels::cuda::SampleQuery;

struct SampleCase {
  RowQuery::Kind kind = RowQuery::draw;
  std::size_t row = 0;
  SamplerOptions options;
  StreamKey key;
  std::vector<TokenId> prompt, generated;
  std::int64_t n_top = 0;
  TokenId target = 0;
};

struct SampleBatch {
  std::int64_t vocab_size = 0;
  std::vector<std::vector<float>> rows;
  std::vector<SampleCase> cases;
};

inline SampleQuery to_query(const SampleCase& c) {
  SampleQuery q;
  q.kind = c.kind;
  q.row = static_cast<std::int32_t>(c.row);
  q.row_number = static_cast<std::int64_t>(c.row);
  q.n_top = c.n_top;
  q.target = c.target;
  q.temperature = c.options.temperature;
  q.top_p = c.options.top_p;
  q.min_p = c.options.min_p;
  q.top_k = c.options.top_k;
  q.repetition_penalty = c.options.repetition_penalty;
  q.presence_penalty = c.options.presence_penalty;
  q.frequency_penalty = c.options.frequency_penalty;
  q.seed = c.key.seed;
  q.prompt = c.key.prompt;
  q.sample = c.key.sample;
  q.position = c.key.position;
  q.prompt_tokens = c.prompt;
  q.generated_tokens = c.generated;
  return q;
}

inline std::string describe(const SampleCase& c, std::int64_t vocab_size) {
  const SamplerOptions& o = c.options;
  return "vocab " + std::to_string(vocab_size) + " row " + std::to_string(c.row) + " kind " + std::to_string(c.kind) +
         " T " + std::to_string(o.temperature) + " k " + std::to_string(o.top_k) + " p " + std::to_string(o.top_p) +
         " min_p " + std::to_string(o.min_p) + " rep " + std::to_string(o.repetition_penalty) + " pres " +
         std::to_string(o.presence_penalty) + " freq " + std::to_string(o.frequency_penalty) + " n_top " +
         std::to_string(c.n_top);
}

// Kinds of rows: smooth ones from flat to peaked, coarse ones with many equals, masked ones, extremes.
constexpr int kRowKinds = 14;
inline std::vector<float> row_of_kind(std::mt19937& rng, std::int64_t n, int kind) {
  constexpr float kMask = -std::numeric_limits<float>::infinity(), kHuge = std::numeric_limits<float>::max();
  const auto size = static_cast<std::size_t>(n);
  switch (kind) {
    case 0: return random_row(rng, n, 2);
    case 1: return random_row(rng, n, 0.01F);
    case 2: return random_row(rng, n, 30);
    case 3: return random_row(rng, n, 2, 0.125F);  // as of bf16
    case 4: return random_row(rng, n, 0.5F, 1);    // a handful of values
    case 5: return random_row(rng, n, 2, 0, 0.3);
    case 6: return random_row(rng, n, 2, 0, 0.995);
    case 7: return std::vector<float>(size, -3.5F);
    case 8: {  // one token
      std::vector<float> row(size, kMask);
      row[rng() % size] = -3e38F;
      return row;
    }
    case 9: {  // the widest span there is
      auto row = random_row(rng, n, 1);
      row[rng() % size] = kHuge;
      row[rng() % size] = -kHuge;
      return row;
    }
    case 10: {  // peaked: a few likely tokens over a low background
      auto row = random_row(rng, n, 2);
      for (int i = 0; i < 20; ++i) row[rng() % size] = 12.0F + static_cast<float>(rng() % 64) / 8;
      return row;
    }
    case 11: {  // zeros of both signs
      auto row = random_row(rng, n, 0.2F, 1);
      for (std::size_t i = 0; i < size; i += 3) row[i] = -0.0F;
      return row;
    }
    case 12: {  // neighbouring floats
      std::vector<float> row(size, 1.0F);
      for (float& x : row) x += static_cast<float>(rng() % 16) * 0x1p-23F;
      return row;
    }
    default: {  // far from zero
      auto row = random_row(rng, n, 1);
      for (float& x : row) x += 3000;
      return row;
    }
  }
}

template <class T, std::size_t n>
T pick(std::mt19937& rng, const T (&values)[n]) {
  return values[rng() % n];
}

inline SampleCase random_case(std::mt19937& rng, std::int64_t vocab_size, std::size_t row) {
  SampleCase c;
  c.row = row;
  c.key = {rng(), rng(), rng(), rng()};
  const std::int64_t n = vocab_size;
  const auto token = [&] { return static_cast<TokenId>(static_cast<std::int64_t>(rng()) % n); };
  if (rng() % 8 == 0) {
    c.kind = rng() % 2 == 0 ? RowQuery::logprob : RowQuery::top;
    c.target = token();
    c.n_top = pick<std::int64_t>(rng, {1, 5, 50, 1000});
    return c;
  }
  c.options.temperature = pick<double>(rng, {0, 1e-6, 0.1, 0.3, 0.8, 1, 1, 2, 100, 1e30});
  c.options.top_k = pick<std::int64_t>(rng, {0, 0, 0, -1, 1, 2, 40, n / 2, n - 1, n + 5});
  c.options.top_p = pick<double>(rng, {1, 1, 1, 0.999999, 0.95, 0.95, 0.5, 0.01, 0});
  c.options.min_p = pick<double>(rng, {0, 0, 0, 0.05, 0.5, 1});
  c.n_top = pick<std::int64_t>(rng, {0, 0, 0, 1, 20});
  if (rng() % 4 == 0) {
    c.options.repetition_penalty = pick<double>(rng, {1, 1.3, 0.7, 1e4});
    c.options.presence_penalty = pick<double>(rng, {0, 0.3, -2});
    c.options.frequency_penalty = pick<double>(rng, {0, 0.11, -0.5});
    c.prompt.resize(rng() % 60);
    c.generated.resize(rng() % 60);
    for (auto& t : c.prompt) t = token();
    for (auto& t : c.generated)
      t = rng() % 2 == 0 ? token() : static_cast<TokenId>(rng() % 7 % static_cast<std::uint64_t>(n));
  }
  return c;
}

// As many rows of each kind as fit, `per_row` cases on each.
inline SampleBatch random_batch(std::mt19937& rng, std::int64_t vocab_size, int n_rows, int per_row) {
  SampleBatch b;
  b.vocab_size = vocab_size;
  for (int r = 0; r < n_rows; ++r) {
    b.rows.push_back(row_of_kind(rng, vocab_size, r % kRowKinds));
    for (int i = 0; i < per_row; ++i) b.cases.push_back(random_case(rng, vocab_size, static_cast<std::size_t>(r)));
  }
  return b;
}

inline Choice expect(Sampler& sampler, const SampleBatch& batch, const SampleCase& c) {
  Choice choice;
  const auto& row = batch.rows[c.row];
  switch (c.kind) {
    case RowQuery::draw:
      sampler.draw(row, c.options, c.key, {c.prompt, c.generated}, c.n_top, static_cast<std::int64_t>(c.row), choice);
      break;
    case RowQuery::logprob: {
      choice.token = c.target;
      choice.logprob = sampler.logprob(row, c.target, static_cast<std::int64_t>(c.row));
      break;
    }
    case RowQuery::top: sampler.top(row, c.n_top, static_cast<std::int64_t>(c.row), choice.top); break;
  }
  return choice;
}

// Both samplers sum rounded exponentials (relative error 3e-7 each, and the scaled distance to the maximum is rounded
// to 2^-24 of itself, which counts by its probability: less than 1e-6 for any row), and round the result.
inline bool near_logprob(float a, float b) { return a == b || std::fabs(a - b) <= 2e-6F + 2.4e-7F * std::fabs(b); }

// Empty if `token`, `logprob` and `top` are what is expected, else what is wrong.
template <class Top>
std::string difference(const Choice& expected, const SampleCase& c, TokenId token, float logprob, const Top& top) {
  if (c.kind != RowQuery::top) {
    if (token != expected.token) {
      return "token " + std::to_string(token) + " instead of " + std::to_string(expected.token);
    }
    if (!near_logprob(logprob, expected.logprob)) {
      return "logprob " + std::to_string(logprob) + " instead of " + std::to_string(expected.logprob);
    }
  }
  if (std::size(top) != expected.top.size()) return "top of " + std::to_string(std::size(top));
  for (std::size_t i = 0; i < expected.top.size(); ++i) {
    if (top[i].id != expected.top[i].id) {
      return "top " + std::to_string(i) + " is " + std::to_string(top[i].id) + " instead of " +
             std::to_string(expected.top[i].id);
    }
    if (!near_logprob(top[i].logprob, expected.top[i].logprob)) return "logprob of top " + std::to_string(i);
  }
  return "";
}

}  // namespace banyan::test
