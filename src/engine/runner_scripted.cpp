// StepRunner over a function, for tests of searches: no weights, no KV bytes, the same plans and queries.
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

  Ticket submit(const SequenceTree& tree, const Plan& plan, std::span<const StepQuery> queries) override {
    tree_ = &tree;
    plan_ = &plan;
    queries_ = queries;
    logits_.assign(plan.logit_rows.size() * static_cast<std::size_t>(model_.vocab_size), 0.0F);
    for (std::size_t i = 0; i < plan.logit_rows.size(); ++i) {
      const auto row = static_cast<std::size_t>(plan.logit_rows[i]);
      path_of(plan.nodes[row], plan.positions[row]);
      model_.logits(path_, std::span(logits_).subspan(i * static_cast<std::size_t>(model_.vocab_size),
                                                      static_cast<std::size_t>(model_.vocab_size)));
    }
    return ++ticket_;
  }

  StepTimes harvest(Ticket /*ticket*/, std::span<StepAnswer> answers) override {
    for (std::size_t i = 0; i < queries_.size(); ++i) {
      if (queries_[i].kind != StepQuery::Kind::reward) continue;
      if (!model_.reward) {
        answers[i].error = Error(ErrorCode::unsupported, name(), "has no reward function");
        continue;
      }
      const auto row = static_cast<std::size_t>(plan_->logit_rows[static_cast<std::size_t>(queries_[i].logit_index)]);
      path_of(plan_->nodes[row], plan_->positions[row]);
      answers[i].reward = model_.reward(path_);
    }
    which_.resize(queries_.size());
    std::iota(which_.begin(), which_.end(), 0);
    answerer_.answer(*tree_, *plan_, logits_, queries_, which_, answers);
    return {};
  }

 private:
  void path_of(NodeId node, std::int32_t position) {
    tree_->path_tokens(node, path_);
    path_.resize(static_cast<std::size_t>(position) + 1);
  }

  ScriptedModel model_;
  detail::Answerer answerer_;
  const SequenceTree* tree_ = nullptr;
  const Plan* plan_ = nullptr;
  std::span<const StepQuery> queries_;
  std::vector<std::int32_t> which_;  // all of them
  std::vector<float> logits_;
  std::vector<TokenId> path_;
  Ticket ticket_ = 0;
};

}  // namespace

std::unique_ptr<StepRunner> make_scripted_runner(ScriptedModel model) {
  if (model.vocab_size < 1 || !model.logits || model.n_kv_slots < 1) {
    throw Error(ErrorCode::usage, "scripted model", "needs a vocabulary, a logits function and KV slots");
  }
  return std::make_unique<ScriptedRunner>(std::move(model));
}

}  // namespace banyan
