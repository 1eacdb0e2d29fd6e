#include "engine/device_answer.hpp"

#include <utility>

#include "kernels/cuda/backend.hpp"
#include "kernels/cuda/device_sampler.hpp"

namespace banyan::detail {

namespace {

using kernels::cuda::RowQuery;

bool for_device(const StepQuery& query) {
  return query.hook == nullptr && query.kind != StepQuery::Kind::reward && query.n_top <= kernels::cuda::kMaxTop;
}

// row: of the logits on the device; row_number: of the plan, for messages. Throws Error{usage} for options out of
// range.
kernels::cuda::SampleQuery to_sample_query(const StepQuery& query, std::int32_t row, std::int64_t row_number) {
  kernels::cuda::SampleQuery q;
  q.row = row;
  q.row_number = row_number;
  q.n_top = query.n_top;
  q.target = query.target;
  if (query.kind != StepQuery::Kind::draw) {
    q.kind = query.kind == StepQuery::Kind::top ? RowQuery::top : RowQuery::logprob;
    return q;
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

  void submit(const Forward& forward, const Plan& plan, std::span<const StepQuery> queries,
              std::vector<std::int32_t>& left) override {
    queries_.clear();
    indices_.clear();
    failed_.clear();
    for (std::size_t i = 0; i < queries.size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      const StepQuery& query = queries[i];
      if (!for_device(query)) {
        left.push_back(index);
        continue;
      }
      try {
        const auto row = static_cast<std::size_t>(query.logit_index);
        queries_.push_back(to_sample_query(query, query.logit_index, plan.logit_rows[row]));
        indices_.push_back(index);
      } catch (const Error& error) {
        failed_.emplace_back(index, error);
      }
    }
    if (queries_.empty()) return;
    sampler_.submit(forward.device_logits(), vocab_size_, std::ssize(plan.logit_rows), queries_,
                    kernels::cuda::stream_of(forward.backend()));
  }

  void harvest(std::span<StepAnswer> answers) override {
    for (const auto& [index, error] : failed_) answers[static_cast<std::size_t>(index)].error = error;
    if (queries_.empty()) return;
    results_.resize(queries_.size());
    sampler_.harvest(results_);
    for (std::size_t i = 0; i < results_.size(); ++i) {
      to_step_answer(std::move(results_[i]), answers[static_cast<std::size_t>(indices_[i])]);
    }
  }

 private:
  std::int64_t vocab_size_;
  kernels::cuda::DeviceSampler sampler_;
  // of the step in flight
  std::vector<kernels::cuda::SampleQuery> queries_;
  std::vector<std::int32_t> indices_;  // of queries_ among the step's
  std::vector<std::pair<std::int32_t, Error>> failed_;
  std::vector<kernels::cuda::SampleResult> results_;
};

}  // namespace

std::unique_ptr<DeviceAnswerer> make_device_answerer(const Model& model) {
  if (model.options().device != Device::cuda) return nullptr;
  return std::make_unique<CudaAnswerer>(model.config().vocab_size);
}

}  // namespace banyan::detail
