// The forward pass over one plan, and the KV bytes it reads and writes. Layer 5, internal.
#pragma once

#include <memory>
#include <span>

#include "banyan/model.hpp"
#include "banyan/plan.hpp"
#include "kernels/ops.hpp"

namespace banyan {

// The bytes behind a KvPool: all layers, one KV type. Slot numbers are the pool's.
class KvStore {
 public:
  // Throws Error{out_of_memory} with the sizes, Error{unsupported} for a type that no kernel has.
  KvStore(kernels::Backend& backend, const ModelConfig& config, DType type, std::int64_t n_slots);
  ~KvStore();
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;

  kernels::KvView layer(std::int64_t i) const;
  void fill_randomly();  // benches only
  DType type() const { return type_; }
  static std::int64_t bytes_per_token(const ModelConfig& config, DType type);  // throws Error{unsupported}, too

 private:
  static void check_type(DType type);

  kernels::Backend& backend_;
  DType type_;
  std::int64_t n_slots_, n_layers_, n_heads_kv_, head_dim_, layer_bytes_;
  void* base_ = nullptr;
};

// Holds the activations of the largest step so far; a step allocates nothing once it has seen its size.
class Forward {
 public:
  // Throws Error{unsupported} if the model is not one that this build can run.
  Forward(std::shared_ptr<const Model> model, DType kv_type, std::int64_t n_slots);
  ~Forward();

  // Starts computing all rows of the plan. On the CPU it is through when submit() returns; a device works on, and does
  // not look at the plan any more. `drawn`: where the device finds the plan's drawn tokens.
  void submit(const Plan& plan, const kernels::DrawnTokens& drawn = {});
  // Where the step's logits will be in the backend's memory, [plan.logit_rows.size(), vocab_size]: for what is put on
  // the backend's stream next.
  const float* device_logits() const;
  kernels::Backend& backend();
  // Waits for the step. Its logits [plan.logit_rows.size(), vocab_size], in host memory, valid until the next submit().
  // Of a model with a scalar head: one number for each of the rows.
  std::span<const float> logits();
  std::span<const float> run(const Plan& plan) {
    submit(plan);
    return logits();
  }
  // Final hidden state (after the last norm) of the logit rows of the last run, [n_logit_rows, hidden_size]; of a host
  // backend.
  std::span<const float> hidden() const;

  const KvStore& kv() const;
  // Whether steps that are alike are replayed (kernels::Backend::run).
  void set_recorded(bool recorded);
  // Benches only: skips attention (the "no_attention" mode); all KV slots hold random numbers.
  void set_skip_attention(bool skip);
  void fill_kv_randomly();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace banyan
