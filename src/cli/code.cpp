// banyan code sample | eval | merge: APPS-style sampling and scoring, generation and evaluation apart.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <iostream>
#include <set>
#include <stop_token>

#include "banyan/code/evaluate.hpp"
#include "banyan/code/extract.hpp"
#include "banyan/code/problems.hpp"
#include "banyan/code/prompts.hpp"
#include "banyan/code/samples.hpp"
#include "banyan/code/score.hpp"
#include "banyan/read_file.hpp"
#include "banyan/search/two_level.hpp"
#include "banyan/tree_view.hpp"
#include "cli/common.hpp"
#include "cli/shard.hpp"

namespace banyan::cli {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// "out/samples.jsonl" + "run" -> "out/samples.run.json"
std::string beside(const std::string& path, const char* what) {
  return std::filesystem::path(path).replace_extension(std::string(".") + what + ".json").string();
}

struct ProblemFlags {
  std::string path, difficulty;
  std::int64_t limit = -1;

  void add(CLI::App& app) {
    app.add_option("--problems", path, "APPS directory, or HumanEval JSON Lines (plain or .gz)")->required();
    app.add_option("--difficulty", difficulty, "Only problems of this difficulty");
    app.add_option("--limit", limit, "Only the first so many problems")->transform(whole_number(1));
  }
  code::ProblemSet load(bool with_tests) const {
    auto set = code::load_problems(path, {.difficulty = difficulty, .limit = limit, .with_tests = with_tests});
    for (const Error& e : set.errors) log(fmt::format("left out: {}", e.what()));
    return set;
  }
};

// --- code sample ---------------------------------------------------------------------------------------------------

struct CodeSample {
  ModelFlags model;
  SampleFlags sample;
  ProblemFlags problems;
  OutFlags out;
  std::string style = "auto", few_shot, extract = "auto", shard = "1/1", tree;

  code::ProblemSet set;
  SampleOptions options;
  code::PromptStyle prompt_style = code::PromptStyle::apps;
  std::string model_name;
  std::atomic<std::int64_t> n_failed = 0, n_done = 0;
  std::vector<search::TwoLevelResult> drawn;  // with --tree: keeps its nodes
  Clock::time_point begin;

  int run();
  void take_recorded_seed();
  void keep_shard(const Shard& own);
  search::TwoLevelOptions make_options() const;
  std::vector<search::TwoLevelProblem> make_problems(const Model& loaded, std::string& root, std::int64_t& n_total);
  void draw_all(const ModelGroup& group, const std::vector<search::TwoLevelProblem>& list, const std::string& root,
                std::int64_t n_total, code::JsonLinesWriter& writer);
  Task<> draw(Session& session, std::vector<search::TwoLevelProblem> part, search::TwoLevelOptions two_level);
  void write(code::JsonLinesWriter& writer, std::size_t problem, const Thought& thought);
  void show_progress(const LaneStats& stats, std::int64_t n_total) const;
  void write_run_file(const LaneStats& stats, double load_s) const;
};

// A run that drew its seed goes on with that seed, so that --resume draws what the run would have drawn.
void CodeSample::take_recorded_seed() {
  if (!out.resume || sample.seed != -1 || !std::filesystem::exists(out.path)) return;
  for (const auto& record : code::read_samples(out.path).samples) {
    if (!record.seed || *record.seed > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) continue;
    sample.seed = static_cast<std::int64_t>(*record.seed);
    sample.seed_note = fmt::format("seed {}, as in {}", sample.seed, out.path);
    return;
  }
}

// Keeps every n-th problem, from the i-th on, of "i/n".
void CodeSample::keep_shard(const Shard& own) {
  std::vector<code::CodeProblem> mine;
  for (std::size_t p = own.index - 1; p < set.problems.size(); p += own.n) mine.push_back(std::move(set.problems[p]));
  set.problems = std::move(mine);
}

std::vector<search::TwoLevelProblem> CodeSample::make_problems(const Model& loaded, std::string& root,
                                                               std::int64_t& n_total) {
  const auto shots = few_shot.empty() ? std::vector<code::FewShot>{} : code::load_few_shot(few_shot);
  const std::string chat_template =
      prompt_style == code::PromptStyle::chat ? chat_template_name(loaded.tokenizer()->spec().chat_template) : "";
  const auto done = out.resume ? code::done_samples(out.path) : std::set<code::SampleKey>{};
  std::vector<search::TwoLevelProblem> list;
  for (const auto& p : set.problems) {
    const auto prompt = code::make_prompt(prompt_style, shots, p, chat_template);
    root = prompt.root;
    search::TwoLevelProblem problem{p.task_id, prompt.problem, {}};
    for (std::int64_t k = 0; k < sample.n; ++k) {
      if (!done.contains({p.task_id, k})) problem.samples.push_back(static_cast<std::uint64_t>(k));
    }
    n_total += static_cast<std::int64_t>(problem.samples.size());
    list.push_back(std::move(problem));
  }
  if (!done.empty()) log(fmt::format("{} samples are in {} already", done.size(), out.path));
  return list;
}

void CodeSample::write(code::JsonLinesWriter& writer, std::size_t p, const Thought& t) {
  ++n_done;
  if (t.error) {
    ++n_failed;
    log(fmt::format("{}, sample {}: {}", set.problems[p].task_id, t.sample, t.error->what()));
    return;  // not in the file: a resumed run tries it again
  }
  code::SampleRecord r;
  r.task_id = set.problems[p].task_id;
  r.sample_id = static_cast<std::int64_t>(t.sample);
  r.completion = code::extract_program(t.text, code::extract_mode(extract), set.problems[p].kind);
  r.text = t.text;
  r.n_tokens = static_cast<std::int64_t>(t.tokens.size());
  r.finish_reason = to_string(t.finish);
  r.cumulative_logprob = t.cumulative_logprob;
  r.seed = options.seed;
  r.model = model_name;
  r.version = version();
  r.extra_json = nlohmann::ordered_json{{"sampler", to_json(options.sampler)}}.dump();
  writer.append(code::to_json_line(r));
}

void CodeSample::show_progress(const LaneStats& s, std::int64_t n_total) const {
  const double seconds = seconds_since(begin);
  const double left = n_done > 0 ? seconds / static_cast<double>(n_done) * static_cast<double>(n_total - n_done) : 0;
  progress(fmt::format(
      "samples {}/{} · {:.0f} tokens/s · {} decoding · KV {:.0f} % · ETA {:.0f} s", n_done.load(), n_total,
      static_cast<double>(s.n_generated) / seconds, s.n_active,
      100.0 * static_cast<double>(s.kv_slots_used) / static_cast<double>(std::max<std::int64_t>(1, s.kv_slots_total)),
      left));
}

// What the run took, beside the samples, for the evaluation's summary; a resumed run adds to what stands there.
void CodeSample::write_run_file(const LaneStats& s, double load_s) const {
  if (!std::filesystem::is_regular_file(out.path)) return;
  const std::string path = beside(out.path, "run");
  nlohmann::ordered_json now{{"n_generated", s.n_generated},
                             {"n_prefill_computed", s.n_prefill_computed},
                             {"n_prefill_saved", s.n_prefill_saved},
                             {"n_recomputed", s.n_recomputed},
                             {"attention_bytes_shared", s.attention_bytes_shared},
                             {"attention_bytes_unshared", s.attention_bytes_unshared},
                             {"load_s", load_s},
                             {"sample_wall_s", seconds_since(begin)},
                             {"gather_s", s.gather_ms / 1e3},
                             {"plan_s", s.plan_ms / 1e3},
                             {"forward_s", s.forward_ms / 1e3},
                             {"sampler_s", s.sample_ms / 1e3},
                             {"grow_s", s.grow_ms / 1e3}};
  if (out.resume && std::filesystem::exists(path)) {
    const auto before = nlohmann::json::parse(read_file(path), nullptr, false);
    for (auto& [key, value] : now.items()) {
      if (before.is_object() && before.contains(key) && before[key].is_number()) {
        if (value.is_number_float()) {
          value = value.get<double>() + before[key].get<double>();
        } else {
          value = value.get<std::int64_t>() + before[key].get<std::int64_t>();
        }
      }
    }
  }
  code::write_file_atomically(path, now.dump(1) + "\n");
}

search::TwoLevelOptions CodeSample::make_options() const {
  search::TwoLevelOptions o;
  o.sample = options;
  o.sample.n_logprobs = -1;
  for (const auto& stop : code::stop_strings(prompt_style)) o.sample.stop.push_back(stop);
  o.parse_special = prompt_style == code::PromptStyle::chat;
  o.keep_nodes = !tree.empty();
  return o;
}

Task<> CodeSample::draw(Session& session, std::vector<search::TwoLevelProblem> part,
                        search::TwoLevelOptions two_level) {
  auto result = co_await search::two_level(session, std::move(part), std::move(two_level));
  if (!tree.empty()) drawn.push_back(std::move(result));  // of one session
}

// The node of a problem; an empty one where its text cannot be stored, for the search to say so of every sample.
Node store(Session& session, const Node& root, const std::string& text, bool parse_special) {
  try {
    return root ? session.extend(root, text, parse_special) : session.insert(text, {}, parse_special);
  } catch (const Error&) {
    return {};
  }
}

void CodeSample::draw_all(const ModelGroup& group, const std::vector<search::TwoLevelProblem>& list,
                          const std::string& root, std::int64_t n_total, code::JsonLinesWriter& writer) {
  SessionGroup& sessions = *group.sessions;
  const auto two_level = make_options();
  // What a session keeps stored between two parts.
  struct Stored {
    Node root, problem;
    std::size_t item = 0;  // whose node `problem` is
  };
  std::vector<Stored> stored(sessions.size());
  GroupWork work;
  for (const auto& problem : list) work.n_samples.push_back(std::ssize(problem.samples));
  work.n_held = model.max_batch;
  work.on_progress = [&](const LaneStats& stats) {
    show_progress(stats, n_total);
    return !interrupted();
  };
  work.start = [&](std::size_t member, Session& session, WorkPart part) {
    const auto& whole = list[part.item];
    auto mine = two_level;
    mine.on_sample = [this, &sessions, &writer, member, p = part.item](std::size_t, const Thought& t) {
      if (t.error && t.error->code() == ErrorCode::device) return sessions.retire(member, *t.error);
      write(writer, p, t);
    };
    Stored& s = stored[member];
    if (!root.empty() && !s.root) s.root = session.insert(root, {}, mine.parse_special);
    if (s.item != part.item || !s.problem) s.problem = store(session, s.root, whole.text, mine.parse_special);
    s.item = part.item;
    mine.below = s.root;
    search::TwoLevelProblem problem{whole.id, whole.text, {}, s.problem};
    problem.samples.assign(whole.samples.begin() + part.begin, whole.samples.begin() + part.end);
    return draw(session, {std::move(problem)}, std::move(mine));
  };
  begin = Clock::now();
  sessions.run(work);
  end_progress();
}

int CodeSample::run() {
  catch_interrupts();
  check_tree_path(tree);
  if (!tree.empty()) model.check_one_forest("--tree");
  const Shard own = parse_shard(shard, [](const char* name) { return std::getenv(name); });
  if (shard == "auto") {
    out.path = shard_path(out.path, own);
    log(fmt::format("shard {}/{}, to {}", own.index, own.n, out.path));
  }
  out.claim();
  take_recorded_seed();
  options = sample.options();
  code::extract_mode(extract);
  set = problems.load(/*with_tests=*/false);
  keep_shard(own);
  const bool all_humaneval = !set.problems.empty() && set.problems[0].kind == code::ProblemKind::humaneval;
  prompt_style = code::prompt_style(style != "auto" ? style : all_humaneval ? "humaneval" : "apps");
  const auto load_begin = Clock::now();
  const ModelGroup group = model.open([this](const Model& m) {
    const std::int64_t longest = options.max_tokens < 0 ? m.config().max_positions : options.max_tokens;
    return std::max<std::int64_t>(m.config().max_positions, 4096) + (longest + 1024) * model.max_batch;
  });
  const Model& loaded = *group.models[0];
  if (!loaded.tokenizer()) throw Error(ErrorCode::bad_file, model.path, "holds no tokenizer");
  const double load_s = seconds_since(load_begin);
  model_name = loaded.config().name;

  std::string root;
  std::int64_t n_total = 0;
  const auto list = make_problems(loaded, root, n_total);
  code::JsonLinesWriter writer(out.path, out.resume);
  sample.log_seed();
  draw_all(group, list, root, n_total, writer);
  const LaneStats s = group.sessions->stats();
  write_run_file(s, load_s);
  const double seconds = seconds_since(begin);
  log(fmt::format(
      "{} samples of {} problems in {:.1f} s · {} tokens, {:.0f}/s · prompt tokens computed {}, saved {} · "
      "attention read {:.3g} GB, unshared it would be {:.3g} GB",
      n_done.load(), set.problems.size(), seconds, s.n_generated, static_cast<double>(s.n_generated) / seconds,
      s.n_prefill_computed, s.n_prefill_saved, s.attention_bytes_shared / 1e9, s.attention_bytes_unshared / 1e9));
  if (interrupted()) {
    log("interrupted: what is complete is written; --resume goes on");
    return kInterrupted;
  }
  const bool any_retired = group.report_retired();
  if (!tree.empty()) write_tree_view(group.sessions->session(0).tree(), loaded.tokenizer().get(), tree);
  return any_retired || n_failed > 0 || !set.errors.empty() ? kFailedItems : kDone;
}

// --- code eval -----------------------------------------------------------------------------------------------------

struct CodeEval {
  ProblemFlags problems;
  std::string samples;
  OutFlags out;
  std::vector<std::int64_t> ks{1, 10, 100}, ns;
  int n_workers = 0;
  std::int64_t time_ms = 0, memory_mb = 1024;

  int run();
  void print(const std::vector<code::ScoreGroup>& groups) const;
};

std::string percent(const std::optional<double>& x) { return x ? fmt::format("{:.1f} %", 100 * *x) : "n/a"; }

void CodeEval::print(const std::vector<code::ScoreGroup>& groups) const {
  fmt::print("{:<28} {:>8} {:>8} {:>7}", "", "problems", "samples", "solved");
  for (const auto k : ks) fmt::print(" {:>9}", fmt::format("pass@{}", k));
  for (const auto n : ns) fmt::print(" {:>9}", fmt::format("{}@k", n));
  fmt::print(" {:>9} {:>9}\n", "strict", "tests");
  for (const auto& g : groups) {
    fmt::print("{:<28} {:>8} {:>8} {:>7}", g.name, g.n_problems, g.n_samples, g.n_solved);
    for (const auto& p : g.pass_at_k) fmt::print(" {:>9}", percent(p.value));
    for (const auto n : ns) {
      // Of the ks that were asked for, the largest at which there is a value.
      std::optional<double> value;
      for (const auto& a : g.n_at_k) {
        if (a.n == n && a.value) value = a.value;
      }
      fmt::print(" {:>9}", percent(value));
    }
    fmt::print(" {:>9} {:>9}\n", percent(g.strict_accuracy), percent(g.test_case_average));
  }
}

int CodeEval::run() {
  catch_interrupts();
  out.claim();
  const auto set = problems.load(/*with_tests=*/true);
  auto file = code::read_samples(samples);
  for (const Error& e : file.errors) log(fmt::format("left out: {}", e.what()));
  if (file.samples.empty()) throw Error(ErrorCode::bad_file, samples, "holds no sample");
  const code::Sandbox sandbox;
  log(sandbox.description());
  code::EvalOptions options;
  options.out = out.path;
  options.resume = out.resume;
  options.n_workers = n_workers;
  options.time_ms = time_ms;
  options.limits.memory_bytes = memory_mb << 20;
  std::stop_source stop;
  options.stop = stop.get_token();
  const auto report = code::evaluate(sandbox, set.problems, file.samples, options, [&](const code::EvalProgress& p) {
    if (interrupted()) stop.request_stop();
    progress(fmt::format("evaluated {}/{} · {} right · {:.0f} s", p.n_done, p.n_total, p.n_accepted, p.seconds));
  });
  end_progress();
  for (const Error& e : report.errors) log(fmt::format("left out: {}", e.what()));

  const auto groups = code::score(report.results, set.problems, ks, ns);
  print(groups);
  nlohmann::ordered_json summary = nlohmann::ordered_json::parse(code::to_json(groups));
  summary["comparators"] = {{"headline", "apps"}, {"second", "strict"}};
  summary["eval_wall_s"] = report.seconds;
  summary["n_programs_run"] = report.n_programs_run;
  if (const std::string run_file = beside(samples, "run"); std::filesystem::exists(run_file)) {
    summary["run"] = nlohmann::ordered_json::parse(read_file(run_file), nullptr, false);
    if (const auto& r = summary["run"]; r.is_object()) {
      fmt::print(
          "tokens generated {} in {:.1f} s · prompt tokens computed {}, saved by sharing {} · attention bytes {:.3g} "
          "shared, {:.3g} unshared\n",
          r.value("n_generated", std::int64_t{0}), r.value("sample_wall_s", 0.0),
          r.value("n_prefill_computed", std::int64_t{0}), r.value("n_prefill_saved", std::int64_t{0}),
          r.value("attention_bytes_shared", 0.0), r.value("attention_bytes_unshared", 0.0));
    }
  }
  if (std::filesystem::is_regular_file(out.path))
    code::write_file_atomically(beside(out.path, "summary"), summary.dump(1) + "\n");
  if (!report.complete) return kInterrupted;
  return file.errors.empty() && report.errors.empty() && set.errors.empty() ? kDone : kFailedItems;
}

}  // namespace

Command add_code_sample(CLI::App& app) {
  auto c = std::make_shared<CodeSample>();
  c->model.add(app);
  c->sample.sampler.temperature = 0.8;
  c->sample.sampler.top_p = 0.95;
  c->sample.add(app, 512);
  c->problems.add(app);
  c->out
      .add(app, "New file for the samples, JSON Lines; NAME.run.json beside it gets what the run took",
           OutFlags::Resume::yes)
      ->required();
  app.add_option("--prompt-style", c->style, "auto: humaneval for such files, else apps")
      ->check(CLI::IsMember({"auto", "apps", "humaneval", "chat"}))
      ->capture_default_str();
  app.add_option("--few-shot", c->few_shot, "Examples in front of every problem (JSON)");
  app.add_option("--extract", c->extract, "How the program is taken out of the text")
      ->check(CLI::IsMember({"auto", "raw", "fence"}))
      ->capture_default_str();
  app.add_option("--shard", c->shard,
                 "i/n: only every n-th problem, from the i-th on. auto: by what Slurm or Open MPI say; --out then has "
                 "i-of-n in its name")
      ->capture_default_str();
  app.add_option("--tree", c->tree, "Draw the tree: NAME.html, NAME.dot or NAME.json; replaced if it is there");
  app.footer(
      "Example:\n  banyan code sample -m model.gguf --problems examples/apps --few-shot examples/apps/few_shot.json "
      "\\\n"
      "    --n 64 --seed 1 --out samples.jsonl");
  return [c] { return c->run(); };
}

Command add_code_eval(CLI::App& app) {
  auto c = std::make_shared<CodeEval>();
  app.add_option("samples", c->samples, "Samples, JSON Lines with task_id and completion")->required();
  c->problems.add(app);
  app.add_option("-k", c->ks, "Report pass@k for these k")
      ->delimiter(',')
      ->transform(whole_number(1))
      ->capture_default_str();
  app.add_option("--n-at-k", c->ns, "Report n@k for these n: hand in n programs picked by public tests and outputs")
      ->delimiter(',')
      ->transform(whole_number(1));
  c->out.add(app, "New file for the results, JSON Lines; NAME.summary.json beside it gets the scores",
             OutFlags::Resume::yes);
  app.add_option("--workers", c->n_workers, "Programs run at the same time; 0: as many as processors")
      ->transform(whole_number(0, 4096));
  app.add_option("--time-limit", c->time_ms, "Of one test, ms; 0: as published (3000 HumanEval, 4000 APPS)")
      ->transform(whole_number(0, 3600000));
  app.add_option("--memory-limit", c->memory_mb, "Of a program, MiB")
      ->transform(whole_number(16, 1 << 20))
      ->capture_default_str();
  app.footer("Example:\n  banyan code eval samples.jsonl --problems examples/apps -k 1,8,64 --out results.jsonl");
  return [c] { return c->run(); };
}

Command add_code_merge(CLI::App& app) {
  auto inputs = std::make_shared<std::vector<std::string>>();
  auto out = std::make_shared<OutFlags>();
  app.add_option("inputs", *inputs, "Sample files of a run with --shard")->required();
  out->add(app, "New file for all of them", OutFlags::Resume::no)->required();
  app.footer("Example:\n  banyan code merge shard1.jsonl shard2.jsonl --out samples.jsonl");
  return [inputs, out] {
    out->claim();
    const auto report = code::merge_samples(*inputs, out->path);
    log(fmt::format("{} samples, {} duplicates left out", report.n_samples, report.n_duplicates));
    return int{kDone};
  };
}

}  // namespace banyan::cli
