// Decoding of many samples below one prompt, through the public session, beside its floors and beside what it would
// take without sharing.
//
//     prompt [n_prefix] --+-- branch [n_branch_tokens] --+-- sample ...      (branches: none by default)
//                         |                              '-- sample ...
//                         '-- ...
//
// Modes: tree (shared at every fork), one_level (at the root alone), unshared (each row reads its whole path),
// decomposed (cut like tree, each row a call by itself), no_attention (wrong results: everything but attention).
//
// Each sample draws n_new + 1 tokens: the first from the prompt's own logits, so that n_new whole steps follow.
// `prefill_ms` ends with the step that draws the first tokens; `step_ms` and `tok_s` are of the n_new steps behind it,
// sampling included. Prompts are random tokens of a fixed seed, temperature is 1, ends of text are ignored.
//
// Modes and batch sizes take turns, once each round, so that slow spells of the machine hit all of them; medians over
// the rounds. Floors are of the step in the middle, the products' and the attention's:
//     products   the larger of weights / memory_gb_s and FLOPs / matrix_gflop_s
//     attention  the largest of distinct KV bytes / memory_gb_s, KV bytes of all calls of the mode / cache_gb_s (on the
//                CPU one layer's KV, read again for each call, stays in the cache), FLOPs / matrix_gflop_s
// Roofs are measured in the run. CPU: reading 512 MiB; reading one layer's KV again and again; the backend's product of
// 256 rows, weights in the cache. CUDA: bytes read and written by a copy of 4 GiB; the same, for want of a measured
// level 2 cache, so modes that read KV again (one_level, unshared) may run below their floor; a product of 8192^3.
//
// On CUDA it prints how long the device had nothing to do between the steps of the decoding, from events on the stream:
// from a step's last operation to the next one's first, plan arrays on their way included. --in-flight 1 and
// --no-graphs show what two steps in flight and graphs give.
//
// --fill-kv takes random KV for the prompt instead of computing it: for decoding behind very long prompts.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "banyan/calibrate.hpp"
#include "banyan/model.hpp"
#include "banyan/session.hpp"
#include "kernels/ops.hpp"
#include "result_file.hpp"

namespace {

using namespace banyan;
using bench::summarize;
using bench::Summary;

struct Options {
  std::string model, random_weights, name, out, device = "cpu", compute = "automatic", kv_type = "f32";
  bool fill_kv = false, deterministic = false, append = false, no_graphs = false;
  std::int64_t n_prefix = 1024, n_new = 64, n_branches = 0, n_branch_tokens = 64;
  std::vector<std::int64_t> n_samples{64};
  std::vector<std::string> modes{"tree", "one_level", "unshared", "decomposed", "no_attention"};
  int n_threads = 0, n_repeats = 3, in_flight = 0;

  std::int64_t n_nodes() const { return std::max<std::int64_t>(1, n_branches); }  // that are sampled from
  std::int64_t n_given() const { return n_prefix + n_branches * n_branch_tokens; }
  std::int64_t path_begin() const { return n_prefix + (n_branches > 0 ? n_branch_tokens : 0); }
};

PlanOptions::Sharing sharing_of(const std::string& mode) {
  if (mode == "one_level") return PlanOptions::Sharing::one_level;
  if (mode == "unshared") return PlanOptions::Sharing::unshared;
  if (mode == "decomposed") return PlanOptions::Sharing::decomposed;
  return PlanOptions::Sharing::tree;
}

std::vector<TokenId> random_tokens(std::int64_t n, std::int64_t vocab_size, std::mt19937& rng) {
  std::uniform_int_distribution<TokenId> any(0, static_cast<TokenId>(vocab_size - 1));
  std::vector<TokenId> tokens(static_cast<std::size_t>(n));
  for (TokenId& t : tokens) t = any(rng);
  return tokens;
}

// --- the measured way ------------------------------------------------------------------------------------------------

// One mode at one batch size. The session stays from round to round, so that only the first touches fresh memory.
class Contender {
 public:
  Contender(std::shared_ptr<const Model> model, const Options& options, std::string mode, std::int64_t n_samples)
      : mode_(std::move(mode)), n_samples_(n_samples), options_(options), vocab_size_(model->config().vocab_size) {
    RunnerOptions runner;
    runner.kv_type = dtype_from_string(options.kv_type);
    // Slots are handed out in blocks, and first tokens of several samples share one.
    const std::int64_t n_private = (options.n_new + kKvBlock) / kKvBlock * kKvBlock + kKvBlock / 2;
    runner.n_kv_slots = options.n_given() + 16 * kKvBlock * (options.n_nodes() + 1) + n_samples * n_private;
    runner.skip_attention = mode_ == "no_attention";
    runner.random_kv = options.fill_kv;
    runner.max_in_flight = options.in_flight;
    runner.graphs = !options.no_graphs;
    runner.max_positions = options.path_begin() + options.n_new + 1;
    LaneOptions lane;
    lane.max_batch = n_samples;
    // A device takes long prompts in larger pieces: products of few rows would leave it idle.
    lane.max_rows = std::max<std::int64_t>(options.device == "cuda" ? 4096 : lane.max_rows, n_samples);
    lane.sharing = sharing_of(mode_);
    session_ = std::make_unique<Session>();
    session_->add_lane(make_runner(std::move(model), runner), lane);
  }

  void free_memory() { session_.reset(); }  // no run_once() after it

  // n_new: fewer steps, for a warm-up
  void run_once(std::int64_t n_new) {
    using clock = std::chrono::steady_clock;
    const LaneStats before = session_->stats();
    auto prompts = insert_prompt();
    if (options_.fill_kv) {
      for (const Node& node : prompts) session_->adopt_kv(node);
    }
    auto job = session_->start(session_->sample(std::move(prompts), sample_options(n_new)));
    const auto begin = clock::now();
    auto first_drawn = begin;
    LaneStats prefilled;
    bool is_prefill = true;
    while (!job.done() && session_->step()) {
      if (is_prefill && session_->stats().n_generated > before.n_generated) {
        first_drawn = clock::now();
        prefilled = session_->stats();
        is_prefill = false;
      }
    }
    const auto end = clock::now();
    for (const Thought& thought : job.result()) {
      if (thought.error) throw *thought.error;
    }
    const LaneStats after = session_->stats();
    if (after.n_rows - before.n_rows < n_samples_ * n_new || after.n_recomputed != 0) {
      throw Error(ErrorCode::usage, mode_, "the samples did not decode side by side");
    }
    host_ = {after.gather_ms - before.gather_ms, after.plan_ms - before.plan_ms, after.forward_ms - before.forward_ms,
             after.sample_ms - before.sample_ms, after.grow_ms - before.grow_ms};
    for (double& ms : host_) ms *= 1e3 / static_cast<double>(after.n_steps - before.n_steps);
    const double busy_ms = after.device_ms - prefilled.device_ms,
                 idle_ms = after.device_idle_ms - prefilled.device_idle_ms;
    idle_percent_ = busy_ms > 0 ? 100 * idle_ms / (busy_ms + idle_ms) : std::nan("");
    prefill_ms_.push_back(std::chrono::duration<double, std::milli>(first_drawn - begin).count());
    const double decode_ms = std::chrono::duration<double, std::milli>(end - first_drawn).count();
    step_ms_.push_back(decode_ms / static_cast<double>(n_new));
  }

  void forget_rounds() {
    prefill_ms_.clear();
    step_ms_.clear();
  }

  const std::string& mode() const { return mode_; }
  std::int64_t n_samples() const { return n_samples_; }
  Summary step_ms() const { return summarize(step_ms_); }
  Summary prefill_ms() const { return summarize(prefill_ms_); }
  // Of the last round, us a step: gather, plan, forward, sample (with waiting for the device), grow.
  const std::array<double, 5>& host_us() const { return host_; }
  // Of the last round's decoding: how much of the time the device had nothing to do between steps; nan on the host.
  double idle_percent() const { return idle_percent_; }

 private:
  std::vector<Node> insert_prompt() {
    std::mt19937 rng(1);
    const Node root = session_->insert(random_tokens(options_.n_prefix, vocab_size_, rng));
    if (options_.n_branches == 0) return {root};
    std::vector<Node> nodes;
    for (std::int64_t i = 0; i < options_.n_branches; ++i) {
      nodes.push_back(session_->extend(root, random_tokens(options_.n_branch_tokens, vocab_size_, rng)));
    }
    return nodes;
  }

  SampleOptions sample_options(std::int64_t n_new) const {
    SampleOptions s;
    s.n = n_samples_ / options_.n_nodes();
    s.max_tokens = n_new + 1;
    s.ignore_eos = true;
    s.n_logprobs = -1;
    s.keep_nodes = false;
    s.first_sample = 0;
    return s;
  }

  std::string mode_;
  std::int64_t n_samples_ = 0;
  const Options& options_;
  std::int64_t vocab_size_ = 0;
  std::unique_ptr<Session> session_;
  std::vector<double> prefill_ms_, step_ms_;
  std::array<double, 5> host_{};
  double idle_percent_ = std::nan("");
};

using Contenders = std::vector<std::unique_ptr<Contender>>;

Contenders run_in_turns(const std::shared_ptr<const Model>& model, const Options& o) {
  Contenders contenders;
  for (const std::int64_t n : o.n_samples) {
    for (const std::string& mode : o.modes) contenders.push_back(std::make_unique<Contender>(model, o, mode, n));
  }
  for (int i = 0; i < o.n_repeats; ++i) {
    for (auto& contender : contenders) contender->run_once(o.n_new);
  }
  return contenders;
}

// A device has room for one pool at a time, and no slow spells. A few steps in front are a warm-up.
Contenders run_one_by_one(const std::shared_ptr<const Model>& model, const Options& o) {
  Contenders contenders;
  for (const std::int64_t n : o.n_samples) {
    for (const std::string& mode : o.modes) {
      try {
        auto contender = std::make_unique<Contender>(model, o, mode, n);
        contender->run_once(std::min<std::int64_t>(o.n_new, 4));
        contender->forget_rounds();
        for (int i = 0; i < o.n_repeats; ++i) contender->run_once(o.n_new);
        contender->free_memory();
        contenders.push_back(std::move(contender));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::out_of_memory) throw;
        std::printf("%s, %lld samples: does not fit: %s\n", mode.c_str(), static_cast<long long>(n), error.what());
      }
    }
  }
  return contenders;
}

// --- what it is compared with ----------------------------------------------------------------------------------------

struct Roofs {
  double memory_gb_s = 0, cache_gb_s = 0, matrix_gflop_s = 0;
};

// Median seconds of one of `n` calls that are under way together, over 21 such batches.
template <class Call>
double seconds_of(kernels::Backend& backend, int n, const Call& call) {
  std::vector<double> times;
  for (int i = 0; i < 22; ++i) {  // the first is a warm-up
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < n; ++k) call();
    backend.synchronize();
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i > 0) times.push_back(s / n);
  }
  return summarize(times).median;
}

double matrix_gflop_s(kernels::Backend& backend, DType type, std::int64_t n_rows, std::int64_t n_out,
                      std::int64_t n_in) {
  const auto w = backend.pack(n_out, n_in, type, kernels::UniformRows(n_in, 1, 1.0F));
  const DType activation = backend.activation_type();
  void* x = backend.allocate(dtype_bytes(activation, n_rows * n_in));
  void* y = backend.allocate(dtype_bytes(activation, n_rows * n_out));
  backend.fill_random(x, activation, n_rows * n_in, 2);
  const double s = seconds_of(backend, 4, [&] { backend.matmul(*w, x, y, n_rows, nullptr); });
  backend.release(x);
  backend.release(y);
  return 1e-9 * kernels::matmul_flops(n_rows, n_out, n_in) / s;
}

double copy_gb_s(kernels::Backend& backend, std::int64_t n_bytes) {
  void* from = backend.allocate(n_bytes);
  void* to = backend.allocate(n_bytes);
  backend.fill_random(from, DType::f32, n_bytes / 4, 1);
  const double s = seconds_of(backend, 4, [&] { backend.copy(to, from, n_bytes); });
  backend.release(from);
  backend.release(to);
  return 2e-9 * static_cast<double>(n_bytes) / s;
}

// The plan of the decoding step in the middle, made from a tree of tokens alone.
Plan middle_plan(const Options& o, std::int64_t n_samples, PlanOptions::Sharing sharing) {
  SequenceTree tree;
  const std::vector<TokenId> tokens(static_cast<std::size_t>(std::max({o.n_prefix, o.n_branch_tokens, o.n_new + 1})));
  const auto given = [&](NodeId node, std::int64_t n) {
    tree.append(node, std::span(tokens).first(static_cast<std::size_t>(n)));
    tree.commit_kv(node, n);
    return node;
  };
  const NodeId root = given(tree.add_root({}), o.n_prefix);
  std::vector<StepSpan> spans;
  for (std::int64_t b = 0; b < o.n_nodes(); ++b) {
    const NodeId node = o.n_branches > 0 ? given(tree.fork(root, o.n_prefix), o.n_branch_tokens) : root;
    for (std::int64_t i = 0; i < n_samples / o.n_nodes(); ++i) {
      const NodeId leaf = given(tree.fork(node, tree.n_tokens(node)), o.n_new / 2);
      tree.append(leaf, TokenId{1});
      spans.push_back({leaf, o.n_new / 2, o.n_new / 2 + 1, 1, true});
    }
  }
  std::sort(spans.begin(), spans.end(), [](const StepSpan& a, const StepSpan& b) { return a.node < b.node; });
  Plan plan;
  Planner({.sharing = sharing}).build(tree, spans, plan);
  return plan;
}

struct Prediction {
  double floor_ms = 0, attention_ms = 0;  // attention_ms by the cost model
};

Prediction predict(const Model& model, const Options& o, const Contender& contender, const Roofs& roofs,
                   const CostModel& cost_model) {
  const ModelConfig& c = model.config();
  const DType kv_type = dtype_from_string(o.kv_type);
  const auto n_layers = static_cast<double>(c.n_layers), n_rows = static_cast<double>(contender.n_samples());
  const AttentionShape shape{c.n_heads_q, c.n_heads_kv, c.head_dim, dtype_bytes(kv_type, 1)};
  const auto head = static_cast<double>(c.hidden_size * c.vocab_size);
  // Of an embedding that is no head only a few rows are read.
  const double embedding = c.tied_embeddings ? 0 : head * (model.compute() == Compute::bf16 ? 2 : 4);
  const double weights = static_cast<double>(model.weight_bytes()) - embedding;
  const double product_flops = n_rows * (model.flops_per_row() + 2 * head);
  Prediction p;
  p.floor_ms = 1e-6 * std::max(weights / roofs.memory_gb_s, product_flops / roofs.matrix_gflop_s);
  if (contender.mode() != "no_attention") {
    const Plan plan = middle_plan(o, contender.n_samples(), sharing_of(contender.mode()));
    const double n_distinct =
        static_cast<double>(o.n_given()) + n_rows * static_cast<double>(o.n_new / 2 + 1);  // tokens
    double n_keys = 0;
    for (const AttentionCall& call : plan.calls) n_keys += static_cast<double>(call.n_keys);
    const auto token_bytes = static_cast<double>(kv_bytes_per_token(c, kv_type));
    p.floor_ms +=
        1e-6 * std::max({n_distinct * token_bytes / roofs.memory_gb_s, n_keys * token_bytes / roofs.cache_gb_s,
                         n_layers * cost(plan, shape).flops / roofs.matrix_gflop_s});
    p.attention_ms = 1e-3 * n_layers * predict_us(plan, shape, cost_model);
  }
  return p;
}

// --- the table -------------------------------------------------------------------------------------------------------

void report(const Model& model, const Options& o, const Contenders& contenders, const Roofs& roofs,
            const CostModel& cost_model, bench::ResultFile& file) {
  std::printf("%-12s %8s %10s %10s %10s %8s %10s %10s %10s %10s\n", "mode", "samples", "tok/s", "+ prefill", "step ms",
              "spread", "floor ms", "prefill", "attention", "predicted");
  for (const auto& contender : contenders) {
    double bare_ms = std::nan("");  // the step without attention, at this batch size
    for (const auto& other : contenders) {
      if (other->mode() == "no_attention" && other->n_samples() == contender->n_samples()) {
        bare_ms = other->step_ms().median;
      }
    }
    const Summary step = contender->step_ms();
    const double prefill = contender->prefill_ms().median, decode = step.median * static_cast<double>(o.n_new);
    const auto n_tokens = static_cast<double>(contender->n_samples() * o.n_new);
    const Prediction p = predict(model, o, *contender, roofs, cost_model);
    const double tok_s = 1e3 * n_tokens / decode, with_prefill = 1e3 * n_tokens / (decode + prefill);
    const double attention = step.median - bare_ms, predicted = bare_ms + p.attention_ms;
    std::printf("%-12s %8lld %10.1f %10.1f %10.3f %7.1f%% %10.3f %10.1f %10.3f %10.3f\n", contender->mode().c_str(),
                static_cast<long long>(contender->n_samples()), tok_s, with_prefill, step.median, step.spread_percent,
                p.floor_ms, prefill, attention, predicted);
    const auto& host = contender->host_us();
    std::printf("%21s host us a step: gather %.0f, plan %.0f, forward %.0f, sample %.0f, grow %.0f\n", "", host[0],
                host[1], host[2], host[3], host[4]);
    if (!std::isnan(contender->idle_percent())) {
      std::printf("%21s device idle between steps: %.2f %%\n", "", contender->idle_percent());
    }
    file.add_row({{"model", o.name},
                  {"mode", contender->mode()},
                  {"n_prefix", o.n_prefix},
                  {"n_samples", contender->n_samples()},
                  {"n_new", o.n_new},
                  {"kv_type", o.kv_type},
                  {"tok_s", tok_s},
                  {"tok_s_with_prefill", with_prefill},
                  {"step_ms", step.median},
                  {"floor_ms", p.floor_ms},
                  {"prefill_ms", prefill},
                  {"attention_ms", attention},
                  {"predicted_ms", predicted}});
  }
}

Roofs cuda_roofs(const Options& o, bench::ResultFile& file) {
  const auto backend = kernels::make_cuda_backend({.n_threads = o.n_threads});
  const double copy = copy_gb_s(*backend, std::int64_t{4} << 30);
  const double matrix = matrix_gflop_s(*backend, DType::bf16, 8192, 8192, 8192);
  file.set_roof("copy_tb_s", 1e-3 * copy);
  file.set_roof("bf16_tflop_s", 1e-3 * matrix);
  std::printf("roofs: copy %.2f TB/s, bf16 product %.0f TFLOP/s\n", 1e-3 * copy, 1e-3 * matrix);
  return {copy, copy, matrix};
}

Roofs cpu_roofs(const Model& model, const Options& o, bench::ResultFile& file) {
  constexpr std::int64_t kMemory = 512 << 20;
  const std::int64_t layer =
      kv_bytes_per_token(model.config(), dtype_from_string(o.kv_type)) / model.config().n_layers * o.n_given();
  const auto backend = kernels::make_cpu_backend({.n_threads = o.n_threads});
  const DType type = model.compute() == Compute::bf16 ? DType::bf16 : DType::f32;
  const Roofs roofs{bench::read_gb_s(kMemory, o.n_threads), bench::read_gb_s(layer, o.n_threads),
                    matrix_gflop_s(*backend, type, 256, 1536, 576)};
  file.set_roof("read_gb_s", roofs.memory_gb_s);
  file.set_roof("cache_gb_s", roofs.cache_gb_s);
  file.set_roof("matrix_gflop_s", roofs.matrix_gflop_s);
  std::printf("roofs: memory %.1f GB/s; %.1f MiB, a layer's shared KV, %.1f GB/s; product of 256 rows %.1f GFLOP/s\n",
              roofs.memory_gb_s, static_cast<double>(layer) / (1 << 20), roofs.cache_gb_s, roofs.matrix_gflop_s);
  return roofs;
}

void add_options(CLI::App& app, Options& o) {
  auto* model = app.add_option("-m,--model", o.model, "Checkpoint: a .gguf or a Hugging Face directory");
  app.add_option("--random-weights", o.random_weights, "Random weights of the shape in this config.json")
      ->excludes(model);
  app.add_flag("--fill-kv", o.fill_kv, "Random keys and values for the prompt, instead of computing it");
  app.add_option("--device", o.device)->check(CLI::IsMember({"cpu", "cuda"}))->capture_default_str();
  app.add_option("--name", o.name, "Model's name in the rows; default: as the file says");
  app.add_option("--n-prefix", o.n_prefix, "Prompt tokens")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--n-branches", o.n_branches, "Nodes below the prompt, which share the samples; 0: none");
  app.add_option("--n-branch-tokens", o.n_branch_tokens, "Tokens of each branch")->check(CLI::PositiveNumber);
  app.add_option("--n-samples", o.n_samples, "Samples side by side, a list")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--n-new", o.n_new, "Decoding steps")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--compute", o.compute)->check(CLI::IsMember({"automatic", "f32", "bf16"}))->capture_default_str();
  app.add_option("--kv-type", o.kv_type)
      ->check(CLI::IsMember({"f32", "bf16", "f16", "f8_e4m3"}))
      ->capture_default_str();
  app.add_option("--in-flight", o.in_flight, "Steps in flight; 0: as many as the device takes")
      ->check(CLI::IsMember({0, 1, 2}))
      ->capture_default_str();
  app.add_flag("--no-graphs", o.no_graphs, "Launch each operation of each step by itself");
  app.add_flag("--deterministic", o.deterministic, "Bits of a row depend on its own path alone");
  app.add_option("-t,--threads", o.n_threads, "0: all cores")->capture_default_str();
  app.add_option("--modes", o.modes, "A list of tree, one_level, unshared, decomposed, no_attention")
      ->delimiter(',')
      ->check(CLI::IsMember({"tree", "one_level", "unshared", "decomposed", "no_attention"}));
  app.add_option("--repeats", o.n_repeats, "Rounds")->check(CLI::PositiveNumber)->capture_default_str();
  auto* out = app.add_option("--out", o.out, "Result file, NAME.json");
  app.add_flag("--append", o.append, "Keep the rows that the result file has")->needs(out);
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("Decoding of many samples below one prompt");
  Options o;
  add_options(app, o);
  CLI11_PARSE(app, argc, argv);
  for (const std::int64_t n : o.n_samples) {
    if (n % o.n_nodes() != 0)
      throw Error(ErrorCode::usage, "--n-samples", std::to_string(n) + " is no multiple of --n-branches");
  }
  LoadOptions load;
  load.n_threads = o.n_threads;
  load.deterministic = o.deterministic;
  load.compute = o.compute == "f32" ? Compute::f32 : o.compute == "bf16" ? Compute::bf16 : Compute::automatic;
  load.device = o.device == "cuda" ? Device::cuda : Device::cpu;
  if (o.model.empty() && o.random_weights.empty()) throw Error(ErrorCode::usage, "-m", "give it, or --random-weights");
  const auto model = o.model.empty() ? Model::random(o.random_weights, 1, load) : Model::load(o.model, load);
  const ModelConfig& c = model->config();
  if (o.name.empty()) o.name = c.name;

  bench::ResultFile file("decode", argc, argv);
  const AttentionShape shape{c.n_heads_q, c.n_heads_kv, c.head_dim, dtype_bytes(dtype_from_string(o.kv_type), 1)};
  const CostModel cost_model = calibrate(shape, dtype_from_string(o.kv_type), load);
  const std::string machine = model->backend_name();
  file.set_machine(machine);
  if (load.device == Device::cuda) file.set_gpu(machine);
  std::printf("%s, %s; %s\n", o.name.c_str(), model->compute() == Compute::bf16 ? "bf16" : "f32", machine.c_str());
  const Roofs roofs = load.device == Device::cuda ? cuda_roofs(o, file) : cpu_roofs(*model, o, file);

  const auto contenders = load.device == Device::cuda ? run_one_by_one(model, o) : run_in_turns(model, o);
  report(*model, o, contenders, roofs, cost_model, file);
  if (o.append) file.prepend_rows_of(o.out);
  if (!o.out.empty()) file.write(o.out);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_decode: %s\n", e.what());
  return 1;
}
