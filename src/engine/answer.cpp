#include "engine/answer.hpp"

#include <exception>

namespace banyan::detail {

Answerer::Answerer(std::int64_t vocab_size, int n_threads)
    : vocab_size_(vocab_size), team_(n_threads), samplers_(static_cast<std::size_t>(team_.n_threads())) {
  // Which thread draws which row is chance: one that comes late must not allocate in the middle of a run.
  for (Sampler& sampler : samplers_) sampler.reserve(vocab_size);
}

void Answerer::run_hooks(const SequenceTree& tree, std::span<const float> logits, std::span<const StepQuery> queries,
                         std::span<const std::int32_t> which, std::span<StepAnswer> answers) {
  if (hooked_.size() < queries.size()) hooked_.resize(queries.size());
  std::vector<TokenId> path;
  for (const std::int32_t index : which) {
    const auto i = static_cast<std::size_t>(index);
    hooked_[i].clear();
    const StepQuery& q = queries[i];
    if (q.hook == nullptr) continue;
    const auto row =
        logits.subspan(static_cast<std::size_t>(q.logit_index * vocab_size_), static_cast<std::size_t>(vocab_size_));
    hooked_[i].assign(row.begin(), row.end());
    tree.path_tokens(q.node, path);
    path.resize(path.size() - static_cast<std::size_t>(tree.n_tokens(q.node) - q.n_node_tokens));
    try {
      (*q.hook)(path, hooked_[i]);
    } catch (const std::exception& e) {
      answers[i].error = Error(ErrorCode::bad_input, "logit hook", e.what());
    }
  }
}

void Answerer::answer_one(const Plan& plan, std::span<const float> row, const StepQuery& query, Sampler& sampler,
                          StepAnswer& answer) const {
  const std::int64_t row_number = plan.logit_rows[static_cast<std::size_t>(query.logit_index)];
  try {
    switch (query.kind) {
      case StepQuery::Kind::draw:
        sampler.draw(row, *query.sampler, query.key, query.history, query.n_top, row_number, answer.choice);
        break;
      case StepQuery::Kind::logprob: answer.choice.logprob = sampler.logprob(row, query.target, row_number); break;
      case StepQuery::Kind::top: sampler.top(row, query.n_top, row_number, answer.choice.top); break;
      case StepQuery::Kind::reward: break;  // the runner's own
    }
  } catch (const Error& e) {
    answer.error = e;
  } catch (const std::exception& e) {
    answer.error = Error(ErrorCode::out_of_memory, "sampler", e.what());
  }
}

void Answerer::answer(const SequenceTree& tree, const Plan& plan, std::span<const float> logits,
                      std::span<const StepQuery> queries, std::span<const std::int32_t> which,
                      std::span<StepAnswer> answers) {
  bool any_hook = false;
  for (const std::int32_t i : which) any_hook = any_hook || queries[static_cast<std::size_t>(i)].hook != nullptr;
  if (any_hook) run_hooks(tree, logits, queries, which, answers);
  const auto vocab = static_cast<std::size_t>(vocab_size_);
  team_.run(std::ssize(which), [&](std::int64_t i, int thread) {
    const auto at = static_cast<std::size_t>(which[static_cast<std::size_t>(i)]);
    if (answers[at].error) return;
    const StepQuery& q = queries[at];
    const auto row = q.hook != nullptr ? std::span<const float>(hooked_[at])
                                       : logits.subspan(static_cast<std::size_t>(q.logit_index) * vocab, vocab);
    answer_one(plan, row, q, samplers_[static_cast<std::size_t>(thread)], answers[at]);
  });
}

}  // namespace banyan::detail
