#include "engine/device_answer.hpp"

#include <array>
#include <utility>

#include "kernels/cuda/backend.hpp"
#include "kernels/cuda/device_sampler.hpp"

namespace banyan::detail {

namespace {

using kernels::cuda::RowQuery;

bool for_device(const StepQuery& query) {
  return query.hook == nullptr && query.kind != StepQuery::Kind::reward && query.n_top <= kernels::cuda::kMaxTop;
}

// In the place of a query that the device cannot answer, so that query i is the i-th there, too.
kernels::cuda::SampleQuery harmless(std::int32_t row) {
  kernels::cuda::SampleQuery q;
  q.kind = RowQuery::logprob;
  q.row = row;
  q.target = 0;
  return q;
}

// A draw is made even where the host will answer it: the step behind may need its token, which is the same with a list
// of the likeliest or without.
// row: of the logits on the device; row_number: of the plan, for messages. Throws Error{usage} for options out of
// range.
kernels::cuda::SampleQuery to_sample_query(const StepQuery& query, std::int32_t row, std::int64_t row_number) {
  kernels::cuda::SampleQuery q;
  q.row = row;
  q.row_number = row_number;
  q.n_top = query.n_top <= kernels::cuda::kMaxTop ? query.n_top : 0;
  q.target = query.target;
  if (query.kind != StepQuery::Kind::draw) {
    q.kind = query.kind == StepQuery::Kind::top ? RowQuery::top : RowQuery::logprob;
    return for_device(query) ? q : harmless(row);
  }
  const SamplerOptions& o = *query.sampler;
  validate(o);
  q.temperature = o.temperature;
  q.top_p = o.top_p;
  q.min_p = o.min_p;
  q.top_k = o.top_k;
  q.repetition_penalty = o.repetition_penalty;
  q.presence_penalty = o.presence_penalty;
  q.frequency_penalty = o.frequency_penalty;
  q.seed = query.key.seed;
  q.prompt = query.key.prompt;
  q.sample = query.key.sample;
  q.position = query.key.position;
  q.prompt_tokens = query.history.prompt;
  q.generated_tokens = query.history.generated;
  return q;
}

void to_step_answer(kernels::cuda::SampleResult&& result, StepAnswer& answer) {
  if (result.error) {
    answer.error = std::move(result.error);
    return;
  }
  answer.choice.token = result.token;
  answer.choice.logprob = result.logprob;
  answer.choice.top.clear();
  for (const auto& t : result.top) answer.choice.top.push_back({t.id, t.logprob});
}

class CudaAnswerer final : public DeviceAnswerer {
 public:
  explicit CudaAnswerer(std::int64_t vocab_size) : vocab_size_(vocab_size), sampler_(vocab_size) {}

  kernels::DrawnTokens drawn() const override { return drawn_; }

  void submit(Forward& forward, const Plan& plan, std::span<const StepQuery> queries,
              std::vector<std::int32_t>& left) override {
    Step& step = steps_[n_submitted_ % steps_.size()];
    step.backend = &forward.backend();
    step.n_queries = queries.size();
    step.failed.clear();
    queries_.clear();
    for (std::size_t i = 0; i < queries.size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      const StepQuery& query = queries[i];
      if (!for_device(query)) left.push_back(index);
      try {
        const auto row = static_cast<std::size_t>(query.logit_index);
        queries_.push_back(to_sample_query(query, query.logit_index, plan.logit_rows[row]));
      } catch (const Error& error) {
        step.failed.emplace_back(index, error);
        queries_.push_back(harmless(query.logit_index));
      }
    }
    drawn_ = {};
    if (!queries_.empty()) {
      sampler_.submit(forward.device_logits(), vocab_size_, std::ssize(plan.logit_rows), queries_,
                      kernels::cuda::stream_of(*step.backend));
      drawn_ = sampler_.drawn();
    }
    kernels::cuda::end_step(*step.backend);
    ++n_submitted_;
  }

  void harvest(std::span<StepAnswer> answers, StepTimes& times) override {
    const Step& step = steps_[n_harvested_++ % steps_.size()];
    const auto [busy_ms, idle_ms] = kernels::cuda::wait_for_step(*step.backend);
    times.device_ms = busy_ms;
    times.device_idle_ms = idle_ms;
    if (step.n_queries > 0) {
      results_.resize(step.n_queries);
      sampler_.harvest(results_);
      for (std::size_t i = 0; i < results_.size(); ++i) to_step_answer(std::move(results_[i]), answers[i]);
    }
    for (const auto& [index, error] : step.failed) answers[static_cast<std::size_t>(index)].error = error;
  }

 private:
  struct Step {
    kernels::Backend* backend = nullptr;
    std::size_t n_queries = 0;
    std::vector<std::pair<std::int32_t, Error>> failed;  // before they were sent
  };

  std::int64_t vocab_size_;
  kernels::cuda::DeviceSampler sampler_;
  kernels::DrawnTokens drawn_;
  std::array<Step, 2> steps_;  // in flight
  std::size_t n_submitted_ = 0, n_harvested_ = 0;
  std::vector<kernels::cuda::SampleQuery> queries_;   // scratch
  std::vector<kernels::cuda::SampleResult> results_;  // scratch
};

}  // namespace

std::unique_ptr<DeviceAnswerer> make_device_answerer(const Model& model) {
  if (model.options().device != Device::cuda) return nullptr;
  return std::make_unique<CudaAnswerer>(model.config().vocab_size);
}

}  // namespace banyan::detail
