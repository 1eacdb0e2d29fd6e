#include "kernels/cuda/device_sampler.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/sample.hpp"
#include "kernels/sample_errors.hpp"

namespace banyan::kernels::cuda {
namespace {

// Arrays one behind the other in one buffer, each at a multiple of 16 bytes.
class Layout {
 public:
  template <class T>
  std::int64_t add(std::int64_t n) {
    const std::int64_t begin = n_bytes_;
    n_bytes_ += (n * static_cast<std::int64_t>(sizeof(T)) + 15) / 16 * 16;
    return begin;
  }
  std::int64_t n_bytes() const { return n_bytes_; }

 private:
  std::int64_t n_bytes_ = 0;
};

template <class T, class Buffer>
T* at(const Buffer& buffer, std::int64_t place) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(buffer.data()) + place);
}

std::optional<Error> check_query(const SampleQuery& q, std::int64_t vocab_size) {
  if (q.n_top < 0 || q.n_top > kMaxTop) {
    return Error(ErrorCode::usage, "n_top",
                 std::to_string(q.n_top) + " is out of range; allowed on the GPU: 0 to " + std::to_string(kMaxTop));
  }
  if (q.kind == RowQuery::logprob && (q.target < 0 || q.target >= vocab_size)) {
    return sampling::target_error(q.target, vocab_size);
  }
  if (!has_penalties(q)) return std::nullopt;
  if (auto error = sampling::check_history(q.prompt_tokens, vocab_size, "prompt")) return error;
  return sampling::check_history(q.generated_tokens, vocab_size, "generated");
}

Error to_error(const RowChoice& choice, std::int64_t row_number, std::int64_t vocab_size) {
  if (choice.status == RowStatus::not_finite) {
    return sampling::bad_logit_error(row_number, choice.token, choice.logprob);
  }
  return sampling::all_masked_error(row_number, vocab_size);
}

void check_row(std::int64_t row, std::int64_t n_rows) {
  if (row >= 0 && row < n_rows) return;
  throw Error(ErrorCode::usage, "row",
              std::to_string(row) + " is not among the " + std::to_string(n_rows) + " rows of logits");
}

}  // namespace

// What one submission sends, gets and remembers.
struct DeviceSampler::Submission {
  PinnedScratch sent, received;
  DeviceScratch input, output;
  Event done;
  std::int64_t n_queries = 0, n_groups = 0, k = 0;
  std::int64_t choices = 0, tops = 0, steps = 0, n_steps = 0;  // places in the output
  std::vector<std::optional<Error>> errors;                    // [n_queries] found before sending
  std::vector<std::int64_t> row_numbers;                       // [n_queries]
  std::vector<std::int64_t> top_begins;                        // [n_queries]
  std::vector<std::int64_t> group_begins;                      // [n_groups]
};

struct DeviceSampler::State {
  std::int64_t vocab_size = 0;
  int n_multiprocessors = 0;
  std::array<Submission, kMostInFlight> submissions;
  std::uint64_t n_submitted = 0, n_harvested = 0;
  DeviceScratch penalty_workspace;

  // It counts once n_submitted does, when all of it is under way.
  Submission& next_submission() {
    assert(n_submitted - n_harvested < kMostInFlight);
    return submissions[n_submitted % kMostInFlight];
  }
  Submission& finish_submission() {
    assert(n_harvested < n_submitted);
    Submission& s = submissions[n_harvested++ % kMostInFlight];
    check(cudaEventSynchronize(s.done), "cudaEventSynchronize(sampler)");
    return s;
  }

  // Counts in the workspace begin as 0, and every kernel leaves them so.
  std::byte* reserve_penalties(cudaStream_t stream) {
    const std::int64_t n_bytes = penalty_workspace_bytes(vocab_size, n_multiprocessors);
    if (penalty_workspace.bytes() < n_bytes) {
      penalty_workspace.reserve_bytes(n_bytes);
      check(cudaMemsetAsync(penalty_workspace.data(), 0, static_cast<std::size_t>(n_bytes), stream), "cudaMemsetAsync");
    }
    return static_cast<std::byte*>(penalty_workspace.data());
  }
};

DeviceSampler::DeviceSampler(std::int64_t vocab_size) : state_(std::make_unique<State>()) {
  if (vocab_size < 1 || vocab_size > sampling::kMaxVocab) {
    throw Error(ErrorCode::usage, "vocab_size",
                std::to_string(vocab_size) + "; allowed: 1 to " + std::to_string(sampling::kMaxVocab));
  }
  state_->vocab_size = vocab_size;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&state_->n_multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
}

DeviceSampler::~DeviceSampler() {
  // What is in flight reads and writes the buffers.
  for (; state_->n_harvested < state_->n_submitted; ++state_->n_harvested) {
    cudaEventSynchronize(state_->submissions[state_->n_harvested % kMostInFlight].done);
  }
}

DrawnTokens DeviceSampler::drawn() const {
  const Submission& s = state_->submissions[(state_->n_submitted - 1) % kMostInFlight];
  static_assert(offsetof(RowChoice, token) == 0 && sizeof(RowChoice) % sizeof(std::int32_t) == 0);
  return {at<const std::int32_t>(s.output, s.choices), sizeof(RowChoice) / sizeof(std::int32_t)};
}

namespace {

void send(const PinnedScratch& from, const DeviceScratch& to, std::int64_t n_bytes, cudaStream_t stream) {
  check(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(n_bytes), cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync(queries)");
}
void receive(const DeviceScratch& from, const PinnedScratch& to, std::int64_t n_bytes, cudaEvent_t done,
             cudaStream_t stream) {
  check(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(n_bytes), cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync(choices)");
  check(cudaEventRecord(done, stream), "cudaEventRecord(sampler)");
}

}  // namespace

void DeviceSampler::submit(const float* logits, std::int64_t row_stride, std::int64_t n_rows,
                           std::span<const SampleQuery> queries, StreamHandle stream_handle) {
  auto* const stream = static_cast<cudaStream_t>(stream_handle);
  State& state = *state_;
  const auto n = std::ssize(queries);
  for (const SampleQuery& q : queries) check_row(q.row, n_rows);
  Submission& s = state.next_submission();
  s.n_queries = n;
  s.errors.assign(queries.size(), std::nullopt);
  s.row_numbers.resize(queries.size());
  s.top_begins.resize(queries.size());

  std::int64_t n_history = 0;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const SampleQuery& q = queries[i];
    s.errors[i] = check_query(q, state.vocab_size);
    if (!s.errors[i] && has_penalties(q)) n_history += std::ssize(q.prompt_tokens) + std::ssize(q.generated_tokens);
  }
  Layout input;
  const auto query_place = input.add<RowQuery>(n), history_place = input.add<std::int32_t>(n_history);
  s.sent.reserve_bytes(input.n_bytes());
  s.input.reserve_bytes(input.n_bytes());
  auto* const sent = at<RowQuery>(s.sent, query_place);
  auto* const history = at<std::int32_t>(s.sent, history_place);

  bool any_penalties = false;
  std::int64_t n_tops = 0;
  n_history = 0;
  const auto append = [&](std::span<const TokenId> tokens) {
    std::copy(tokens.begin(), tokens.end(), history + n_history);
    n_history += std::ssize(tokens);
  };
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const SampleQuery& q = queries[i];
    // A query that failed already asks for something harmless.
    RowQuery r = s.errors[i] ? RowQuery{.kind = RowQuery::logprob, .row = q.row} : to_row_query(q, state.vocab_size);
    r.history_begin = n_history;
    if (r.penalties != 0) {
      any_penalties = true;
      append(q.prompt_tokens);
      append(q.generated_tokens);
    }
    s.row_numbers[i] = q.row_number;
    r.top_begin = s.top_begins[i] = n_tops;
    n_tops += r.n_top;
    sent[i] = r;
  }

  Layout output;
  s.choices = output.add<RowChoice>(n);
  s.tops = output.add<RowTop>(n_tops);
  s.received.reserve_bytes(output.n_bytes());
  s.output.reserve_bytes(output.n_bytes());
  if (n > 0) {
    send(s.sent, s.input, input.n_bytes(), stream);
    launch_sample({.logits = logits,
                   .row_stride = row_stride,
                   .vocab_size = static_cast<std::int32_t>(state.vocab_size),
                   .n_queries = static_cast<std::int32_t>(n),
                   .queries = at<RowQuery>(s.input, query_place),
                   .history = at<std::int32_t>(s.input, history_place),
                   .choices = at<RowChoice>(s.output, s.choices),
                   .tops = at<RowTop>(s.output, s.tops),
                   .penalty_workspace = any_penalties ? state.reserve_penalties(stream) : nullptr},
                  state.n_multiprocessors, stream);
    receive(s.output, s.received, output.n_bytes(), s.done, stream);
  }
  ++state.n_submitted;
}

void DeviceSampler::harvest(std::span<SampleResult> results) {
  Submission& s = state_->finish_submission();
  assert(std::ssize(results) == s.n_queries);
  const auto* const choices = at<const RowChoice>(s.received, s.choices);
  const auto* const tops = at<const RowTop>(s.received, s.tops);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const RowChoice& c = choices[i];
    SampleResult& r = results[i];
    r = {};
    if (s.errors[i]) {
      r.error = std::move(s.errors[i]);
    } else if (c.status != RowStatus::good) {
      r.error = to_error(c, s.row_numbers[i], state_->vocab_size);
    } else {
      r.token = c.token;
      r.logprob = c.logprob;
      r.top = {tops + s.top_begins[i], static_cast<std::size_t>(c.n_top)};
    }
  }
}

void DeviceSampler::submit_beams(const float* logits, std::int64_t row_stride, std::int64_t n_rows,
                                 std::span<const BeamQuery> beams, std::int64_t k, StreamHandle stream_handle) {
  auto* const stream = static_cast<cudaStream_t>(stream_handle);
  State& state = *state_;
  if (k < 1 || k > kMaxBeamK) {
    throw Error(ErrorCode::usage, "k",
                std::to_string(k) + " is out of range; allowed on the GPU: 1 to " + std::to_string(kMaxBeamK));
  }
  std::int64_t n = 0;
  for (const BeamQuery& beam : beams) {
    assert(beam.rows.size() == beam.cumulative.size());
    for (const std::int32_t row : beam.rows) check_row(row, n_rows);
    n += std::ssize(beam.rows);
  }
  Submission& s = state.next_submission();
  s.n_queries = n;
  s.n_groups = std::ssize(beams);
  s.k = k;
  s.row_numbers.clear();
  s.group_begins.clear();
  const std::int64_t per_row = std::min(k, state.vocab_size);

  Layout input;
  const auto query_place = input.add<RowQuery>(n), score_place = input.add<double>(n),
             group_place = input.add<std::int32_t>(s.n_groups + 1);
  s.sent.reserve_bytes(input.n_bytes());
  s.input.reserve_bytes(input.n_bytes());
  auto* query = at<RowQuery>(s.sent, query_place);
  auto* score = at<double>(s.sent, score_place);
  auto* group = at<std::int32_t>(s.sent, group_place);
  *group++ = 0;
  for (const BeamQuery& beam : beams) {
    s.group_begins.push_back(std::ssize(s.row_numbers));
    for (std::size_t i = 0; i < beam.rows.size(); ++i) {
      RowQuery r;
      r.kind = RowQuery::top;
      r.row = beam.rows[i];
      r.n_top = static_cast<std::int32_t>(per_row);
      r.top_begin = std::ssize(s.row_numbers) * per_row;
      *query++ = r;
      *score++ = beam.cumulative[i];
      s.row_numbers.push_back(r.row);
    }
    *group++ = static_cast<std::int32_t>(s.row_numbers.size());
  }

  Layout output;
  s.choices = output.add<RowChoice>(n);
  s.n_steps = output.add<std::int32_t>(s.n_groups);
  s.steps = output.add<BeamStep>(s.n_groups * k);
  const std::int64_t n_received_bytes = output.n_bytes();
  s.tops = output.add<RowTop>(n * per_row);  // stay on the device
  s.received.reserve_bytes(n_received_bytes);
  s.output.reserve_bytes(output.n_bytes());
  send(s.sent, s.input, input.n_bytes(), stream);
  const auto* const queries = at<RowQuery>(s.input, query_place);
  auto* const choices = at<RowChoice>(s.output, s.choices);
  auto* const tops = at<RowTop>(s.output, s.tops);
  launch_sample({.logits = logits,
                 .row_stride = row_stride,
                 .vocab_size = static_cast<std::int32_t>(state.vocab_size),
                 .n_queries = static_cast<std::int32_t>(n),
                 .queries = queries,
                 .choices = choices,
                 .tops = tops},
                state.n_multiprocessors, stream);
  launch_group_topk({.queries = queries,
                     .choices = choices,
                     .tops = tops,
                     .cumulative = at<double>(s.input, score_place),
                     .group_begin = at<std::int32_t>(s.input, group_place),
                     .n_groups = static_cast<std::int32_t>(s.n_groups),
                     .k = static_cast<std::int32_t>(k),
                     .steps = at<BeamStep>(s.output, s.steps),
                     .n_steps = at<std::int32_t>(s.output, s.n_steps)},
                    stream);
  receive(s.output, s.received, n_received_bytes, s.done, stream);
  ++state.n_submitted;
}

void DeviceSampler::harvest_beams(std::span<BeamResult> results) {
  Submission& s = state_->finish_submission();
  assert(std::ssize(results) == s.n_groups);
  const auto* const choices = at<const RowChoice>(s.received, s.choices);
  const auto* const steps = at<const BeamStep>(s.received, s.steps);
  const auto* const n_steps = at<const std::int32_t>(s.received, s.n_steps);
  for (std::size_t g = 0; g < results.size(); ++g) {
    results[g] = {};
    if (n_steps[g] < 0) {
      const auto bad = static_cast<std::size_t>(s.group_begins[g] - 1 - n_steps[g]);
      results[g].error = to_error(choices[bad], s.row_numbers[bad], state_->vocab_size);
    } else {
      results[g].steps = {steps + static_cast<std::int64_t>(g) * s.k, static_cast<std::size_t>(n_steps[g])};
    }
  }
}

}  // namespace banyan::kernels::cuda
