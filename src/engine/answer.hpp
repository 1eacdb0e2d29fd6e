// From logits to answers, for every runner on the host. Layer 7, internal.
#pragma once

#include <span>
#include <vector>

#include "banyan/runner.hpp"
#include "base/team.hpp"

namespace banyan::detail {

// Answers queries side by side on n_threads. Keeps one sampler per thread, so a step allocates nothing after warm-up
// (but for logit hooks, which get a copy of their row). A query that fails has its error in its answer.
class Answerer {
 public:
  Answerer(std::int64_t vocab_size, int n_threads);

  // The queries that `which` names. logits: [plan.logit_rows.size(), vocab_size]; answers: [queries.size()]. Errors
  // name the row of the plan.
  void answer(const SequenceTree& tree, const Plan& plan, std::span<const float> logits,
              std::span<const StepQuery> queries, std::span<const std::int32_t> which, std::span<StepAnswer> answers);

 private:
  void run_hooks(const SequenceTree& tree, std::span<const float> logits, std::span<const StepQuery> queries,
                 std::span<const std::int32_t> which, std::span<StepAnswer> answers);
  void answer_one(const Plan& plan, std::span<const float> row, const StepQuery& query, Sampler& sampler,
                  StepAnswer& answer) const;

  std::int64_t vocab_size_;
  Team team_;
  std::vector<Sampler> samplers_;           // [team_.n_threads()]
  std::vector<std::vector<float>> hooked_;  // of query i, empty without a hook
};

}  // namespace banyan::detail
