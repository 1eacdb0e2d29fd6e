// The one implementation of Model: weights as a backend's matrices. Layer 5, internal. Immutable after load.
//
// Weights go from the mapped file straight into the packed form, row block by row block; no second whole copy exists.
// q, k and v are one matrix, and so are gate and up: fewer, larger products. GGUF's interleaved q and k rows are put
// back into half-split order on the way, so rope is the same for both file forms.
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

struct LayerWeights {
  const float* attn_norm = nullptr;           // [hidden_size]
  const float* ffn_norm = nullptr;            // [hidden_size]
  std::unique_ptr<kernels::Matrix> qkv;       // [(n_heads_q + 2 n_heads_kv) head_dim, hidden_size]
  std::unique_ptr<kernels::Matrix> attn_out;  // [hidden_size, n_heads_q head_dim]
  std::unique_ptr<kernels::Matrix> gate_up;   // [2 intermediate_size, hidden_size]
  std::unique_ptr<kernels::Matrix> down;      // [hidden_size, intermediate_size]
};

class LoadedModel final : public Model {
 public:
  // Throws Error{bad_file} for tensors that are absent or of another shape than the configuration says, and
  // Error{unsupported} for tensors that no part of a Llama reads.
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
  const kernels::Matrix& embed() const { return *embed_; }                  // [vocab_size, hidden_size]
  const kernels::Matrix& head() const { return head_ ? *head_ : *embed_; }  // the same matrix where heads are tied
  const float* final_norm() const { return final_norm_; }                   // [hidden_size]
  const float* inv_freq() const { return inv_freq_; }                       // [head_dim / 2]
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
  std::vector<std::unique_ptr<void, Release>> vectors_;  // the norm weights and inv_freq
  std::unique_ptr<kernels::Matrix> embed_, head_;
  const float* final_norm_ = nullptr;
  const float* inv_freq_ = nullptr;
  std::vector<LayerWeights> layers_;
};

}  // namespace banyan
