#include "engine/device_answer.hpp"

#include <utility>

namespace banyan::detail {

using kernels::cuda::RowQuery;

bool for_device(const StepQuery& query) {
  return query.hook == nullptr && query.kind != StepQuery::Kind::reward && query.n_top <= kernels::cuda::kMaxTop;
}

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

}  // namespace banyan::detail
