// The session: runs searches as coroutines and batches the wishes of all of them into each step. Layer 7.
//
//     tokens -> tree -> plan -> kernels -> logits -> sampler -> tree
//
// A session has lanes (a lane is a model with its forest and KV pool) and jobs (started tasks). Each step() is one turn
// of the loop: gather, plan, forward, sample, grow, resume. It is single-threaded and deterministic: the same calls
// give the same steps. Errors of one search reach that search alone; the session goes on.
#pragma once

#include <coroutine>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "banyan/runner.hpp"
#include "banyan/sampler.hpp"
#include "banyan/task.hpp"
#include "banyan/tree.hpp"

namespace banyan {

namespace detail {
struct Lane;
struct SessionState;
struct JobState;
}  // namespace detail

struct LaneId {
  std::int32_t value = 0;
  friend bool operator==(const LaneId&, const LaneId&) = default;
};

// A place in a lane's forest, kept alive by this handle (and its copies). When the last handle of a node and of
// everything below it goes, the node goes and its KV is free. Only the address: cheap to copy and to compare.
class Node {
 public:
  Node() = default;
  Node(std::shared_ptr<detail::Lane> lane, NodeId id);  // pins
  Node(const Node& other);
  Node(Node&& other) noexcept = default;
  Node& operator=(Node other) noexcept;
  ~Node();

  explicit operator bool() const { return lane_ != nullptr; }
  NodeId id() const { return id_; }
  LaneId lane() const;
  std::span<const TokenId> tokens() const;  // of this node's run alone
  std::vector<TokenId> path() const;        // root -> end of this node
  std::int64_t position() const;            // length of that path, tokens
  std::string text() const;                 // of this node's run alone; raw bytes of its tokens
  friend bool operator==(const Node& a, const Node& b) { return a.lane_ == b.lane_ && a.id_ == b.id_; }

 private:
  friend class Session;
  std::shared_ptr<detail::Lane> lane_;
  NodeId id_;
};

enum class FinishReason : std::uint8_t { stop, eos, length, context, cancelled, error };
std::string_view to_string(FinishReason reason);

struct SampleOptions {
  std::int64_t n = 1;                  // samples of each node
  std::int64_t max_tokens = -1;        // of each sample; -1: up to the model's context
  std::vector<std::string> stop = {};  // the text ends before the first of these
  bool include_stop = false;           // keep the stop string in text and node
  std::vector<TokenId> eos_ids = {};   // end the text, too, beside the model's own end-of-text tokens
  bool ignore_eos = false;
  SamplerOptions sampler = {};
  std::uint64_t seed = 0;
  // Random streams are keyed by (seed, stream, sample, position). Default stream: a hash of the path's tokens.
  std::optional<std::uint64_t> stream = {};
  // Number of the first sample. Default: goes on behind the samples drawn from this node before, so that asking twice
  // gives new samples.
  std::optional<std::uint64_t> first_sample = {};
  std::int64_t n_logprobs = 0;  // likeliest tokens to report for each position; -1: not even the chosen one's
  LogitHook hook = {};          // may be empty
  bool keep_nodes = true;       // false: the node is freed as soon as its sample is done; Thought::node is empty
  std::int32_t priority = 0;    // higher goes first
  // Called with each piece of finished, valid UTF-8 text that can no longer be part of a stop string.
  std::function<void(std::size_t node_index, std::uint64_t sample, std::string_view text)> on_text = {};
  // Called when a sample is done, before the others are.
  std::function<void(std::size_t node_index, const struct Thought&)> on_done = {};
};

// A finished sample.
//   node:    ends in front of the token in which the stop string begins (behind the one in which it ends with
//            include_stop); an end-of-text token is not in it. It can be forked, extended, sampled further.
//   tokens:  every token drawn, those of the stop string and the end-of-text token included.
//   text:    valid UTF-8; what never became a character is U+FFFD.
struct Thought {
  Node node;
  std::size_t parent_index = 0;  // which of the nodes given to sample()
  std::uint64_t sample = 0;      // its number under that node
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;                 // of each of `tokens`
  std::vector<std::vector<TokenLogprob>> top;  // with n_logprobs > 0
  double cumulative_logprob = 0;
  std::string text;
  FinishReason finish = FinishReason::length;
  std::optional<Error> error;  // with FinishReason::error
};

struct Score {
  double sum = 0;               // of the logprobs
  std::vector<float> logprobs;  // of each token of the continuation
};

struct LaneOptions {
  std::int64_t max_batch = 256;  // searches' samples that decode side by side
  std::int64_t max_rows = 1024;  // rows of a step: tokens decoded and prompt tokens computed together
  PlanOptions::Sharing sharing = PlanOptions::Sharing::tree;
};

struct JobOptions {
  std::int64_t max_tokens = std::numeric_limits<std::int64_t>::max();  // drawn on behalf of the job
  std::int64_t max_steps = std::numeric_limits<std::int64_t>::max();   // steps in which it took part
};

// Counters of a lane since it was made. Bytes are of all layers; "unshared" is what it would have taken if in each step
// each sequence had read its path by itself, once for all its rows (a piece of a prompt, or a token).
struct LaneStats {
  std::int64_t n_steps = 0, n_rows = 0;
  std::int64_t n_generated = 0;         // tokens drawn
  std::int64_t n_prefill_computed = 0;  // rows that computed KV of given (not drawn) tokens
  std::int64_t n_prefill_saved = 0;     // given tokens on the paths of samples whose KV was there already
  std::int64_t n_recomputed = 0;        // rows computed again after eviction
  std::int64_t n_preempted = 0, n_evicted_slots = 0;
  double attention_bytes_shared = 0, attention_bytes_unshared = 0;
  double gather_ms = 0, plan_ms = 0, forward_ms = 0, sample_ms = 0, grow_ms = 0;
  std::int64_t n_active = 0, n_waiting = 0, kv_slots_used = 0, kv_slots_total = 0;  // now
};

template <class T>
class Job;

class Session {
 public:
  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  LaneId add_lane(std::unique_ptr<StepRunner> runner, const LaneOptions& options = {});
  const StepRunner& runner(LaneId lane = {}) const;
  const SequenceTree& tree(LaneId lane = {}) const;
  LaneStats stats(LaneId lane = {}) const;

  // --- trees: at once, no model work; KV is computed when a wish needs it ---------------------------------------
  // A new node for these tokens, below the longest prefix that the forest already stores.
  Node insert(std::span<const TokenId> tokens, LaneId lane = {});
  // Text as a root: with BOS where the vocabulary says so. Throws Error{bad_input} where nothing is left to start from.
  Node insert(std::string_view text, LaneId lane = {}, bool parse_special = false);
  // A child at the end of `node`. Text is tokenised by itself, without BOS: "ab" + "c" need not be the tokens of "abc".
  Node extend(const Node& node, std::span<const TokenId> tokens);
  Node extend(const Node& node, std::string_view text, bool parse_special = false);
  Node fork(const Node& node, std::int64_t pos);  // behind the first `pos` tokens of the node's run
  // Takes what the pool's slots hold for the KV of the node's tokens, instead of computing it: for benches of long
  // prompts (RunnerOptions::random_kv). Throws Error{never_fits} naming the node if the pool has too few free slots.
  void adopt_kv(const Node& node);

  // --- verbs: await them in a task ------------------------------------------------------------------------------
  // n continuations of each node, in order of (node, sample). A sample that cannot be had (never fits, bad logits, an
  // empty path) is a Thought with an error; the others are not disturbed.
  // (g++ 12 refuses braced lists of strings or nodes inside a co_await expression: name the options first.)
  Task<std::vector<Thought>> sample(std::vector<Node> nodes, SampleOptions options);
  Task<std::vector<Thought>> sample(Node node, SampleOptions options);
  // Log-probability of `tokens` behind `node`; the model's own distribution, no temperature.
  Task<Score> score(Node node, std::vector<TokenId> tokens);
  // The k likeliest next tokens, best first.
  Task<std::vector<TokenLogprob>> next(Node node, std::int64_t k);
  // Scalar head at the end of the path. Throws Error{unsupported} for a model that has none.
  Task<double> reward(Node node);

  // --- jobs -----------------------------------------------------------------------------------------------------
  // Starts a search. It runs to its first wish at the next step(). Destroying the Job cancels it.
  template <class T>
  Job<T> start(Task<T> task, const JobOptions& options = {});
  // One turn of the loop. False: nothing is left to do.
  bool step();
  void run() {
    while (step()) {
    }
  }
  // Starts the task and runs until it is done (others go on beside it).
  template <class T>
  T run(Task<T> task);

 private:
  template <class T>
  friend class Job;
  detail::Lane& lane(LaneId id) const;
  std::shared_ptr<detail::JobState> start_job(std::coroutine_handle<> handle, const JobOptions& options);
  std::shared_ptr<detail::SessionState> state_;
};

namespace detail {
bool job_done(const JobState& job);
void forget_job(JobState& job);
std::int64_t job_tokens(const JobState& job);
}  // namespace detail

// A started search. Owns the coroutine.
template <class T>
class Job {
 public:
  Job(Job&&) noexcept = default;
  Job& operator=(Job other) noexcept {
    std::swap(state_, other.state_);
    std::swap(task_, other.task_);
    return *this;
  }
  ~Job() {
    if (state_) detail::forget_job(*state_);
  }
  bool done() const { return detail::job_done(*state_); }
  std::int64_t n_tokens() const { return detail::job_tokens(*state_); }  // drawn on its behalf
  // The result; rethrows what the search threw. Once. Throws Error{usage} when the search is not done.
  T result() {
    if (!done())
      throw Error(ErrorCode::usage, "job", "the search has not ended: it waits for something that no step brings");
    return task_.handle().promise().take();
  }

 private:
  friend class Session;
  Job(Task<T> task, std::shared_ptr<detail::JobState> state) : task_(std::move(task)), state_(std::move(state)) {}
  Task<T> task_;
  std::shared_ptr<detail::JobState> state_;
};

template <class T>
Job<T> Session::start(Task<T> task, const JobOptions& options) {
  auto state = start_job(task.handle(), options);
  return Job<T>(std::move(task), std::move(state));
}

template <class T>
T Session::run(Task<T> task) {
  auto job = start(std::move(task));
  while (!job.done() && step()) {
  }
  return job.result();
}

}  // namespace banyan
