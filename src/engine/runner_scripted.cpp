// StepRunner over a function, for tests of searches: no weights, no KV bytes, the same plans and queries.
#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "banyan/runner.hpp"
#include "engine/answer.hpp"

namespace banyan {
namespace {

class ScriptedRunner final : public StepRunner {
 public:
  explicit ScriptedRunner(ScriptedModel model) : model_(std::move(model)), answerer_(model_.vocab_size, 1) {}

  std::int64_t vocab_size() const override { return model_.vocab_size; }
  std::int64_t max_positions() const override { return model_.max_positions; }
  std::int64_t n_kv_slots() const override { return model_.n_kv_slots; }
  std::int64_t kv_bytes_per_token() const override { return 0; }
  bool deterministic() const override { return true; }
  const Tokenizer* tokenizer() const override { return model_.tokenizer.get(); }
  const std::vector<TokenId>& eos_ids() const override { return model_.eos_ids; }
  std::string name() const override { return "scripted"; }

  int max_in_flight() const override { return model_.max_in_flight; }

  // All is computed here; a step in flight is one whose answers were not given out yet.
  Ticket submit(const SequenceTree& tree, const Plan& plan, std::span<const StepQuery> queries) override {
    auto& answers = answers_[++ticket_ % answers_.size()];
    answers.resize(queries.size());
    for (StepAnswer& answer : answers) answer.error.reset();
    logits_.assign(plan.logit_rows.size() * static_cast<std::size_t>(model_.vocab_size), 0.0F);
    for (std::size_t i = 0; i < plan.logit_rows.size(); ++i) {
      const auto row = static_cast<std::size_t>(plan.logit_rows[i]);
      path_of(tree, plan.nodes[row], plan.positions[row]);
      model_.logits(path_, std::span(logits_).subspan(i * static_cast<std::size_t>(model_.vocab_size),
                                                      static_cast<std::size_t>(model_.vocab_size)));
    }
    for (std::size_t i = 0; i < queries.size(); ++i) {
      if (queries[i].kind != StepQuery::Kind::reward) continue;
      if (!model_.reward) {
        answers[i].error = Error(ErrorCode::unsupported, name(), "has no reward function");
        continue;
      }
      const auto row = static_cast<std::size_t>(plan.logit_rows[static_cast<std::size_t>(queries[i].logit_index)]);
      path_of(tree, plan.nodes[row], plan.positions[row]);
      answers[i].reward = model_.reward(path_);
    }
    which_.resize(queries.size());
    std::iota(which_.begin(), which_.end(), 0);
    answerer_.answer(tree, plan, logits_, queries, which_, answers);
    drawn_.clear();
    for (const StepAnswer& answer : answers) drawn_.push_back(answer.error ? 0 : answer.choice.token);
    return ticket_;
  }

  StepTimes harvest(Ticket ticket, std::span<StepAnswer> answers) override {
    std::ranges::swap_ranges(answers_[ticket % answers_.size()], answers);
    return {};
  }

 private:
  void path_of(const SequenceTree& tree, NodeId node, std::int32_t position) {
    tree.path_tokens(node, path_);
    path_.resize(static_cast<std::size_t>(position) + 1);
    for (TokenId& token : path_) {
      if (is_drawn_token(token)) token = drawn_.at(static_cast<std::size_t>(query_of(token)));
    }
  }

  ScriptedModel model_;
  detail::Answerer answerer_;
  std::array<std::vector<StepAnswer>, 2> answers_;  // of the steps in flight, by ticket
  std::vector<TokenId> drawn_;                      // by the last step
  std::vector<std::int32_t> which_;                 // all queries
  std::vector<float> logits_;
  std::vector<TokenId> path_;
  Ticket ticket_ = 0;
};

}  // namespace

std::unique_ptr<StepRunner> make_scripted_runner(ScriptedModel model) {
  if (model.vocab_size < 1 || !model.logits || model.n_kv_slots < 1) {
    throw Error(ErrorCode::usage, "scripted model", "needs a vocabulary, a logits function and KV slots");
  }
  if (model.max_in_flight < 1 || model.max_in_flight > 2) {
    throw Error(ErrorCode::usage, "scripted model",
                std::to_string(model.max_in_flight) + " steps in flight; allowed: 1 and 2");
  }
  return std::make_unique<ScriptedRunner>(std::move(model));
}

}  // namespace banyan
