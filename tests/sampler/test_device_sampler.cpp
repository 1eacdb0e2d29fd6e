// The device sampler against the host's: the same tokens, one for one. Needs a GPU (label gpu).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device_sampler.hpp"
#include "sample_batch.hpp"

using namespace banyan;
using namespace banyan::kernels::cuda;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

// Rows on the device, [n_rows, stride]; what lies between the rows is poison.
class DeviceRows {
 public:
  DeviceRows(const std::vector<std::vector<float>>& rows, std::int64_t stride)
      : n_rows_(std::ssize(rows)), stride_(stride) {
    std::vector<float> flat(static_cast<std::size_t>(n_rows_ * stride_), kNan);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      std::copy(rows[r].begin(), rows[r].end(), flat.begin() + static_cast<std::int64_t>(r) * stride_);
    }
    const std::size_t n_bytes = flat.size() * sizeof(float);
    memory_.reserve_bytes(static_cast<std::int64_t>(n_bytes));
    check(cudaMemcpy(memory_.data(), flat.data(), n_bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  const float* data() const { return static_cast<const float*>(memory_.data()); }
  std::int64_t n_rows() const { return n_rows_; }
  std::int64_t stride() const { return stride_; }

 private:
  std::int64_t n_rows_, stride_;
  DeviceScratch memory_;
};

std::vector<SampleQuery> to_queries(const std::vector<test::SampleCase>& cases) {
  std::vector<SampleQuery> queries;
  for (const auto& c : cases) queries.push_back(test::to_query(c));
  return queries;
}

// An answer that outlives the sampler's buffers.
struct Answer {
  TokenId token = kNoToken;
  float logprob = 0;
  std::vector<RowTop> top;
  std::string error;

  explicit Answer(const SampleResult& r)
      : token(r.token), logprob(r.logprob), top(r.top.begin(), r.top.end()), error(r.error ? r.error->what() : "") {}
  friend bool operator==(const Answer& a, const Answer& b) {
    return a.token == b.token && std::memcmp(&a.logprob, &b.logprob, sizeof(float)) == 0 && a.error == b.error &&
           a.top.size() == b.top.size() &&
           (a.top.empty() || std::memcmp(a.top.data(), b.top.data(), a.top.size() * sizeof(RowTop)) == 0);
  }
};

std::vector<Answer> harvest(DeviceSampler& sampler, std::size_t n) {
  std::vector<SampleResult> results(n);
  sampler.harvest(results);
  std::vector<Answer> answers;
  for (const auto& r : results) answers.emplace_back(r);
  return answers;
}

std::vector<Answer> answer(DeviceSampler& sampler, const DeviceRows& rows, const std::vector<test::SampleCase>& cases,
                           cudaStream_t stream) {
  sampler.submit(rows.data(), rows.stride(), rows.n_rows(), to_queries(cases), stream);
  return harvest(sampler, cases.size());
}

// All of a batch on the device and on the host.
void check_batch(const test::SampleBatch& batch, std::int64_t stride, DeviceSampler& sampler) {
  const Stream stream;
  const DeviceRows rows(batch.rows, stride);
  const auto answers = answer(sampler, rows, batch.cases, stream);
  Sampler host;
  int n_wrong = 0;
  double worst = 0;
  for (std::size_t i = 0; i < batch.cases.size(); ++i) {
    const auto& c = batch.cases[i];
    const Choice expected = test::expect(host, batch, c);
    const std::string wrong = answers[i].error.empty()
                                  ? test::difference(expected, c, answers[i].token, answers[i].logprob, answers[i].top)
                                  : answers[i].error;
    if (!wrong.empty() && ++n_wrong <= 10) MESSAGE(wrong, ": ", test::describe(c, batch.vocab_size));
    if (wrong.empty() && std::isfinite(expected.logprob) && std::fabs(expected.logprob) < 100) {
      worst = std::max(worst, std::fabs(static_cast<double>(answers[i].logprob) - expected.logprob));
    }
  }
  MESSAGE("vocabulary ", batch.vocab_size, ", ", batch.rows.size(), " rows, ", batch.cases.size(),
          " queries: ", n_wrong, " wrong; largest difference of a log-probability above -100: ", worst);
  CHECK(n_wrong == 0);
}

void check_batch(const test::SampleBatch& batch, std::int64_t stride) {
  DeviceSampler sampler(batch.vocab_size);
  check_batch(batch, stride, sampler);
}

}  // namespace

TEST_CASE("device sampler: all kinds of rows and options, small vocabularies") {
  std::mt19937 rng(1);
  for (const std::int64_t vocab_size : {1, 2, 3, 17, 64, 511, 512, 513}) {
    const auto batch = test::random_batch(rng, vocab_size, 280, 8);
    check_batch(batch, vocab_size);
    check_batch(batch, (vocab_size + 7) / 4 * 4);  // rows apart, each 16-byte aligned
  }
}

TEST_CASE("device sampler: thousands of rows") {
  std::mt19937 rng(2);
  check_batch(test::random_batch(rng, 1000, 8192, 2), 1000);
  check_batch(test::random_batch(rng, 4099, 2048, 4), 4099);
}

TEST_CASE("device sampler: vocabularies of models") {
  std::mt19937 rng(3);
  check_batch(test::random_batch(rng, 32'000, 20 * test::kRowKinds, 8), 32'000);
  check_batch(test::random_batch(rng, 50'257, 4 * test::kRowKinds, 8), 50'257);  // rows are not aligned
  check_batch(test::random_batch(rng, 128'256, 4 * test::kRowKinds, 8), 128'256);
  check_batch(test::random_batch(rng, 262'144, 2 * test::kRowKinds, 10), 262'144);
  check_batch(test::random_batch(rng, sampling::kMaxVocab, test::kRowKinds, 5), sampling::kMaxVocab);
}

TEST_CASE("device sampler: any number of rows, and a result does not depend on the company, the run or the order") {
  std::mt19937 rng(4);
  constexpr std::int64_t kVocab = 2003;
  const auto batch = test::random_batch(rng, kVocab, 1024, 1);
  const DeviceRows rows(batch.rows, kVocab);
  const Stream stream;
  DeviceSampler sampler(kVocab);
  const auto all = answer(sampler, rows, batch.cases, stream);
  CHECK(answer(sampler, rows, batch.cases, stream) == all);
  for (const std::size_t n : {0, 1, 2, 3, 131, 132, 133, 264, 265, 1023}) {
    const std::vector<test::SampleCase> some(batch.cases.begin(), batch.cases.begin() + static_cast<std::int64_t>(n));
    CHECK(answer(sampler, rows, some, stream) ==
          std::vector<Answer>(all.begin(), all.begin() + static_cast<std::int64_t>(n)));
  }
  std::vector<test::SampleCase> reversed(batch.cases.rbegin(), batch.cases.rend());
  CHECK(answer(sampler, rows, reversed, stream) == std::vector<Answer>(all.rbegin(), all.rend()));
  DeviceSampler other(kVocab);
  CHECK(answer(other, rows, {batch.cases[77]}, stream) == std::vector<Answer>{all[77]});
}

TEST_CASE("device sampler: 8,192 samples of one row") {
  std::mt19937 rng(5);
  test::SampleBatch batch;
  batch.vocab_size = 32'000;
  batch.rows.push_back(test::random_row(rng, batch.vocab_size, 3));
  for (std::uint64_t i = 0; i < 8192; ++i) {
    test::SampleCase c;
    c.options = {.temperature = 0.8, .top_p = 0.95};
    c.key = {.seed = 7, .sample = i};
    batch.cases.push_back(c);
  }
  check_batch(batch, batch.vocab_size);
}

TEST_CASE("device sampler: two submissions in flight, harvested in order") {
  std::mt19937 rng(6);
  const auto batch = test::random_batch(rng, 5000, 56, 4);
  const DeviceRows rows(batch.rows, batch.vocab_size);
  const Stream stream;
  DeviceSampler sampler(batch.vocab_size);
  const auto expected = answer(sampler, rows, batch.cases, stream);
  const auto half = std::ssize(batch.cases) / 2;
  const std::vector<test::SampleCase> first(batch.cases.begin(), batch.cases.begin() + half),
      second(batch.cases.begin() + half, batch.cases.end());
  for (int i = 0; i < 3; ++i) {
    sampler.submit(rows.data(), rows.stride(), rows.n_rows(), to_queries(first), stream);
    sampler.submit(rows.data(), rows.stride(), rows.n_rows(), to_queries(second), stream);
    CHECK(harvest(sampler, first.size()) == std::vector<Answer>(expected.begin(), expected.begin() + half));
    CHECK(harvest(sampler, second.size()) == std::vector<Answer>(expected.begin() + half, expected.end()));
  }
}

TEST_CASE("device sampler: penalties with long histories, and with the whole vocabulary as history") {
  std::mt19937 rng(7);
  test::SampleBatch batch;
  batch.vocab_size = 10'007;
  for (int r = 0; r < 300; ++r) {  // more than there are blocks: the counts are 0 again for the next row of a block
    batch.rows.push_back(test::random_row(rng, batch.vocab_size, 2, 0, 0.1));
    test::SampleCase c;
    c.row = static_cast<std::size_t>(r);
    c.options = {.temperature = 0.9, .repetition_penalty = 1.2, .presence_penalty = 0.3, .frequency_penalty = 0.02};
    c.key = {.seed = 1, .sample = static_cast<std::uint64_t>(r)};
    c.prompt.resize(static_cast<std::size_t>(r) * 40);
    c.generated.resize(static_cast<std::size_t>(r) * 60);
    for (auto& t : c.prompt) t = static_cast<TokenId>(rng() % 10'007);
    for (auto& t : c.generated) t = static_cast<TokenId>(rng() % (1 + rng() % 10'007));
    batch.cases.push_back(c);
  }
  for (TokenId t = 0; t < 10'007; ++t) batch.cases[7].generated.push_back(t);
  check_batch(batch, batch.vocab_size);
}

TEST_CASE("BL-15: device sampler: edge values of the options") {
  test::SampleBatch batch;
  batch.vocab_size = 3;
  batch.rows = {{1, 3, 2}};
  const SamplerOptions always_1[] = {
      {.temperature = 0}, {.temperature = 1e-6}, {.top_k = 1}, {.min_p = 1}, {.top_p = 0}};
  for (const auto& options : always_1) {
    for (std::uint64_t i = 0; i < 100; ++i) {
      test::SampleCase c;
      c.options = options;
      c.key.position = i;
      batch.cases.push_back(c);
    }
  }
  const std::size_t n_always = batch.cases.size();
  for (const std::int64_t top_k : {0, -1}) {
    for (std::uint64_t i = 0; i < 1000; ++i) {
      test::SampleCase c;
      c.options.top_k = top_k;
      c.key.position = i;
      batch.cases.push_back(c);
    }
  }
  check_batch(batch, 3);
  const Stream stream;
  DeviceSampler sampler(3);
  const auto answers = answer(sampler, DeviceRows(batch.rows, 3), batch.cases, stream);
  std::array<std::array<int, 3>, 2> counts{};
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (i < n_always) CHECK(answers[i].token == 1);
    if (i >= n_always) ++counts[(i - n_always) / 1000][static_cast<std::size_t>(answers[i].token)];
  }
  for (const auto& of_k : counts) {
    for (const int n : of_k) CHECK(n > 0);
  }
}

TEST_CASE("BL-16: device sampler: bad rows are errors with the host's words, the others are as without them") {
  std::mt19937 rng(8);
  auto batch = test::random_batch(rng, 700, 2, 10);
  const Stream stream;
  DeviceSampler sampler(700);
  const auto alone = answer(sampler, DeviceRows(batch.rows, 700), batch.cases, stream);
  batch.rows.push_back(std::vector<float>(700, kNan));
  batch.rows.push_back(std::vector<float>(700, -kInf));
  batch.rows.push_back(batch.rows[0]);
  batch.rows.back()[699] = kInf;
  for (const std::size_t row : {2, 3, 4}) {
    for (int i = 0; i < 10; ++i) batch.cases.push_back(test::random_case(rng, 700, row));
  }
  const auto all = answer(sampler, DeviceRows(batch.rows, 700), batch.cases, stream);
  Sampler host;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i < alone.size()) {
      CHECK(all[i] == alone[i]);
      continue;
    }
    std::string expected;
    try {
      test::expect(host, batch, batch.cases[i]);
    } catch (const Error& e) {
      expected = e.what();
    }
    CHECK_FALSE(expected.empty());
    CHECK(all[i].error == expected);
  }
}

TEST_CASE("device sampler: wrong arguments fail alone, and what is no row fails the call") {
  std::mt19937 rng(9);
  test::SampleBatch batch;
  batch.vocab_size = 100;
  batch.rows.push_back(test::random_row(rng, 100, 1));
  batch.cases.resize(5);
  batch.cases[1].kind = RowQuery::logprob;
  batch.cases[1].target = 100;
  batch.cases[2].options.repetition_penalty = 2;
  batch.cases[2].prompt = {3, 100};
  batch.cases[3].n_top = kMaxTop + 1;
  const Stream stream;
  DeviceSampler sampler(100);
  const DeviceRows rows(batch.rows, 100);
  const auto answers = answer(sampler, rows, batch.cases, stream);
  CHECK(answers[0].error.empty());
  CHECK(answers[1].error.find("100 is outside the vocabulary of 100 tokens") != std::string::npos);
  CHECK(answers[2].error.find("prompt token 1") != std::string::npos);
  CHECK(answers[3].error.find("n_top") != std::string::npos);
  CHECK(answers[4] == answers[0]);
  SampleQuery query;
  query.row = 1;
  CHECK_THROWS_AS(sampler.submit(rows.data(), 100, 1, {&query, 1}, stream), Error);
  CHECK(answer(sampler, rows, {batch.cases[0]}, stream) == std::vector<Answer>{answers[0]});
  CHECK_THROWS_AS(DeviceSampler(0), Error);
  CHECK_THROWS_AS(DeviceSampler(sampling::kMaxVocab + 1), Error);
}

namespace {

struct Beam {
  std::vector<std::int32_t> rows;
  std::vector<double> cumulative;
};

// Continuations as the host has them (one more than were asked for, if there are). Equals of one row have one logit and
// one log-sum on each side, so their order is exact; scores of two rows that are nearer than the rounding of both sides
// may stand either way.
void check_beam(const BeamResult& result, const std::vector<Continuation>& expected, std::int64_t k) {
  constexpr double kNear = 1e-5;
  REQUIRE_FALSE(result.error.has_value());
  REQUIRE(std::ssize(result.steps) == std::min(k, std::ssize(expected)));
  for (std::size_t i = 0; i < result.steps.size(); ++i) {
    const BeamStep& s = result.steps[i];
    const Continuation& e = expected[i];
    REQUIRE(std::fabs(s.score - e.score) <= kNear);
    const bool free_order = std::any_of(expected.begin(), expected.end(), [&](const Continuation& other) {
      return other.row != e.row && std::fabs(other.score - e.score) < kNear;
    });
    if (free_order) continue;
    REQUIRE(s.row == e.row);
    REQUIRE(s.token == e.token);
    REQUIRE(test::near_logprob(s.logprob, e.logprob));
  }
}

}  // namespace

TEST_CASE("device group_topk: as the host's") {
  std::mt19937 rng(10);
  const Stream stream;
  Sampler host;
  for (const std::int64_t vocab_size : {5, 300, 32'000}) {
    std::vector<std::vector<float>> rows;
    for (int r = 0; r < 64; ++r) rows.push_back(test::random_row(rng, vocab_size, 2, r % 4 == 0 ? 0.5F : 0.0F, 0.1));
    const DeviceRows on_device(rows, vocab_size);
    DeviceSampler sampler(vocab_size);
    for (const std::int64_t k : {1, 5, 16, 64, 1024}) {
      std::vector<Beam> beams;
      std::vector<std::vector<Continuation>> expected;
      for (int b = 0; b < 20; ++b) {
        Beam beam;
        std::vector<float> logits;
        const auto n_rows = b == 0 ? 64 : 1 + rng() % 8;
        for (std::size_t i = 0; i < n_rows; ++i) {
          beam.rows.push_back(static_cast<std::int32_t>(rng() % rows.size()));
          beam.cumulative.push_back(-static_cast<double>(rng() % 1000) / 100);
          const auto& row = rows[static_cast<std::size_t>(beam.rows.back())];
          logits.insert(logits.end(), row.begin(), row.end());
        }
        expected.emplace_back();
        host.group_topk(logits, beam.cumulative, k + 1, 0, expected.back());
        beams.push_back(std::move(beam));
      }
      std::vector<BeamQuery> queries;
      for (const Beam& beam : beams) queries.push_back({beam.rows, beam.cumulative});
      sampler.submit_beams(on_device.data(), vocab_size, on_device.n_rows(), queries, k, stream);
      std::vector<BeamResult> results(beams.size());
      sampler.harvest_beams(results);
      for (std::size_t b = 0; b < beams.size(); ++b) check_beam(results[b], expected[b], k);
    }
  }
}

TEST_CASE("device group_topk: ties go by row, then token; a bad row fails its beam alone") {
  const Stream stream;
  std::vector<std::vector<float>> rows(4, std::vector<float>(50, 1.0F));
  rows[3][20] = kNan;
  const DeviceRows on_device(rows, 50);
  DeviceSampler sampler(50);
  const std::vector<std::int32_t> good{2, 0, 1}, bad{0, 3};
  const std::vector<double> cumulative{0, 0, 0};
  const std::vector<BeamQuery> beams{{good, cumulative}, {bad, std::span(cumulative).first(2)}};
  sampler.submit_beams(on_device.data(), 50, 4, beams, 70, stream);
  std::vector<BeamResult> results(2);
  sampler.harvest_beams(results);
  REQUIRE(results[0].steps.size() == 70);
  for (int i = 0; i < 70; ++i) {
    CHECK(results[0].steps[static_cast<std::size_t>(i)].row == i / 50);
    CHECK(results[0].steps[static_cast<std::size_t>(i)].token == i % 50);
  }
  REQUIRE(results[1].error.has_value());
  CHECK(results[1].error->code() == ErrorCode::bad_logits);
  CHECK(results[1].error->where() == "row 3");
}
