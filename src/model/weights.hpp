// The one implementation of Model: weights as a backend's matrices. Layer 5, internal. Immutable after load.
//
// Weights go from the mapped file straight into the packed form, row block by row block; no second whole copy exists.
// q, k and v are one matrix, and so are gate and up: fewer, larger products. Rows of q and k are put into one order on
// the way, the rope kernel's: pair i of a head in rows i and i + head_dim / 2, whatever the file form has, and whether
// or not all of a head turns. Scores do not depend on the order, as q and k have the same.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "banyan/model.hpp"
#include "kernels/ops.hpp"
#include "model/checkpoint.hpp"

namespace banyan {

// How backends are made; tests put their own in.
using BackendFactory = std::function<std::unique_ptr<kernels::Backend>(const kernels::BackendOptions&)>;

// Pointers to biases and q/k norms are null where the model has none.
struct LayerWeights {
  const float* attn_norm = nullptr;      // [hidden_size]
  const float* ffn_norm = nullptr;       // [hidden_size]
  const float* q_norm = nullptr;         // [head_dim], of each query head
  const float* k_norm = nullptr;         // [head_dim], of each KV head
  const float* qkv_bias = nullptr;       // [(n_heads_q + 2 n_heads_kv) head_dim]
  const float* attn_out_bias = nullptr;  // [hidden_size]
  const float* gate_up_bias = nullptr;   // [2 intermediate_size]
  const float* down_bias = nullptr;      // [hidden_size]
  const float* inv_freq = nullptr;       // [head_dim / 2]; all 0 in a layer without rope
  float rope_magnitude = 1.0F;
  std::unique_ptr<kernels::Matrix> qkv;       // [(n_heads_q + 2 n_heads_kv) head_dim, hidden_size]
  std::unique_ptr<kernels::Matrix> attn_out;  // [hidden_size, n_heads_q head_dim]
  std::unique_ptr<kernels::Matrix> gate_up;   // [2 intermediate_size, hidden_size]
  std::unique_ptr<kernels::Matrix> down;      // [hidden_size, intermediate_size]
};

class LoadedModel final : public Model {
 public:
  // Throws as find_model_tensors() does.
  LoadedModel(const Checkpoint& checkpoint, const LoadOptions& options, BackendFactory factory);

  const ModelConfig& config() const override { return config_; }
  const LoadOptions& options() const override { return options_; }
  Compute compute() const override { return compute_; }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return tokenizer_; }
  const std::vector<TokenId>& eos_ids() const override { return eos_ids_; }
  std::int64_t weight_bytes() const override { return weight_bytes_; }
  std::string backend_name() const override { return backend_->describe(); }
  std::int64_t free_memory_bytes() const override { return backend_->free_bytes(); }
  double flops_per_row() const override;
  std::string describe() const override { return description_; }

  // --- for the forward pass ------------------------------------------------------------------------------------
  // A backend of the kind that packed the weights, for one Forward's own use.
  std::unique_ptr<kernels::Backend> make_backend() const;
  const kernels::Matrix& embed() const { return *embed_; }  // [vocab_size, hidden_size]
  // [vocab_size, hidden_size], the embedding table where they are tied; of a reward model [1, hidden_size]
  const kernels::Matrix& head() const { return head_ ? *head_ : *embed_; }
  const float* final_norm() const { return final_norm_; }  // [hidden_size]
  const std::vector<LayerWeights>& layers() const { return layers_; }

 private:
  class Loader;

  LoadOptions options_;
  BackendFactory factory_;
  Compute compute_;
  ModelConfig config_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<TokenId> eos_ids_;
  std::int64_t weight_bytes_ = 0;
  std::string description_;

  std::unique_ptr<kernels::Backend> backend_;  // owns what the pointers below point to; destroyed last
  struct Release {
    kernels::Backend* backend;
    void operator()(void* p) const noexcept { backend->release(p); }
  };
  std::vector<std::unique_ptr<void, Release>> vectors_;  // norm weights, biases, frequencies
  std::unique_ptr<kernels::Matrix> embed_, head_;
  const float* final_norm_ = nullptr;
  std::vector<LayerWeights> layers_;
};

}  // namespace banyan
