// What a session runs its steps on: a model with its KV, as `submit(plan, queries) -> ticket`, `harvest(ticket)`.
// Layer 7. A session knows a model through this alone, so searches are tested with a scripted one, without weights.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "banyan/model.hpp"
#include "banyan/plan.hpp"
#include "banyan/sampler.hpp"
#include "banyan/tokenizer.hpp"
#include "banyan/tree.hpp"

namespace banyan {

// Changes one row of logits [vocab_size] before anything is read from it: masks, biases. `path` is root -> row.
using LogitHook = std::function<void(std::span<const TokenId> path, std::span<float> logits)>;

// One thing wanted from one row of logits. Several queries may read the same row.
struct StepQuery {
  enum class Kind : std::uint8_t { draw, logprob, top, reward } kind = Kind::draw;
  std::int32_t logit_index = 0;             // into plan.logit_rows
  std::int64_t n_top = 0;                   // draw: how many likeliest beside the choice; top: how many
  TokenId target = kNoToken;                // logprob: of this token
  const SamplerOptions* sampler = nullptr;  // draw
  StreamKey key;                            // draw
  TokenHistory history;                     // draw, with penalties
  const LogitHook* hook = nullptr;          // null: none
  NodeId node;                              // where the path ends, for the hook
  std::int64_t n_node_tokens = 0;           // tokens of `node` that are on the path
};

struct StepAnswer {
  Choice choice;  // logprob: only choice.logprob; top: only choice.top
  double reward = 0;
  std::optional<Error> error;  // this query alone failed
};

// Wall time of a step's parts on the host, ms; waiting for a device is in sample_ms.
struct StepTimes {
  double forward_ms = 0, sample_ms = 0;
  double device_ms = 0;       // on a device: from the step's first operation to its last; 0 on the host
  double device_idle_ms = 0;  // and before that, since the last operation of the step before
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;

  virtual std::int64_t vocab_size() const = 0;
  virtual std::int64_t max_positions() const = 0;
  virtual std::int64_t n_kv_slots() const = 0;          // 0: keeps no KV
  virtual std::int64_t kv_bytes_per_token() const = 0;  // 0: keeps no KV
  virtual bool deterministic() const = 0;
  virtual const Tokenizer* tokenizer() const = 0;  // null: tokens only
  virtual const std::vector<TokenId>& eos_ids() const = 0;
  virtual std::string name() const = 0;

  // Steps that may have been submitted and not harvested: 1, or 2 where a device computes while the host goes on.
  virtual int max_in_flight() const { return 1; }

  // Starts a step; does not look at its arguments any more once it has returned. Where the step before is still in
  // flight, a token of the plan may be drawn_token(i): what query i of that step, without a hook, draws.
  using Ticket = std::uint64_t;
  virtual Ticket submit(const SequenceTree& tree, const Plan& plan, std::span<const StepQuery> queries) = 0;
  // Waits for the step and writes answers [queries.size()], in order. Tickets are harvested in the order given.
  virtual StepTimes harvest(Ticket ticket, std::span<StepAnswer> answers) = 0;
};

struct RunnerOptions {
  DType kv_type = DType::f32;   // f32, bf16, f16, f8_e4m3
  std::int64_t n_kv_slots = 0;  // tokens that the pool holds; > 0
  // Benches only.
  bool skip_attention = false;     // wrong results, for the "no attention" ceiling
  bool random_kv = false;          // the pool begins with random keys and values (see Session::adopt_kv)
  int max_in_flight = 0;           // fewer steps in flight than the device takes, where > 0
  bool graphs = true;              // false: a device launches each operation of each step by itself
  std::int64_t max_positions = 0;  // instead of the model's, where > 0
};
// A checkpoint. Throws Error{out_of_memory} with sizes, Error{usage | unsupported} for options out of range.
std::unique_ptr<StepRunner> make_runner(std::shared_ptr<const Model> model, const RunnerOptions& options);
// KV bytes of one token: K and V of all layers, with their scales in f8_e4m3. Throws Error{unsupported}.
std::int64_t kv_bytes_per_token(const ModelConfig& config, DType kv_type);

// A model that is a function, for tests of searches: path tokens -> logits [vocab_size].
struct ScriptedModel {
  std::int64_t vocab_size = 0;
  std::int64_t max_positions = 1 << 20;
  std::function<void(std::span<const TokenId> path, std::span<float> logits)> logits;
  std::function<double(std::span<const TokenId> path)> reward;  // may be empty
  std::shared_ptr<const Tokenizer> tokenizer;                   // may be null
  std::vector<TokenId> eos_ids;
  std::int64_t n_kv_slots = 1 << 20;  // a pool is kept, so that budgets and eviction can be tested
  int max_in_flight = 1;              // 2: as on a device
};
std::unique_ptr<StepRunner> make_scripted_runner(ScriptedModel model);

}  // namespace banyan
