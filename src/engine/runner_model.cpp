// StepRunner over a checkpoint: forward pass, then answers: by the device where the logits are on one, else here.
#include <array>
#include <chrono>
#include <numeric>
#include <string>
#include <utility>
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
        answerer_(model_->config().vocab_size, model_->options().n_threads),
        max_in_flight_(device_answerer_ && options.max_in_flight != 1 ? 2 : 1) {
    forward_.set_skip_attention(options.skip_attention);
    forward_.set_recorded(options.graphs);
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

  int max_in_flight() const override { return max_in_flight_; }

  Ticket submit(const SequenceTree& tree, const Plan& plan, std::span<const StepQuery> queries) override {
    const auto begin = Clock::now();
    Step& step = steps_[(ticket_ + 1) % steps_.size()];
    step.for_host.clear();
    if (device_answerer_) {
      forward_.submit(plan, device_answerer_->drawn());
      device_answerer_->submit(forward_, plan, queries, step.for_host);
    } else {
      forward_.submit(plan);
      step.for_host.resize(queries.size());
      std::iota(step.for_host.begin(), step.for_host.end(), 0);
    }
    step.times = {.forward_ms = ms_since(begin)};
    // What the host answers is answered here, while tree and plan are as they are. It waits for a device then.
    const auto answer_begin = Clock::now();
    step.answers.resize(queries.size());
    for (StepAnswer& answer : step.answers) answer.error.reset();
    if (model_->config().reward_head) {
      answer_rewards(forward_.logits(), queries, step.answers);
    } else if (!step.for_host.empty()) {
      refuse_rewards(queries, step);
      answerer_.answer(tree, plan, forward_.logits(), queries, step.for_host, step.answers);
    }
    step.times.sample_ms = ms_since(answer_begin);
    return ++ticket_;
  }

  StepTimes harvest(Ticket ticket, std::span<StepAnswer> answers) override {
    const auto begin = Clock::now();
    Step& step = steps_[ticket % steps_.size()];
    if (device_answerer_) device_answerer_->harvest(answers, step.times);
    for (const std::int32_t index : step.for_host) {
      const auto i = static_cast<std::size_t>(index);
      std::swap(answers[i], step.answers[i]);
    }
    step.times.sample_ms += ms_since(begin);
    return step.times;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double ms_since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

  struct Step {
    std::vector<std::int32_t> for_host;  // indices of queries that this host answers
    std::vector<StepAnswer> answers;     // theirs
    StepTimes times;
  };

  void answer_rewards(std::span<const float> rewards, std::span<const StepQuery> queries,
                      std::span<StepAnswer> answers) const {
    for (std::size_t i = 0; i < queries.size(); ++i) {
      if (queries[i].kind == StepQuery::Kind::reward) {
        answers[i].reward = rewards[static_cast<std::size_t>(queries[i].logit_index)];
      } else {
        answers[i].error =
            Error(ErrorCode::unsupported, name(), "is a reward model: it has a scalar head and draws no tokens");
      }
    }
  }
  void refuse_rewards(std::span<const StepQuery> queries, Step& step) const {
    for (const std::int32_t index : step.for_host) {
      const auto i = static_cast<std::size_t>(index);
      if (queries[i].kind == StepQuery::Kind::reward) {
        step.answers[i].error = Error(ErrorCode::unsupported, name(), "has no scalar (reward) head");
      }
    }
  }

  std::shared_ptr<const Model> model_;
  std::int64_t n_kv_slots_, max_positions_, kv_bytes_per_token_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Forward forward_;
  std::unique_ptr<detail::DeviceAnswerer> device_answerer_;  // null: the host answers
  detail::Answerer answerer_;
  int max_in_flight_;
  std::array<Step, 2> steps_;  // in flight, by ticket
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
