// The sampler on a GPU as a step uses it: queries go up in one copy from pinned memory, the kernels run, choices come
// back in one copy. Layer 4; no CUDA header.
//
// Equal logits give the tokens of banyan::Sampler, bit for bit, and log-probabilities within 2e-6 + 2.4e-7 * |logprob|
// of its own: both sum floats, in other orders and with another exponential. A result depends on its own row and query
// alone, and is the same bits in every run on one kind of GPU.
//
// One thread; up to kMostInFlight submissions wait for their harvest, which is in the order of submission. All of one
// DeviceSampler go to the same stream. Nothing is allocated once the buffers have grown to the largest step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "banyan/error.hpp"
#include "kernels/cuda/group_topk.hpp"
#include "kernels/cuda/sample_query.hpp"
#include "kernels/ops.hpp"

namespace banyan::kernels::cuda {

struct SampleResult {
  TokenId token = kNoToken;     // draw, logprob
  float logprob = 0;            // of it, unfiltered
  std::span<const RowTop> top;  // best first; valid until kMostInFlight more submissions
  std::optional<Error> error;   // this query alone failed: bad_logits, or arguments that the row does not allow
};

// Rows of one beam, each with the score of the path that leads to it.
struct BeamQuery {
  std::span<const std::int32_t> rows;  // of the logits; not empty
  std::span<const double> cumulative;  // [rows.size()]
};

struct BeamResult {
  std::span<const BeamStep> steps;  // at most k, best first; valid as SampleResult::top
  std::optional<Error> error;       // bad_logits: names the row of the logits
};

class DeviceSampler {
 public:
  static constexpr int kMostInFlight = 2;
  using StreamHandle = void*;  // a cudaStream_t

  // On the calling thread's current device. Throws Error{usage} for a vocabulary outside 1 … sampling::kMaxVocab.
  explicit DeviceSampler(std::int64_t vocab_size);
  ~DeviceSampler();
  DeviceSampler(const DeviceSampler&) = delete;
  DeviceSampler& operator=(const DeviceSampler&) = delete;

  // logits: [n_rows, row_stride] on the device, of which vocab_size count. Throws Error{usage} for a row that is not
  // there, Error{device | out_of_memory} from CUDA.
  void submit(const float* logits, std::int64_t row_stride, std::int64_t n_rows, std::span<const SampleQuery> queries,
              StreamHandle stream);
  // Of the last submission, which must have had queries: what its queries draw, once the stream has come so far. Valid
  // until the next but one.
  DrawnTokens drawn() const;
  // Waits. results: one for each query of that submission.
  void harvest(std::span<SampleResult> results);

  // The k best continuations of each beam, 1 <= k <= kMaxBeamK; masked tokens are none.
  void submit_beams(const float* logits, std::int64_t row_stride, std::int64_t n_rows, std::span<const BeamQuery> beams,
                    std::int64_t k, StreamHandle stream);
  void harvest_beams(std::span<BeamResult> results);

 private:
  struct Submission;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace banyan::kernels::cuda
