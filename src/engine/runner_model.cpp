// StepRunner over a checkpoint: forward pass, then answers: by the device where the logits are on one, else here.
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include "banyan/runner.hpp"
#include "engine/answer.hpp"
#include "engine/device_answer.hpp"
#include "model/forward.hpp"

namespace banyan {
namespace {

class ModelRunner final : public StepRunner {
 public:
  ModelRunner(std::shared_ptr<const Model> model, const RunnerOptions& options)
      : model_(std::move(model)),
        n_kv_slots_(options.n_kv_slots),
        max_positions_(options.max_positions > 0 ? options.max_positions : model_->config().max_positions),
        kv_bytes_per_token_(banyan::kv_bytes_per_token(model_->config(), options.kv_type)),
        tokenizer_(model_->tokenizer()),
        forward_(model_, options.kv_type, options.n_kv_slots),
        device_answerer_(model_->config().reward_head ? nullptr : detail::make_device_answerer(*model_)),
        answerer_(model_->config().vocab_size, model_->options().n_threads) {
    forward_.set_skip_attention(options.skip_attention);
    if (options.random_kv) forward_.fill_kv_randomly();
  }

  std::int64_t vocab_size() const override { return model_->config().vocab_size; }
  std::int64_t max_positions() const override { return max_positions_; }
  std::int64_t n_kv_slots() const override { return n_kv_slots_; }
  std::int64_t kv_bytes_per_token() const override { return kv_bytes_per_token_; }
  bool deterministic() const override { return model_->options().deterministic; }
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  const std::vector<TokenId>& eos_ids() const override { return model_->eos_ids(); }
  std::string name() const override { return model_->config().name; }

  Ticket submit(const SequenceTree& tree, const Plan& plan, std::span<const StepQuery> queries) override {
    const auto begin = std::chrono::steady_clock::now();
    tree_ = &tree;
    plan_ = &plan;
    queries_ = queries;
    forward_.submit(plan);
    for_host_.clear();
    if (device_answerer_) {
      device_answerer_->submit(forward_, plan, queries, for_host_);
    } else {
      for_host_.resize(queries.size());
      std::iota(for_host_.begin(), for_host_.end(), 0);
    }
    times_.forward_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    return ++ticket_;
  }

  StepTimes harvest(Ticket /*ticket*/, std::span<StepAnswer> answers) override {
    const auto begin = std::chrono::steady_clock::now();
    if (device_answerer_) device_answerer_->harvest(answers);
    if (model_->config().reward_head) {
      answer_rewards(forward_.logits(), answers);
    } else if (!for_host_.empty()) {
      refuse_rewards(answers);
      answerer_.answer(*tree_, *plan_, forward_.logits(), queries_, for_host_, answers);
    }
    times_.sample_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    return times_;
  }

 private:
  void answer_rewards(std::span<const float> rewards, std::span<StepAnswer> answers) const {
    for (std::size_t i = 0; i < queries_.size(); ++i) {
      if (queries_[i].kind == StepQuery::Kind::reward) {
        answers[i].reward = rewards[static_cast<std::size_t>(queries_[i].logit_index)];
      } else {
        answers[i].error =
            Error(ErrorCode::unsupported, name(), "is a reward model: it has a scalar head and draws no tokens");
      }
    }
  }
  void refuse_rewards(std::span<StepAnswer> answers) const {
    for (const std::int32_t index : for_host_) {
      const auto i = static_cast<std::size_t>(index);
      if (queries_[i].kind == StepQuery::Kind::reward) {
        answers[i].error = Error(ErrorCode::unsupported, name(), "has no scalar (reward) head");
      }
    }
  }

  std::shared_ptr<const Model> model_;
  std::int64_t n_kv_slots_, max_positions_, kv_bytes_per_token_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Forward forward_;
  std::unique_ptr<detail::DeviceAnswerer> device_answerer_;  // null: the host answers
  detail::Answerer answerer_;
  // of the step in flight
  const SequenceTree* tree_ = nullptr;
  const Plan* plan_ = nullptr;
  std::span<const StepQuery> queries_;
  std::vector<std::int32_t> for_host_;  // indices of queries that this host answers
  StepTimes times_;
  Ticket ticket_ = 0;
};

}  // namespace

std::int64_t kv_bytes_per_token(const ModelConfig& config, DType kv_type) {
  return KvStore::bytes_per_token(config, kv_type);
}

std::unique_ptr<StepRunner> make_runner(std::shared_ptr<const Model> model, const RunnerOptions& options) {
  if (options.n_kv_slots < 1) {
    throw Error(ErrorCode::usage, "n_kv_slots", std::to_string(options.n_kv_slots) + " must be at least 1");
  }
  return std::make_unique<ModelRunner>(std::move(model), options);
}

}  // namespace banyan
