// The algorithm of the device sampler, run by threads of the host: tokens as banyan::Sampler gives them.
#include <doctest/doctest.h>
#include <memory>
#include <vector>

#include "host_group.hpp"
#include "kernels/cuda/group_topk.hpp"
#include "kernels/cuda/sample_row.hpp"
#include "sample_batch.hpp"

using namespace banyan;
using namespace banyan::kernels::cuda;

namespace {

struct Answers {
  std::vector<RowChoice> choices;
  std::vector<RowTop> tops;
  std::vector<std::int64_t> top_begins;
};

// What DeviceSampler does, with one group of threads.
template <int kLanes>
Answers answer(const test::SampleBatch& batch, int n_threads) {
  std::vector<RowQuery> queries;
  std::vector<std::int32_t> history;
  Answers a;
  std::int64_t n_tops = 0;
  for (const auto& c : batch.cases) {
    RowQuery q = to_row_query(test::to_query(c), batch.vocab_size);
    q.history_begin = std::ssize(history);
    if (q.penalties != 0) {
      history.insert(history.end(), c.prompt.begin(), c.prompt.end());
      history.insert(history.end(), c.generated.begin(), c.generated.end());
    }
    q.top_begin = n_tops;
    a.top_begins.push_back(n_tops);
    n_tops += q.n_top;
    queries.push_back(q);
  }
  a.choices.resize(queries.size());
  a.tops.resize(static_cast<std::size_t>(n_tops));
  const auto scratch = std::make_unique<RowScratch>();
  std::vector<float> edited(static_cast<std::size_t>(batch.vocab_size));
  std::vector<std::uint32_t> counts(edited.size());
  test::HostGroup<kLanes>::run(n_threads, [&](test::HostGroup<kLanes> group) {
    RowSampler<test::HostGroup<kLanes>> sampler(group, *scratch);
    for (std::size_t i = 0; i < queries.size(); ++i) {
      const auto& row = batch.rows[static_cast<std::size_t>(queries[i].row)];
      sampler.answer(queries[i], row.data(), static_cast<std::int32_t>(batch.vocab_size), history.data(), edited.data(),
                     counts.data(), &a.choices[i], a.tops.data());
    }
  });
  for (const std::uint32_t count : counts) REQUIRE(count == 0);
  return a;
}

void check_answers(const test::SampleBatch& batch, const Answers& a) {
  Sampler sampler;
  int n_wrong = 0;
  for (std::size_t i = 0; i < batch.cases.size(); ++i) {
    const auto& c = batch.cases[i];
    const Choice expected = test::expect(sampler, batch, c);
    REQUIRE(a.choices[i].status == RowStatus::good);
    const std::span<const RowTop> top(a.tops.data() + a.top_begins[i], static_cast<std::size_t>(a.choices[i].n_top));
    const std::string wrong = test::difference(expected, c, a.choices[i].token, a.choices[i].logprob, top);
    if (!wrong.empty() && ++n_wrong < 10) MESSAGE(wrong, ": ", test::describe(c, batch.vocab_size));
  }
  CHECK(n_wrong == 0);
}

}  // namespace

TEST_CASE("row algorithm: one thread, all kinds of rows and options, tokens as the sampler's") {
  std::mt19937 rng(1);
  for (const std::int64_t vocab_size : {1, 2, 3, 17, 64, 511, 512, 513, 1000, 4099}) {
    const auto batch = test::random_batch(rng, vocab_size, 2 * test::kRowKinds, 12);
    check_answers(batch, answer<1>(batch, 1));
  }
}

TEST_CASE("row algorithm: large vocabularies, where equals do not fit in the list of candidates") {
  std::mt19937 rng(2);
  for (const std::int64_t vocab_size : {32'000, 50'257}) {
    const auto batch = test::random_batch(rng, vocab_size, test::kRowKinds, 5);
    check_answers(batch, answer<1>(batch, 1));
  }
}

TEST_CASE("row algorithm: eight threads in warps of four") {
  std::mt19937 rng(3);
  for (const std::int64_t vocab_size : {17, 1030, 9000}) {
    const auto batch = test::random_batch(rng, vocab_size, test::kRowKinds, 2);
    check_answers(batch, answer<4>(batch, 8));
  }
}

TEST_CASE("BL-16: row algorithm: a bad row is found and named, the others are as without it") {
  std::mt19937 rng(4);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  auto batch = test::random_batch(rng, 700, 2, 10);
  const Answers alone = answer<1>(batch, 1);
  batch.rows.push_back(std::vector<float>(700, kNan));
  batch.rows.push_back(std::vector<float>(700, -kInf));
  batch.rows.push_back(batch.rows[0]);
  batch.rows.back()[699] = kInf;
  batch.rows.back()[650] = kNan;
  for (const std::size_t row : {2, 3, 4}) {
    for (int i = 0; i < 10; ++i) batch.cases.push_back(test::random_case(rng, 700, row));
  }
  const Answers all = answer<1>(batch, 1);
  for (std::size_t i = 0; i < all.choices.size(); ++i) {
    const RowChoice& c = all.choices[i];
    if (i < 20) CHECK((c.token == alone.choices[i].token && c.logprob == alone.choices[i].logprob));
    if (i >= 20 && i < 30) CHECK((c.status == RowStatus::not_finite && c.token == 0 && std::isnan(c.logprob)));
    if (i >= 30 && i < 40) CHECK(c.status == RowStatus::all_masked);
    if (i >= 40) CHECK((c.status == RowStatus::not_finite && c.token == 650 && std::isnan(c.logprob)));
  }
}

TEST_CASE("row algorithm: exactly k of many equals, the lower ids, however many there are") {
  // 20,000 equals do not fit in the list, so the border is found by bisection.
  test::SampleBatch batch;
  batch.vocab_size = 20'011;
  batch.rows.emplace_back(20'011, 1.0F);
  batch.rows[0][5] = 2.0F;
  for (std::int64_t k : {1, 2, 3, 4096, 8192}) {
    test::SampleCase c;
    c.kind = RowQuery::top;
    c.n_top = k;
    batch.cases.push_back(c);
  }
  const Answers a = answer<1>(batch, 1);
  check_answers(batch, a);
  for (std::size_t i = 0; i < batch.cases.size(); ++i) {
    const RowTop* top = a.tops.data() + a.top_begins[i];
    REQUIRE(a.choices[i].n_top == batch.cases[i].n_top);
    CHECK(top[0].id == 5);
    for (std::int32_t j = 1; j < a.choices[i].n_top; ++j) REQUIRE(top[j].id == (j <= 5 ? j - 1 : j));
  }
}

TEST_CASE("group_topk algorithm: as the sampler's, over one list and over several") {
  std::mt19937 rng(5);
  Sampler sampler;
  // Lists of 1,024 for each row: three rows at a time.
  for (const auto& [vocab_size, n_rows, k] :
       {std::array<std::int64_t, 3>{5, 1, 3}, {5, 4, 16}, {300, 7, 20}, {2000, 11, 1024}, {300, 200, 64}}) {
    test::SampleBatch batch;
    batch.vocab_size = vocab_size;
    std::vector<float> logits;
    std::vector<double> cumulative;
    for (std::int64_t r = 0; r < n_rows; ++r) {
      batch.rows.push_back(test::random_row(rng, vocab_size, 1, r % 2 == 0 ? 0.5F : 0.0F, 0.1));
      if (r % 4 == 3) batch.rows.back() = batch.rows[batch.rows.size() - 2];  // ties between rows
      logits.insert(logits.end(), batch.rows.back().begin(), batch.rows.back().end());
      cumulative.push_back(-static_cast<double>(rng() % 8) / 4);
      if (r % 4 == 3) cumulative.back() = cumulative[cumulative.size() - 2];
      test::SampleCase c;
      c.kind = RowQuery::top;
      c.row = static_cast<std::size_t>(r);
      c.n_top = k;
      batch.cases.push_back(c);
    }
    const Answers a = answer<1>(batch, 1);
    std::vector<RowQuery> queries(batch.cases.size());
    for (std::size_t i = 0; i < queries.size(); ++i) queries[i].top_begin = a.top_begins[i];
    std::vector<BeamStep> list(kBeamList), steps(static_cast<std::size_t>(k));
    std::int32_t n_steps = 0;
    const BeamRows rows{queries.data(), a.choices.data(), a.tops.data(), cumulative.data(),
                        static_cast<std::int32_t>(n_rows)};
    test::HostGroup<1>::run(2, [&](test::HostGroup<1> group) {
      group_topk(group, list.data(), rows, static_cast<std::int32_t>(k), steps.data(), &n_steps);
    });
    std::vector<Continuation> expected;
    sampler.group_topk(logits, cumulative, k, 0, expected);
    REQUIRE(n_steps == std::ssize(expected));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      // Equal scores may part by rounding, so the order is compared by score.
      REQUIRE(steps[i].score == doctest::Approx(expected[i].score).epsilon(1e-6));
      if (i > 0) REQUIRE_FALSE(better(steps[i], steps[i - 1]));
    }
  }
}
