// Which tensors of a checkpoint are which parts of the model, found by name and checked against the configuration
// before anything is computed from them. Layer 5, internal.
//
// Throws Error{bad_file} for tensors that are absent or of another shape than the configuration says, and
// Error{unsupported} for tensors that no part of the model reads: nothing is left out in silence.
#pragma once

#include <deque>
#include <vector>

#include "model/checkpoint.hpp"

namespace banyan {

// Tensors whose rows, one below the other, are one matrix (or one bias vector); fused families have one.
using Stack = std::vector<const Tensor*>;

// An affine map; `bias` is empty where there is none.
struct LinearTensors {
  Stack weight, bias;
};

struct LayerTensors {
  const Tensor* attn_norm = nullptr;  // [hidden_size]
  const Tensor* ffn_norm = nullptr;   // [hidden_size]
  const Tensor* q_norm = nullptr;     // [head_dim]; null where the family has none
  const Tensor* k_norm = nullptr;     // [head_dim]; likewise
  LinearTensors qkv;                  // [(n_heads_q + 2 n_heads_kv) head_dim, hidden_size]
  LinearTensors attn_out;             // [hidden_size, n_heads_q head_dim]
  LinearTensors gate_up;              // [2 intermediate_size, hidden_size]
  LinearTensors down;                 // [hidden_size, intermediate_size]
};

struct ModelTensors {
  const Tensor* embed = nullptr;        // [vocab_size, hidden_size]
  const Tensor* final_norm = nullptr;   // [hidden_size]
  const Tensor* head = nullptr;         // [vocab_size, hidden_size]; null: tied. Of a reward model [1, hidden_size]
  const Tensor* unused_head = nullptr;  // a head that the file holds although the configuration ties it
  std::vector<LayerTensors> layers;
  std::deque<Tensor> made;  // of random weights: shapes without data
};

// Of a checkpoint without files, for random weights, every tensor is found and holds a shape alone.
ModelTensors find_model_tensors(const Checkpoint& checkpoint);

}  // namespace banyan
