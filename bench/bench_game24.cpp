// What search is worth: drivers on the game of 24 and on Countdown, with a model that can play them (models/arith24).
// One row per driver and seed: puzzles solved, tokens and seconds.
//
//   bench_game24 -m models/arith24/hf --csv 24.csv [--task game24] [--first 901 --last 1000] [--seeds 3] --out
//   NAME.json
//
// Tokens are those that were drawn, those of proposals and dropped thoughts too, and one for each value that the model
// was asked for (it is read from the likelihoods of its two words). Best-of-n and self-consistency are one run of the
// largest n; the rows of smaller n are of its first answers. Seconds are of all puzzles together.
//
// Tasks: game24 (moves and values by the model), game24-rule (all moves by rule, values by the model), game24-weak (as
// game24, for another checkpoint), countdown5 and countdown6 (200 problems made by rule; steps are sampled).
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "banyan/model.hpp"
#include "banyan/search/beam.hpp"
#include "banyan/search/best_of_n.hpp"
#include "banyan/search/mcts.hpp"
#include "banyan/search/proposers.hpp"
#include "banyan/search/revise.hpp"
#include "banyan/search/scorers.hpp"
#include "banyan/search/tasks/game24_problem.hpp"
#include "banyan/search/tot.hpp"
#include "result_file.hpp"

namespace {

using namespace banyan;
using namespace banyan::search;

struct Options {
  std::string model, csv, task = "game24", out, sharing = "tree", only;
  std::int64_t first = 901, last = 1000, seeds = 3, n_answers = 64, group = 50, n_kv_slots = 1 << 15;
  int n_threads = 0;
  bool no_seconds = false;
};

using Problems = std::vector<std::shared_ptr<const Game24Problem>>;

Problems problems_of(const Options& options) {
  Problems problems;
  if (options.task.starts_with("countdown")) {
    const std::int64_t n_numbers = options.task.back() - '0';
    const auto made = make_countdown(n_numbers, 200, 24);
    for (std::size_t i = 0; i < made.size(); ++i) {
      problems.push_back(
          std::make_shared<Game24Problem>(options.task + "/" + std::to_string(i + 1), made[i].numbers, made[i].target));
    }
    return problems;
  }
  const auto puzzles = read_game24_csv(options.csv);
  for (std::int64_t rank = options.first; rank <= options.last; ++rank) {
    problems.push_back(std::make_shared<Game24Problem>("game24/" + std::to_string(rank),
                                                       puzzles.at(static_cast<std::size_t>(rank - 1))));
  }
  return problems;
}

// One row of the result: a way to search, and what it found.
struct Row {
  std::string driver;
  std::int64_t width = 1, n = 1;
  std::int64_t n_solved = 0;
  double n_tokens = 0;
};

struct Contender {
  std::string name;
  std::int64_t width, n;
  Driver driver;
  enum class Kind { one_answer, best, vote } kind = Kind::one_answer;
  bool values = false;  // asks the model for values
};

SampleOptions whole_answers(double temperature) {
  SampleOptions sample{.max_tokens = 80};
  sample.sampler.temperature = static_cast<float>(temperature);
  return sample;
}

// Steps that are drawn one by one, as lines of a solution.
SampleOptions one_step(std::int64_t n) {
  SampleOptions step{.n = n, .max_tokens = 16, .include_stop = true};
  step.stop.emplace_back("\n");
  return step;
}

Proposer moves_for(const std::string& task) {
  if (task == "game24-rule") return rule_steps();
  if (task.starts_with("countdown")) return sample_steps(one_step(8));
  SampleOptions list{.n = 1, .max_tokens = 260};
  list.sampler.temperature = 0;
  return propose_steps(list);
}

class Contenders {
 public:
  explicit Contenders(const Options& options)
      : options_(options),
        n_levels_(options.task == "countdown6"   ? 5
                  : options.task == "countdown5" ? 4
                                                 : 3) {
    if (options.task != "game24-rule") add_whole_answers();
    asks_values_ = true;
    add_trees();
    if (options.task != "game24-rule") add_step_searches();
  }
  const std::vector<Contender>& list() const { return list_; }

 private:
  using Kind = Contender::Kind;
  void add(const std::string& name, std::int64_t width, std::int64_t n, Driver driver, Kind kind = Kind::one_answer) {
    const bool wanted =
        options_.only.empty() || ("," + options_.only + ",").find("," + name + ",") != std::string::npos;
    if (wanted) list_.push_back({name, width, n, std::move(driver), kind, asks_values_});
  }
  void add_whole_answers() {
    const auto n = options_.n_answers;
    add("chain-of-thought", 1, 1,
        [](Search& s) { return best_of_n(s, {.n = 1, .sample = whole_answers(0), .scorer = likelihood_sum()}); });
    const auto votes = [n](Search& s) { return self_consistency(s, {.n = n, .sample = whole_answers(1)}); };
    add("self-consistency", 1, n, votes, Kind::vote);
    for (const bool by_verifier : {false, true}) {
      const auto best = [n, by_verifier](Search& s) {
        return best_of_n(s,
                         {.n = n, .sample = whole_answers(1), .scorer = by_verifier ? verifier() : likelihood_sum()});
      };
      add(by_verifier ? "best-of-n-verifier" : "best-of-n-likelihood", 1, n, best, Kind::best);
    }
    for (const std::size_t width : {4, 16}) {
      add("beam", static_cast<std::int64_t>(width), 1,
          [width](Search& s) { return token_beam(s, {.width = width, .max_tokens = 80, .length_penalty = 0}); });
    }
  }
  void add_trees() {
    for (const std::size_t width : {1, 5}) {
      add("tot-bfs", static_cast<std::int64_t>(width), 1, [this, width](Search& s) {
        return tot_bfs(s, {.n_levels = n_levels_,
                           .width = width,
                           .generate = moves_for(options_.task),
                           .evaluate = value_likelihood()});
      });
    }
    add("tot-dfs", 3, 1, [this](Search& s) {
      return tot_dfs(s, {.n_levels = n_levels_,
                         .max_per_state = 3,
                         .max_visits = 40,
                         .threshold = 0.5,
                         .generate = moves_for(options_.task),
                         .evaluate = value_likelihood()});
    });
    add("mcts", 1, 32, [this](Search& s) {
      return mcts(s, {.n_iterations = 32,
                      .batch = 4,
                      .n_levels = n_levels_,
                      .expand = moves_for(options_.task),
                      .evaluate = value_likelihood()});
    });
  }
  void add_step_searches() {
    add("step-beam", 4, 4, [this](Search& s) {
      return step_beam(s, {.width = 4,
                           .branch = 4,
                           .n_levels = n_levels_,
                           .step = one_step(1),
                           .scorer = value_likelihood(),
                           .duplicates = Duplicates::merge});
    });
    add("dvts", 4, 4, [this](Search& s) {
      return dvts(
          s, {.n_subtrees = 4, .branch = 4, .n_levels = n_levels_, .step = one_step(1), .scorer = value_likelihood()});
    });
    add("ab-mcts", 1, 64, [](Search& s) {
      return ab_mcts(s, {.n_answers = 64,
                         .batch = 4,
                         .generate = sample_steps(one_step(1)),
                         .revises = false,
                         .scorer = value_likelihood()});
    });
  }

  const Options& options_;
  std::int64_t n_levels_;
  bool asks_values_ = false;
  std::vector<Contender> list_;
};

bool is_right(const Search& s, ThoughtId id) { return id > kRootThought && s.problem().verify(s.state(id)) == 1.0; }

double tokens_of_first(const Search& s, std::int64_t k) {
  const auto& answers = s.children(kRootThought);
  double n = 0;
  for (std::size_t i = 0; i < answers.size() && static_cast<std::int64_t>(i) < k; ++i) {
    n += static_cast<double>(s[answers[i]].tokens.size());
  }
  return n;
}

// What one finished search adds to the rows of its contender.
void count(const Contender& contender, const Search& s, std::map<std::int64_t, Row>& rows) {
  const auto row = [&](std::int64_t n) -> Row& {
    Row& r = rows[n];
    r.driver = contender.name;
    r.width = contender.width;
    r.n = n;
    return r;
  };
  if (contender.kind == Contender::Kind::one_answer) {
    Row& r = row(contender.n);
    const SearchResult result = s.result();
    const Counters counters = s.counters();
    r.n_solved += result.complete && is_right(s, result.best);
    r.n_tokens += static_cast<double>(counters.tokens_generated);
    if (contender.values) r.n_tokens += static_cast<double>(counters.n_scorer_calls);
    return;
  }
  const auto ks = powers_up_to(contender.n);
  std::vector<ThoughtId> chosen;
  if (contender.kind == Contender::Kind::best) chosen = best_of_first(s, ks);
  if (contender.kind == Contender::Kind::vote) {
    for (const Elected& elected : vote_of_first(s, ks, VoteRule::majority)) chosen.push_back(elected.thought);
  }
  for (std::size_t i = 0; i < ks.size(); ++i) {
    row(ks[i]).n_solved += is_right(s, chosen[i]);
    row(ks[i]).n_tokens += tokens_of_first(s, ks[i]);
  }
}

void run(const Contender& contender, const Options& options, const std::shared_ptr<const Model>& model,
         const Problems& problems, std::int64_t seed, bench::ResultFile& file) {
  using clock = std::chrono::steady_clock;
  std::map<std::int64_t, Row> rows;
  Session session;
  LaneOptions lane;
  if (options.sharing == "unshared") lane.sharing = PlanOptions::Sharing::unshared;
  session.add_lane(make_runner(model, {.n_kv_slots = options.n_kv_slots}), lane);
  const auto begin = clock::now();
  for (std::size_t from = 0; from < problems.size(); from += static_cast<std::size_t>(options.group)) {
    std::vector<std::unique_ptr<Search>> searches;
    for (std::size_t i = from; i < std::min(problems.size(), from + static_cast<std::size_t>(options.group)); ++i) {
      searches.push_back(
          std::make_unique<Search>(session, problems[i], SearchOptions{.seed = static_cast<std::uint64_t>(seed)}));
    }
    for (const SearchResult& result : run_searches(session, searches, contender.driver)) {
      if (result.error) throw *result.error;
    }
    for (const auto& search : searches) count(contender, *search, rows);
  }
  const double seconds = std::chrono::duration<double>(clock::now() - begin).count();
  const auto n_puzzles = static_cast<double>(problems.size());
  for (const auto& [n, r] : rows) {
    std::printf("%-12s %-22s width %lld n %3lld seed %lld: %4lld of %zu, %8.1f tokens a puzzle, %6.1f s for all\n",
                options.task.c_str(), r.driver.c_str(), static_cast<long long>(r.width), static_cast<long long>(n),
                static_cast<long long>(seed), static_cast<long long>(r.n_solved), problems.size(),
                r.n_tokens / n_puzzles, seconds);
    file.add_row({{"task", options.task},
                  {"driver", r.driver},
                  {"width", r.width},
                  {"n", n},
                  {"solved", r.n_solved},
                  {"n_puzzles", problems.size()},
                  {"tokens_per_puzzle", r.n_tokens / n_puzzles},
                  {"seconds", n == contender.n && !options.no_seconds ? seconds : std::nan("")},
                  {"seed", seed}});
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("What search is worth: drivers on the game of 24");
  app.add_option("-m,--model", options.model, "A model directory: models/arith24/hf")->required();
  app.add_option("--csv", options.csv, "The published puzzles, 24.csv");
  app.add_option("--task", options.task, "game24, game24-rule, game24-weak, countdown5 or countdown6")
      ->check(CLI::IsMember({"game24", "game24-rule", "game24-weak", "countdown5", "countdown6"}));
  app.add_option("--first", options.first, "First puzzle")->check(CLI::PositiveNumber);
  app.add_option("--last", options.last, "Last puzzle")->check(CLI::PositiveNumber);
  app.add_option("--drivers", options.only, "Only these, by name, with commas");
  app.add_option("--seeds", options.seeds, "Seeds 1 to this");
  app.add_option("--n", options.n_answers, "Answers of best-of-n and self-consistency");
  app.add_option("--group", options.group, "Puzzles side by side");
  app.add_option("--kv-slots", options.n_kv_slots, "Tokens that the KV pool holds");
  app.add_option("--sharing", options.sharing, "tree or unshared")->check(CLI::IsMember({"tree", "unshared"}));
  app.add_option("-t,--threads", options.n_threads, "0: all cores");
  app.add_flag("--no-seconds", options.no_seconds, "Keep no times: the machine does other work as well");
  app.add_option("--out", options.out, "Result file, NAME.json; its earlier rows stay");
  CLI11_PARSE(app, argc, argv);
  bench::ResultFile file("search-game24", argc, argv);
  const auto model = Model::load(options.model, {.n_threads = options.n_threads});
  const Problems problems = problems_of(options);
  const Contenders contenders(options);
  for (std::int64_t seed = 1; seed <= options.seeds; ++seed) {
    for (const Contender& contender : contenders.list()) run(contender, options, model, problems, seed, file);
  }
  if (!options.out.empty()) {
    file.prepend_rows_of(options.out);
    file.write(options.out);
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_game24: %s\n", e.what());
  return 1;
}
