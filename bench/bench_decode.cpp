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
// the rounds. Floors are of the step in the middle: the largest of
//     (weights + distinct KV bytes) / read_gb_s        from memory, each once
//     KV bytes of all calls of the mode / cache_gb_s   one layer's KV, read again for each call, stays in the cache
//     (products + attention FLOPs) / matrix_gflop_s    the backend's own product, 256 rows, weights in the cache
#include <CLI/CLI.hpp>
#include <algorithm>
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
  std::string model, name, out, compute = "automatic", kv_type = "f32";
  std::int64_t n_prefix = 1024, n_new = 64, n_branches = 0, n_branch_tokens = 64;
  std::vector<std::int64_t> n_samples{64};
  std::vector<std::string> modes{"tree", "one_level", "unshared", "decomposed", "no_attention"};
  int n_threads = 0, n_repeats = 3;

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
    runner.n_kv_slots =
        options.n_given() + 2 * kKvBlock * (options.n_nodes() + 1) + n_samples * (options.n_new + 1 + 2 * kKvBlock);
    runner.skip_attention = mode_ == "no_attention";
    LaneOptions lane;
    lane.max_batch = n_samples;
    lane.max_rows = std::max<std::int64_t>(lane.max_rows, n_samples);
    lane.sharing = sharing_of(mode_);
    session_.add_lane(make_runner(std::move(model), runner), lane);
  }

  void run_once() {
    using clock = std::chrono::steady_clock;
    const LaneStats before = session_.stats();
    auto job = session_.start(session_.sample(insert_prompt(), sample_options()));
    const auto begin = clock::now();
    auto first_drawn = begin;
    bool is_prefill = true;
    while (!job.done() && session_.step()) {
      if (is_prefill && session_.stats().n_generated > before.n_generated) {
        first_drawn = clock::now();
        is_prefill = false;
      }
    }
    const auto end = clock::now();
    for (const Thought& thought : job.result()) {
      if (thought.error) throw *thought.error;
    }
    const LaneStats after = session_.stats();
    if (after.n_rows - before.n_rows < n_samples_ * options_.n_new || after.n_recomputed != 0) {
      throw Error(ErrorCode::usage, mode_, "the samples did not decode side by side");
    }
    prefill_ms_.push_back(std::chrono::duration<double, std::milli>(first_drawn - begin).count());
    const double decode_ms = std::chrono::duration<double, std::milli>(end - first_drawn).count();
    step_ms_.push_back(decode_ms / static_cast<double>(options_.n_new));
  }

  const std::string& mode() const { return mode_; }
  std::int64_t n_samples() const { return n_samples_; }
  Summary step_ms() const { return summarize(step_ms_); }
  Summary prefill_ms() const { return summarize(prefill_ms_); }

 private:
  std::vector<Node> insert_prompt() {
    std::mt19937 rng(1);
    const Node root = session_.insert(random_tokens(options_.n_prefix, vocab_size_, rng));
    if (options_.n_branches == 0) return {root};
    std::vector<Node> nodes;
    for (std::int64_t i = 0; i < options_.n_branches; ++i) {
      nodes.push_back(session_.extend(root, random_tokens(options_.n_branch_tokens, vocab_size_, rng)));
    }
    return nodes;
  }

  SampleOptions sample_options() const {
    SampleOptions s;
    s.n = n_samples_ / options_.n_nodes();
    s.max_tokens = options_.n_new + 1;
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
  Session session_;
  std::vector<double> prefill_ms_, step_ms_;
};

// --- what it is compared with ----------------------------------------------------------------------------------------

struct Roofs {
  double read_gb_s = 0, cache_gb_s = 0, matrix_gflop_s = 0;
};

struct RandomRows final : kernels::Backend::RowSource {
  std::vector<float> row;
  void fill(std::int64_t begin, std::int64_t end, float* dst) const override {
    for (std::int64_t r = begin; r < end; ++r, dst += row.size()) std::copy(row.begin(), row.end(), dst);
  }
};

double matrix_gflop_s(Compute compute, int n_threads) {
  constexpr std::int64_t kIn = 576, kOut = 1536, kRows = 256;
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  const auto random = [&](std::int64_t n) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& v : x) v = normal(rng);
    return x;
  };
  const auto backend = kernels::make_cpu_backend({.n_threads = n_threads});
  RandomRows rows;
  rows.row = random(kIn);
  const auto w = backend->pack(kOut, kIn, compute == Compute::bf16 ? DType::bf16 : DType::f32, rows);
  const std::vector<float> x = random(kRows * kIn);
  std::vector<float> y(static_cast<std::size_t>(kRows * kOut));
  std::vector<double> gflop_s;
  for (int i = 0; i < 101; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    backend->matmul(*w, x.data(), y.data(), kRows, nullptr, false);
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    gflop_s.push_back(1e-9 * kernels::matmul_flops(kRows, kOut, kIn) / s);
  }
  return summarize(gflop_s).median;
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
  double memory = static_cast<double>(model.weight_bytes()) - embedding, cache = 0;
  double flops = n_rows * (model.flops_per_row() + 2 * head);
  Prediction p;
  if (contender.mode() != "no_attention") {
    const Plan plan = middle_plan(o, contender.n_samples(), sharing_of(contender.mode()));
    const double n_distinct =
        static_cast<double>(o.n_given()) + n_rows * static_cast<double>(o.n_new / 2 + 1);  // tokens
    double n_keys = 0;
    for (const AttentionCall& call : plan.calls) n_keys += static_cast<double>(call.n_keys);
    const auto token_bytes = static_cast<double>(kv_bytes_per_token(c, kv_type));
    memory += n_distinct * token_bytes;
    cache = n_keys * token_bytes;
    flops += n_layers * cost(plan, shape).flops;
    p.attention_ms = 1e-3 * n_layers * predict_us(plan, shape, cost_model);
  }
  p.floor_ms = 1e3 * std::max({1e-9 * memory / roofs.read_gb_s, 1e-9 * cache / roofs.cache_gb_s,
                               1e-9 * flops / roofs.matrix_gflop_s});
  return p;
}

// --- the table -------------------------------------------------------------------------------------------------------

void report(const Model& model, const Options& o, const std::vector<std::unique_ptr<Contender>>& contenders,
            const Roofs& roofs, const CostModel& cost_model, bench::ResultFile& file) {
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

Roofs measure_roofs(const Model& model, const Options& o, bench::ResultFile& file) {
  constexpr std::int64_t kMemory = 512 << 20;
  const std::int64_t layer =
      kv_bytes_per_token(model.config(), dtype_from_string(o.kv_type)) / model.config().n_layers * o.n_given();
  const Roofs roofs{bench::read_gb_s(kMemory, o.n_threads), bench::read_gb_s(layer, o.n_threads),
                    matrix_gflop_s(model.compute(), o.n_threads)};
  file.set_roof("read_gb_s", roofs.read_gb_s);
  file.set_roof("cache_gb_s", roofs.cache_gb_s);
  file.set_roof("matrix_gflop_s", roofs.matrix_gflop_s);
  std::printf("roofs: memory %.1f GB/s; %.1f MiB, a layer's shared KV, %.1f GB/s; product of 256 rows %.1f GFLOP/s\n",
              roofs.read_gb_s, static_cast<double>(layer) / (1 << 20), roofs.cache_gb_s, roofs.matrix_gflop_s);
  return roofs;
}

void add_options(CLI::App& app, Options& o) {
  app.add_option("-m,--model", o.model, "Checkpoint: a .gguf or a Hugging Face directory")->required();
  app.add_option("--name", o.name, "Model's name in the rows; default: as the file says");
  app.add_option("--n-prefix", o.n_prefix, "Prompt tokens")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--n-branches", o.n_branches, "Nodes below the prompt, which share the samples; 0: none");
  app.add_option("--n-branch-tokens", o.n_branch_tokens, "Tokens of each branch")->check(CLI::PositiveNumber);
  app.add_option("--n-samples", o.n_samples, "Samples side by side, a list")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--n-new", o.n_new, "Decoding steps")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--compute", o.compute)->check(CLI::IsMember({"automatic", "f32", "bf16"}))->capture_default_str();
  app.add_option("--kv-type", o.kv_type)->check(CLI::IsMember({"f32", "bf16", "f16"}))->capture_default_str();
  app.add_option("-t,--threads", o.n_threads, "0: all cores")->capture_default_str();
  app.add_option("--modes", o.modes, "A list of tree, one_level, unshared, decomposed, no_attention")
      ->delimiter(',')
      ->check(CLI::IsMember({"tree", "one_level", "unshared", "decomposed", "no_attention"}));
  app.add_option("--repeats", o.n_repeats, "Rounds")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--out", o.out, "Result file, NAME.json");
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
  load.compute = o.compute == "f32" ? Compute::f32 : o.compute == "bf16" ? Compute::bf16 : Compute::automatic;
  const auto model = Model::load(o.model, load);
  const ModelConfig& c = model->config();
  if (o.name.empty()) o.name = c.name;

  bench::ResultFile file("decode", argc, argv);
  const AttentionShape shape{c.n_heads_q, c.n_heads_kv, c.head_dim, dtype_bytes(dtype_from_string(o.kv_type), 1)};
  const CostModel cost_model = calibrate(shape, dtype_from_string(o.kv_type), o.n_threads);
  file.set_machine(cost_model.machine);
  std::printf("%s, %s; %s\n", o.name.c_str(), model->compute() == Compute::bf16 ? "bf16" : "f32",
              cost_model.machine.c_str());
  const Roofs roofs = measure_roofs(*model, o, file);

  std::vector<std::unique_ptr<Contender>> contenders;
  for (const std::int64_t n : o.n_samples) {
    for (const std::string& mode : o.modes) contenders.push_back(std::make_unique<Contender>(model, o, mode, n));
  }
  for (int i = 0; i < o.n_repeats; ++i) {
    for (auto& contender : contenders) contender->run_once();
  }
  report(*model, o, contenders, roofs, cost_model, file);
  if (!o.out.empty()) file.write(o.out);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_decode: %s\n", e.what());
  return 1;
}
