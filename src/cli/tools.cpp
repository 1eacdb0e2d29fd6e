// banyan plan, inspect, tokenize, calibrate: small tools over the library.
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iostream>

#include "banyan/calibrate.hpp"
#include "banyan/plan.hpp"
#include "banyan/read_file.hpp"
#include "banyan/tree_file.hpp"
#include "cli/common.hpp"

namespace banyan::cli {
namespace {

std::string default_cost_model_path() { return cache_folder() + "/cost_model.json"; }

struct ShapeFlags {
  std::int64_t n_heads_q = 32, n_heads_kv = 8, head_dim = 128;
  std::string kv_type = "bf16";

  void add(CLI::App& app) {
    app.add_option("--heads-q", n_heads_q, "Query heads")->transform(whole_number(1, 1024))->capture_default_str();
    app.add_option("--heads-kv", n_heads_kv, "KV heads; divides the query heads")
        ->transform(whole_number(1, 1024))
        ->capture_default_str();
    app.add_option("--head-dim", head_dim, "Elements of one head")
        ->transform(whole_number(1, 1024))
        ->capture_default_str();
    app.add_option("--kv-type", kv_type, "f32, bf16, f16 or f8_e4m3 (fp8)")
        ->check(CLI::IsMember({"f32", "bf16", "f16", "f8_e4m3", "fp8", "fp8_e4m3"}))
        ->capture_default_str();
  }
  AttentionShape shape() const {
    if (n_heads_q % n_heads_kv != 0) {
      throw Error(ErrorCode::usage, "--heads-kv",
                  fmt::format("{} does not divide --heads-q {}", n_heads_kv, n_heads_q));
    }
    return {n_heads_q, n_heads_kv, head_dim, dtype_bytes(dtype_from_string(kv_type), 1)};
  }
};

struct PlanTool {
  std::string file, tree, cost_model = default_cost_model_path();
  bool summary = false, deterministic = false;
  ShapeFlags shape;

  void print_cost(const char* way, const PlanCost& c, double predicted) const {
    fmt::print("{:<10} {:>9} calls {:>12.4g} MB {:>12.4g} GFLOP", way, c.n_calls, c.bytes / 1e6, c.flops / 1e9);
    if (predicted > 0) fmt::print(" {:>12.4g} us predicted", predicted);
    fmt::print("\n");
  }

  void print(const std::string& name, const AttentionShape& s, const std::optional<CostModel>& model) const {
    const BenchTree bench = load_bench_tree(file, name);
    Plan shared, unshared;
    Planner(PlanOptions{.deterministic = deterministic}).build(*bench.tree, bench.spans, shared);
    Planner(PlanOptions{.sharing = PlanOptions::Sharing::unshared}).build(*bench.tree, bench.spans, unshared);
    fmt::print("tree {}: {} nodes, {} rows\n", name, bench.tree->n_nodes(), shared.n_rows());
    print_cost("shared", cost(shared, s), model ? predict_us(shared, s, *model) : 0);
    print_cost("unshared", cost(unshared, s), model ? predict_us(unshared, s, *model) : 0);
    if (!summary) fmt::print("{}\n", to_text(shared));
  }

  int run() const {
    const AttentionShape s = shape.shape();
    const auto names = tree.empty() ? bench_tree_names(file) : std::vector{tree};
    std::optional<CostModel> model;
    if (std::filesystem::exists(cost_model)) {
      model = load_cost_model(cost_model);
      fmt::print("one layer; times from {} ({})\n", cost_model, model->machine);
    } else {
      log(fmt::format("no constants at {}: run `banyan calibrate` for predicted times", cost_model));
    }
    for (const auto& name : names) print(name, s, model);
    return kDone;
  }
};

struct Tokenize {
  std::string model;
  TextFlags text;
  bool parse_special = false, no_bos = false;

  int run() const {
    const std::string input = text.from_file() ? read_file(text.file) : text.prompt;
    const auto tokenizer = load_tokenizer(model);
    const auto ids = tokenizer->encode(input, {.add_bos = !no_bos, .parse_special = parse_special});
    nlohmann::ordered_json j;
    j["ids"] = ids;
    auto& pieces = j["pieces"] = nlohmann::ordered_json::array();
    for (const TokenId id : ids) pieces.push_back(tokenizer->spec().pieces[static_cast<std::size_t>(id)]);
    std::cout << j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    return kDone;
  }
};

struct Calibrate {
  ShapeFlags shape;
  std::string out = default_cost_model_path(), device = "cpu";
  int n_threads = 0;

  int run() const {
    make_parent(out);
    LoadOptions where;
    where.device = device == "cuda" ? Device::cuda : Device::cpu;
    where.n_threads = n_threads;
    const CostModel model = calibrate(shape.shape(), dtype_from_string(shape.kv_type), where);
    fmt::print("{}\n{:.3g} us a call, {:.4g} GB/s, {:.4g} GFLOP/s\n", model.machine, model.call_us,
               model.bytes_per_us / 1e3, model.flops_per_us / 1e3);
    save_cost_model(model, out);
    fmt::print("written to {}\n", out);
    return kDone;
  }
};

}  // namespace

Command add_plan(CLI::App& app) {
  auto t = std::make_shared<PlanTool>();
  app.add_option("file", t->file, "Trees, JSON")->required();
  app.add_option("--tree", t->tree, "Only the tree of this name");
  app.add_flag("--summary", t->summary, "Costs alone, no listing");
  app.add_flag("--deterministic", t->deterministic, "The plan of deterministic mode");
  app.add_option("--cost-model", t->cost_model, "Constants that `banyan calibrate` wrote")->capture_default_str();
  t->shape.add(app);
  app.footer(bench_tree_format() +
             "\n\nExample:\n  banyan plan examples/trees.json --tree few-shot --heads-q 9 --heads-kv 3 --head-dim 64");
  return [t] { return t->run(); };
}

namespace {

// "VmRSS", "VmHWM": memory of this process now and at most, from /proc; 0 where the system does not say.
std::int64_t process_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return 0;
}

// Loads the model as every command does and says what it took: time, and memory beyond what the process had before.
int inspect(const ModelFlags& flags) {
  using Clock = std::chrono::steady_clock;
  const std::int64_t before = process_bytes("VmRSS");
  const auto start = Clock::now();
  const auto model = flags.load();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::int64_t peak = process_bytes("VmHWM") - before;
  const auto weights = static_cast<double>(model->weight_bytes());
  std::cout << model->describe()
            << fmt::format("{:<14}{} bytes of memory at most while loading, {:.2f} x the weights\n", "peak", peak,
                           static_cast<double>(peak) / weights)
            << fmt::format("{:<14}{:.2f} s, {:.2f} GB/s of weights in memory\n", "loaded in", seconds,
                           weights / seconds / 1e9);
  return kDone;
}

}  // namespace

Command add_inspect(CLI::App& app) {
  auto flags = std::make_shared<ModelFlags>();
  app.add_option("model,-m,--model", flags->path, "Model: a Hugging Face directory or one .gguf")->required();
  app.add_option("--compute", flags->compute, "What weights are multiplied in")
      ->check(CLI::IsMember({"auto", "f32", "bf16"}));
  app.footer("Example:\n  banyan inspect model.gguf");
  return [flags] { return inspect(*flags); };
}

Command add_tokenize(CLI::App& app) {
  auto t = std::make_shared<Tokenize>();
  app.add_option("-m,--model", t->model, "Model, or tokenizer file")->required();
  t->text.add(app, "Text", "Text file");
  app.add_flag("--parse-special", t->parse_special, "Text that spells a special token becomes that token");
  app.add_flag("--no-bos", t->no_bos, "Never put BOS in front");
  app.footer("Example:\n  banyan tokenize -m model.gguf -p \"Hello world\"");
  return [t] { return t->run(); };
}

Command add_calibrate(CLI::App& app) {
  auto t = std::make_shared<Calibrate>();
  t->shape.add(app);
  app.add_option("--out", t->out, "Where the constants go, with what they were measured on; replaced if it is there")
      ->capture_default_str();
  app.add_option("--device", t->device, "What is measured")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("-t,--threads", t->n_threads, "Threads; 0: all cores")
      ->transform(whole_number(0, 1024))
      ->capture_default_str();
  app.footer(
      "Takes about two seconds, in which the machine should have nothing else to do. The constants belong to the\n"
      "shape that is measured: give it that of the plans.\n\n"
      "Example:\n  banyan calibrate --heads-q 9 --heads-kv 3 --head-dim 64");
  return [t] { return t->run(); };
}

}  // namespace banyan::cli
