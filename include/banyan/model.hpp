// A checkpoint of a Llama-like model, loaded. Layer 5. Immutable after load, so it may be shared between sessions and
// threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "banyan/tokenizer.hpp"
#include "banyan/types.hpp"

namespace banyan {

struct ModelConfig {
  std::string architecture;  // the family: "llama", "mistral", "qwen2", "qwen3", "smollm3", "phi3"
  std::string name;          // from the file, may be empty
  std::int64_t n_layers = 0, n_heads_q = 0, n_heads_kv = 0, head_dim = 0;
  std::int64_t hidden_size = 0, intermediate_size = 0, vocab_size = 0;
  std::int64_t max_positions = 0;  // the context length the file promises, or what banyan can do of it
  float rms_eps = 1e-5F;
  bool tied_embeddings = false;
  bool reward_head = false;  // a scalar for each position instead of logits: the verb `reward` alone works
};

// What weights are multiplied in. `automatic`: bf16 where the CPU multiplies it natively, else f32.
enum class Compute : std::uint8_t { automatic, f32, bf16 };

// Where a model computes. `automatic`: a CUDA device if this build has CUDA, one answers and `compute` allows it, else
// the CPU. `check`: on a CUDA device, and every operation on the CPU too; the first result that differs by more than
// rounding is an Error{device} (kernels/check.hpp). Slow.
enum class Device : std::uint8_t { automatic, cpu, cuda, check };

struct LoadOptions {
  Compute compute = Compute::automatic;
  Device device = Device::cpu;
  int device_index = 0;        // which CUDA device
  int n_threads = 0;           // 0: all cores
  bool deterministic = false;  // bits of a row's logits depend on its own path alone (docs/design.md)
  bool reference = false;      // plain kernels (tests)
  // Memory for keys and values that will be wanted beside the weights: what cannot fit on a device together is refused
  // before anything is loaded.
  std::int64_t kv_bytes = 0;
  // Where a device keeps between runs what it has measured: which product algorithms are fastest. "": nowhere.
  std::string cache_folder = {};
  // Hears of what is no error: a cache that cannot be used. May be called by several threads; may be empty.
  std::function<void(std::string_view)> notice = {};
};

class Model {
 public:
  virtual ~Model() = default;
  // `path`: a Hugging Face directory, or one .gguf. Throws Error{bad_file | unsupported} naming file, tensor or key,
  // Error{out_of_memory} with all sizes.
  static std::shared_ptr<const Model> load(const std::string& path, const LoadOptions& options = {});

  // Random weights of the shape that a config.json gives, the same for the same seed: for benches. No tokenizer.
  static std::shared_ptr<const Model> random(const std::string& config_path, std::uint64_t seed,
                                             const LoadOptions& options = {});

  virtual const ModelConfig& config() const = 0;
  virtual const LoadOptions& options() const = 0;
  virtual Compute compute() const = 0;                             // f32 or bf16: what `automatic` became
  virtual std::shared_ptr<const Tokenizer> tokenizer() const = 0;  // null when the file holds none
  virtual const std::vector<TokenId>& eos_ids() const = 0;         // union over all the files
  virtual std::int64_t weight_bytes() const = 0;                   // in the form computed with
  virtual std::string backend_name() const = 0;                    // what computes: "cpu avx2, 2 threads"
  virtual std::int64_t free_memory_bytes() const = 0;              // where it computes, now
  virtual double flops_per_row() const = 0;                        // matrix products of one row, head not included
  virtual std::string describe() const = 0;                        // several lines, for `inspect`
};

// Tokenizer alone, from a directory, a tokenizer file or a .gguf (vocabulary-only files too).
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path);  // throws Error{bad_file | unsupported}

}  // namespace banyan
