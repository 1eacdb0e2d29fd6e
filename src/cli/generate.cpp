// banyan generate: prompts in, samples out as JSON Lines (or as streamed text on a terminal).
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <unistd.h>

#include "banyan/tree_view.hpp"
#include "cli/common.hpp"

namespace banyan::cli {
namespace {

struct Prompt {
  nlohmann::json id;  // from the file, else the index
  std::string text;
};

struct Generate {
  ModelFlags model;
  SampleFlags sample;
  std::string prompt, file, out, tree;
  std::int64_t n_logprobs = -1;
  bool chat = false, parse_special = false;

  std::int64_t n_failed = 0;
  std::ofstream out_file;
  SampleOptions options;

  int run();
  std::vector<Prompt> read_prompts();
  std::vector<Prompt> read_prompt_lines(const std::string& text);
  std::string as_turn(const Tokenizer& tokenizer, const std::string& text) const;
  Task<std::vector<Thought>> one(Session& session, const Prompt& prompt, std::uint64_t stream);
  void write(const Prompt& prompt, const std::vector<TokenId>& prompt_ids, const std::string& model_name,
             const Thought& thought);
  void write_error(const Prompt& prompt, const std::string& message);
  void emit(const nlohmann::ordered_json& record);
  bool streams() const { return out.empty() && isatty(STDOUT_FILENO) != 0 && options.n == 1; }
};

std::vector<Prompt> Generate::read_prompt_lines(const std::string& text) {
  std::vector<Prompt> prompts;
  std::istringstream lines(text);
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto j = nlohmann::json::parse(line, nullptr, false);
    Prompt p{static_cast<std::int64_t>(prompts.size()), ""};
    if (j.is_discarded() || !j.is_object() || !j.contains("prompt") || !j["prompt"].is_string()) {
      log(fmt::format("{}:{}: not a JSON object with a text under \"prompt\"; left out", file, number));
      ++n_failed;
      continue;
    }
    p.text = j["prompt"].get<std::string>();
    if (j.contains("id")) p.id = j["id"];
    prompts.push_back(std::move(p));
  }
  return prompts;
}

std::vector<Prompt> Generate::read_prompts() {
  if (prompt.empty() == file.empty() && !(prompt.empty() && file.empty())) {
    throw Error(ErrorCode::usage, "-p and -f", "give one of them");
  }
  if (file.empty()) return {{0, prompt}};
  const std::string text = read_file(file);
  const bool is_lines = file.ends_with(".jsonl") || file.ends_with(".json") || (!text.empty() && text[0] == '{');
  auto prompts = is_lines ? read_prompt_lines(text) : std::vector<Prompt>{{0, text}};
  if (prompts.empty()) throw Error(ErrorCode::bad_file, file, "holds no prompt");
  return prompts;
}

std::string Generate::as_turn(const Tokenizer& tokenizer, const std::string& text) const {
  const ChatTurn turn{"user", text};
  return render_chat(chat_template_name(tokenizer.spec().chat_template), {&turn, 1});
}

void Generate::emit(const nlohmann::ordered_json& record) {
  const std::string line = record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::ostream& to = out.empty() ? std::cout : out_file;
  to << line << '\n' << std::flush;
  if (!to) throw Error(ErrorCode::device, out.empty() ? "stdout" : out, "cannot be written");
}

void Generate::write(const Prompt& p, const std::vector<TokenId>& prompt_ids, const std::string& model_name,
                     const Thought& t) {
  if (t.error) ++n_failed;
  if (streams()) {
    std::cout << '\n';
    if (t.error) log(t.error->what());
    return;
  }
  nlohmann::ordered_json j;
  j["id"] = p.id;
  j["sample_id"] = t.sample;
  j["prompt_token_ids"] = prompt_ids;
  j["token_ids"] = t.tokens;
  j["completion"] = t.text;
  j["finish_reason"] = to_string(t.finish);
  j["cumulative_logprob"] = t.cumulative_logprob;
  if (n_logprobs > 0) {
    auto& all = j["logprobs"] = nlohmann::ordered_json::array();
    for (const auto& top : t.top) {
      auto position = nlohmann::ordered_json::array();
      for (const auto& [id, logprob] : top) position.push_back({id, logprob});
      all.push_back(std::move(position));
    }
  }
  if (t.error) j["error"] = t.error->what();
  j["seed"] = options.seed;
  j["sampler"] = to_json(options.sampler);
  j["model"] = model_name;
  j["version"] = version();
  emit(j);
}

void Generate::write_error(const Prompt& p, const std::string& message) {
  ++n_failed;
  log(fmt::format("prompt {}: {}", p.id.dump(), message));
  if (!streams()) emit({{"id", p.id}, {"finish_reason", "error"}, {"error", message}});
}

Task<std::vector<Thought>> Generate::one(Session& session, const Prompt& p, std::uint64_t stream) {
  const Tokenizer& tokenizer = *session.runner().tokenizer();
  const auto text = chat ? as_turn(tokenizer, p.text) : p.text;
  // The template spells its own special tokens.
  const auto ids = tokenizer.encode(text, {.add_bos = true, .parse_special = parse_special || chat});
  SampleOptions mine = options;
  mine.stream = stream;
  const std::string model_name = session.runner().name();
  mine.on_done = [this, &p, ids, model_name](std::size_t, const Thought& t) { write(p, ids, model_name, t); };
  if (streams()) {
    mine.on_text = [](std::size_t, std::uint64_t, std::string_view piece) { std::cout << piece << std::flush; };
  }
  const Node node = session.insert(ids);
  co_return co_await session.sample(node, mine);
}

int Generate::run() {
  options = sample.options();
  options.n_logprobs = n_logprobs > 0 ? n_logprobs : 0;
  const auto prompts = read_prompts();
  const auto loaded = model.load();
  if (!loaded->tokenizer()) throw Error(ErrorCode::bad_file, model.path, "holds no tokenizer");
  if (chat) as_turn(*loaded->tokenizer(), "");  // refuses an unknown template before anything runs
  if (!out.empty()) {
    out_file.open(out, std::ios::binary | std::ios::trunc);
    if (!out_file) throw Error(ErrorCode::device, out, "cannot be written");
  }
  Session session;
  const std::int64_t positions = loaded->config().max_positions;
  model.add_lane(
      session, loaded,
      positions * std::min<std::int64_t>(model.max_batch, options.n * static_cast<std::int64_t>(prompts.size())));

  std::vector<Job<std::vector<Thought>>> jobs;
  for (std::size_t i = 0; i < prompts.size(); ++i) jobs.push_back(session.start(one(session, prompts[i], i)));
  const auto total = options.n * static_cast<std::int64_t>(prompts.size());
  while (!interrupted() && session.step()) {
    const auto s = session.stats();
    if (!streams()) {
      progress(fmt::format("{} samples running, {} waiting of {} · {} tokens · KV {}/{}", s.n_active, s.n_waiting,
                           total, s.n_generated, s.kv_slots_used, s.kv_slots_total));
    }
  }
  end_progress();
  std::vector<std::vector<Thought>> kept;  // keeps their nodes for the picture
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!jobs[i].done()) continue;
    try {
      kept.push_back(jobs[i].result());
    } catch (const Error& e) {
      write_error(prompts[i], e.what());
    }
  }
  if (!tree.empty()) write_tree_view(session.tree(), loaded->tokenizer().get(), tree);
  const auto s = session.stats();
  log(fmt::format(
      "{} tokens generated · prompt tokens computed {}, saved {} · attention bytes {:.3g} shared, {:.3g} unshared",
      s.n_generated, s.n_prefill_computed, s.n_prefill_saved, s.attention_bytes_shared, s.attention_bytes_unshared));
  return interrupted() ? kInterrupted : n_failed > 0 ? kFailedItems : kDone;
}

}  // namespace

Command add_generate(CLI::App& app) {
  auto g = std::make_shared<Generate>();
  g->model.add(app);
  g->sample.add(app, 128);
  app.add_option("-p,--prompt", g->prompt, "Prompt");
  app.add_option("-f,--file", g->file, "Prompts: a text file, or JSON Lines with \"prompt\" and optional \"id\"");
  app.add_option("--out", g->out, "Write JSON Lines here instead of standard output");
  app.add_option("--tree", g->tree, "Draw the tree: NAME.html, NAME.dot or NAME.json");
  app.add_option("--logprobs", g->n_logprobs, "Report the K likeliest tokens of each position")
      ->check(CLI::Range(1, 1000));
  app.add_flag("--chat", g->chat, "Prompts are user turns of the model's chat template");
  app.add_flag("--parse-special", g->parse_special, "Text that spells a special token becomes that token");
  app.footer(
      "Examples:\n  banyan generate -m model.gguf -p \"Once upon a time\" --n 4 --seed 1\n"
      "  banyan generate -m DIR -f prompts.jsonl --n 16 --out samples.jsonl --tree tree.html");
  return [g] { return g->run(); };
}

}  // namespace banyan::cli
