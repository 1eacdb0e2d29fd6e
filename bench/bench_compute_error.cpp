// What fewer bits cost: a model computed in bf16, or with KV in 16 or 8 bits, against itself in f32, on text.
//
// The text is cut into pieces of n_context tokens, each a sequence by itself. At every position both ways give a
// distribution of the next token over the whole vocabulary, and a row of the result says how far they are apart:
//     kl_*              sum_v p(v) ln(p(v) / q(v)), p in f32, q the other way; in nats, over positions
//     top1_agreement    share of positions where both have the same likeliest token
//     perplexity        exp(mean -ln q(next token of the text)); of f32 in perplexity_f32
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "banyan/model.hpp"
#include "banyan/plan.hpp"
#include "banyan/read_file.hpp"
#include "banyan/runner.hpp"
#include "result_file.hpp"

namespace {

using namespace banyan;

constexpr std::int64_t kChunk = 64;  // rows of a step: their logits of both ways are kept side by side

struct Options {
  std::string model, name, out;
  std::vector<std::string> texts;
  std::int64_t n_tokens = 5000, n_context = 512;
  int n_threads = 0;
};

// One way of computing, fed with pieces of text.
class Way {
 public:
  Way(std::shared_ptr<const Model> model, DType kv_type, std::int64_t n_context)
      : pool_(n_context + 2 * kKvBlock),
        runner_(make_runner(std::move(model), {.kv_type = kv_type, .n_kv_slots = pool_.n_slots()})) {
    for (std::int64_t i = 0; i < kChunk; ++i) {
      logits_.emplace_back();
      hooks_.emplace_back([this, i](std::span<const TokenId>, std::span<float> row) {
        logits_[static_cast<std::size_t>(i)].assign(row.begin(), row.end());
      });
    }
  }

  void begin(const std::vector<TokenId>& piece) {
    if (root_) tree_.prune(*root_);
    root_ = tree_.add_root(piece);
  }

  // Computes tokens [begin, end) of the piece; logits(i) is then of token begin + i.
  void compute(std::int64_t begin, std::int64_t end) {
    if (!tree_.allocate_kv(*root_, end)) throw Error(ErrorCode::never_fits, "KV", "pool is too small");
    const StepSpan span{.node = *root_, .begin = begin, .end = end, .n_logits = end - begin, .write_kv = true};
    planner_.build(tree_, {&span, 1}, plan_);
    std::vector<StepQuery> queries(static_cast<std::size_t>(end - begin));
    for (std::size_t i = 0; i < queries.size(); ++i) {
      queries[i].kind = StepQuery::Kind::top;
      queries[i].n_top = 1;
      queries[i].logit_index = static_cast<std::int32_t>(i);
      queries[i].hook = &hooks_[i];
      queries[i].node = *root_;
      queries[i].n_node_tokens = begin + static_cast<std::int64_t>(i) + 1;
    }
    std::vector<StepAnswer> answers(queries.size());
    runner_->harvest(runner_->submit(tree_, plan_, queries), answers);
    for (const StepAnswer& answer : answers) {
      if (answer.error) throw *answer.error;
    }
    tree_.commit_kv(*root_, end);
  }
  std::span<const float> logits(std::int64_t i) const { return logits_[static_cast<std::size_t>(i)]; }

 private:
  KvPool pool_;
  SequenceTree tree_{&pool_};
  std::unique_ptr<StepRunner> runner_;
  Planner planner_;
  Plan plan_;
  std::optional<NodeId> root_;
  std::vector<std::vector<float>> logits_;  // [kChunk, vocab_size]
  std::vector<LogitHook> hooks_;
};

double log_sum(std::span<const float> logits) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
  return top + std::log(sum);
}

struct Comparison {
  std::vector<double> kl;
  std::int64_t n_agree = 0, n_next = 0;
  double loss = 0, loss_f32 = 0;  // sums of -ln of the text's own next tokens

  void add(std::span<const float> f32, std::span<const float> other, TokenId next) {
    const double sum_p = log_sum(f32), sum_q = log_sum(other);
    double kl_row = 0;
    for (std::size_t v = 0; v < f32.size(); ++v) {
      const double log_p = f32[v] - sum_p, log_q = other[v] - sum_q;
      kl_row += std::exp(log_p) * (log_p - log_q);
    }
    kl.push_back(kl_row);
    const auto best = [](std::span<const float> x) { return std::ranges::max_element(x) - x.begin(); };
    n_agree += best(f32) == best(other) ? 1 : 0;
    if (next == kNoToken) return;
    ++n_next;
    loss_f32 += sum_p - f32[static_cast<std::size_t>(next)];
    loss += sum_q - other[static_cast<std::size_t>(next)];
  }

  double mean() const {
    double sum = 0;
    for (const double x : kl) sum += x;
    return sum / static_cast<double>(kl.size());
  }
  double quantile(double q) {
    std::ranges::sort(kl);
    return kl[static_cast<std::size_t>(q * static_cast<double>(kl.size() - 1))];
  }
};

std::vector<std::vector<TokenId>> pieces_of(const Options& o, const Model& model) {
  if (!model.tokenizer()) throw Error(ErrorCode::usage, o.model, "has no tokenizer");
  std::string text;
  for (const std::string& path : o.texts) text += read_file(path);
  const auto ids = model.tokenizer()->encode(text);
  if (static_cast<std::int64_t>(ids.size()) < o.n_tokens) {
    throw Error(ErrorCode::usage, "--n-tokens",
                std::to_string(o.n_tokens) + " are wanted, the text has " + std::to_string(ids.size()));
  }
  std::vector<std::vector<TokenId>> pieces;
  for (std::int64_t begin = 0; begin < o.n_tokens; begin += o.n_context) {
    pieces.emplace_back(ids.begin() + begin, ids.begin() + std::min(begin + o.n_context, o.n_tokens));
  }
  return pieces;
}

void add_options(CLI::App& app, Options& o) {
  app.add_option("-m,--model", o.model, "Checkpoint: a .gguf or a Hugging Face directory")->required();
  app.add_option("--name", o.name, "Model's name in the rows; default: as the file says");
  app.add_option("texts", o.texts, "Text files, one after the other")->required()->check(CLI::ExistingFile);
  app.add_option("--n-tokens", o.n_tokens, "How many")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--n-context", o.n_context, "Tokens of a piece")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("-t,--threads", o.n_threads, "0: all cores")->capture_default_str();
  app.add_option("--out", o.out, "Result file, NAME.json");
}

}  // namespace

int main(int argc, char** argv) try {
  CLI::App app("What bf16 and KV in fewer bits cost against f32, on text");
  Options o;
  add_options(app, o);
  CLI11_PARSE(app, argc, argv);
  bench::ResultFile file("compute_error", argc, argv);

  struct Contender {
    const char *compute, *kv_type;
    std::unique_ptr<Way> way;
    Comparison result{};
  };
  const auto model = Model::load(o.model, {.compute = Compute::f32, .n_threads = o.n_threads});
  const auto in_bf16 = Model::load(o.model, {.compute = Compute::bf16, .n_threads = o.n_threads});
  Way f32(model, DType::f32, o.n_context);
  std::vector<Contender> contenders;
  contenders.push_back({"bf16", "f32", std::make_unique<Way>(in_bf16, DType::f32, o.n_context)});
  contenders.push_back({"f32", "bf16", std::make_unique<Way>(model, DType::bf16, o.n_context)});
  contenders.push_back({"f32", "f16", std::make_unique<Way>(model, DType::f16, o.n_context)});
  contenders.push_back({"f32", "f8_e4m3", std::make_unique<Way>(model, DType::f8_e4m3, o.n_context)});
  contenders.push_back({"bf16", "bf16", std::make_unique<Way>(in_bf16, DType::bf16, o.n_context)});
  contenders.push_back({"bf16", "f8_e4m3", std::make_unique<Way>(in_bf16, DType::f8_e4m3, o.n_context)});

  for (const auto& piece : pieces_of(o, *model)) {
    f32.begin(piece);
    for (Contender& c : contenders) c.way->begin(piece);
    const auto n = static_cast<std::int64_t>(piece.size());
    for (std::int64_t begin = 0; begin < n; begin += kChunk) {
      const std::int64_t end = std::min(begin + kChunk, n);
      f32.compute(begin, end);
      for (Contender& c : contenders) {
        c.way->compute(begin, end);
        for (std::int64_t i = begin; i < end; ++i) {
          const TokenId next = i + 1 < n ? piece[static_cast<std::size_t>(i + 1)] : kNoToken;
          c.result.add(f32.logits(i - begin), c.way->logits(i - begin), next);
        }
      }
    }
  }

  std::printf("%-8s %-8s %10s %10s %10s %10s %8s %11s %11s\n", "compute", "kv", "KL mean", "median", "p99", "max",
              "top-1", "perplexity", "in f32");
  for (Contender& c : contenders) {
    Comparison& r = c.result;
    const auto n = static_cast<double>(r.kl.size());
    const double mean = r.mean(), median = r.quantile(0.5), p99 = r.quantile(0.99), most = r.quantile(1.0);
    const double agreement = static_cast<double>(r.n_agree) / n;
    const double perplexity = std::exp(r.loss / static_cast<double>(r.n_next));
    const double perplexity_f32 = std::exp(r.loss_f32 / static_cast<double>(r.n_next));
    std::printf("%-8s %-8s %10.3g %10.3g %10.3g %10.3g %7.2f%% %11.5f %11.5f\n", c.compute, c.kv_type, mean, median,
                p99, most, 100 * agreement, perplexity, perplexity_f32);
    file.add_row({{"model", o.name.empty() ? model->config().name : o.name},
                  {"compute", c.compute},
                  {"kv_type", c.kv_type},
                  {"n_tokens", static_cast<std::int64_t>(r.kl.size())},
                  {"n_context", o.n_context},
                  {"kl_mean", mean},
                  {"kl_median", median},
                  {"kl_p99", p99},
                  {"kl_max", most},
                  {"top1_agreement", agreement},
                  {"perplexity", perplexity},
                  {"perplexity_f32", perplexity_f32}});
  }
  if (!o.out.empty()) file.write(o.out);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_compute_error: %s\n", e.what());
  return 1;
}
