// banyan generate: prompts in, samples out as JSON Lines (or as streamed text on a terminal).
#include <fmt/format.h>
#include <iostream>
#include <optional>
#include <sstream>
#include <unistd.h>

#include "banyan/code/samples.hpp"
#include "banyan/read_file.hpp"
#include "banyan/tree_view.hpp"
#include "cli/common.hpp"

namespace banyan::cli {
namespace {

constexpr std::int64_t kMaxLogged = 20;  // errors on stderr; each is in its line of the output too

struct Prompt {
  nlohmann::json id;  // from the file, else the index
  std::string text;
};

struct BadLine {
  std::int64_t index = 0;
  Error error;
};

struct Generate {
  ModelFlags model;
  SampleFlags sample;
  TextFlags text;
  std::string out, tree;
  std::int64_t n_logprobs = -1;
  bool chat = false, parse_special = false;

  std::vector<BadLine> bad_lines;
  std::int64_t n_done = 0, n_failed = 0;
  std::optional<Error> first_error;
  std::optional<code::JsonLinesWriter> out_file;
  SampleOptions options;

  int run();
  std::vector<Prompt> read_prompts();
  std::vector<Prompt> read_prompt_lines(const std::string& content);
  std::string as_turn(const Tokenizer& tokenizer, const std::string& turn) const;
  Task<std::vector<Thought>> one(Session& session, const Prompt& prompt, std::uint64_t stream);
  void write(const Prompt& prompt, const std::vector<TokenId>& prompt_ids, const std::string& model_name,
             const Thought& thought);
  void write_error(const nlohmann::json& id, const Error& error);
  void count(const std::optional<Error>& error);
  void emit(const nlohmann::ordered_json& record);
  bool streams() const { return out.empty() && isatty(STDOUT_FILENO) != 0 && options.n == 1; }
};

// A line with a prompt, if it is one.
std::optional<Prompt> parse_prompt(const std::string& line, std::int64_t index) {
  const auto j = nlohmann::json::parse(line, nullptr, false);
  if (!j.is_object() || !j.contains("prompt") || !j["prompt"].is_string()) return std::nullopt;
  return Prompt{j.contains("id") ? j["id"] : nlohmann::json(index), j["prompt"].get<std::string>()};
}

// JSON Lines; the index of a prompt counts the lines that are none, too, and each of those is a failed item.
std::vector<Prompt> Generate::read_prompt_lines(const std::string& content) {
  std::vector<Prompt> prompts;
  std::istringstream lines(content);
  std::int64_t number = 0, index = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (auto prompt = parse_prompt(line, index)) {
      prompts.push_back(std::move(*prompt));
    } else {
      const auto where = fmt::format("{}:{}", text.file, number);
      bad_lines.push_back({index, Error(ErrorCode::bad_file, where, "no JSON object with a text under \"prompt\"")});
    }
    ++index;
  }
  return prompts;
}

std::vector<Prompt> Generate::read_prompts() {
  if (!text.from_file()) return {{0, text.prompt}};
  const std::string content = read_file(text.file);
  const bool is_lines =
      text.file.ends_with(".jsonl") || parse_prompt(content.substr(0, content.find('\n')), 0).has_value();
  auto prompts = is_lines ? read_prompt_lines(content) : std::vector<Prompt>{{0, content}};
  if (prompts.empty()) {
    throw Error(ErrorCode::bad_file, text.file,
                bad_lines.empty() ? "holds no prompt" : fmt::format("holds no prompt; {}", bad_lines[0].error.what()));
  }
  return prompts;
}

std::string Generate::as_turn(const Tokenizer& tokenizer, const std::string& turn) const {
  const ChatTurn user{"user", turn};
  return render_chat(chat_template_name(tokenizer.spec().chat_template), {&user, 1});
}

void Generate::emit(const nlohmann::ordered_json& record) {
  const std::string line = record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (out_file) return out_file->append(line);
  std::cout << line << '\n' << std::flush;
  if (!std::cout) throw Error(ErrorCode::device, "stdout", "cannot be written");
}

void Generate::count(const std::optional<Error>& error) {
  ++(error ? n_failed : n_done);
  if (error && !first_error) first_error = error;
}

void Generate::write(const Prompt& p, const std::vector<TokenId>& prompt_ids, const std::string& model_name,
                     const Thought& t) {
  count(t.error);
  if (t.error && n_failed <= kMaxLogged) log(fmt::format("prompt {}: {}", p.id.dump(), t.error->what()));
  if (streams()) {
    std::cout << '\n';
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

void Generate::write_error(const nlohmann::json& id, const Error& error) {
  count(error);
  if (n_failed <= kMaxLogged) log(fmt::format("prompt {}: {}", id.dump(), error.what()));
  if (!streams()) emit({{"id", id}, {"finish_reason", "error"}, {"error", error.what()}});
}

Task<std::vector<Thought>> Generate::one(Session& session, const Prompt& p, std::uint64_t stream) {
  const Tokenizer& tokenizer = *session.runner().tokenizer();
  const auto whole = chat ? as_turn(tokenizer, p.text) : p.text;
  // The template spells its own special tokens.
  const auto ids = tokenizer.encode(whole, {.add_bos = true, .parse_special = parse_special || chat});
  // Said here once, not by every sample with all the ids of the prompt.
  if (const auto n = static_cast<std::int64_t>(ids.size()); n > session.runner().max_positions()) {
    throw Error(ErrorCode::context_full, "prompt",
                fmt::format("{} tokens are more than the model's context of {}", n, session.runner().max_positions()));
  }
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
  catch_interrupts();
  check_tree_path(tree);
  options = sample.options();
  options.n_logprobs = n_logprobs > 0 ? n_logprobs : 0;
  const auto prompts = read_prompts();
  const auto loaded = model.load();
  if (!loaded->tokenizer()) throw Error(ErrorCode::bad_file, model.path, "holds no tokenizer");
  if (chat) as_turn(*loaded->tokenizer(), "");  // refuses an unknown template before anything runs
  if (!out.empty()) {
    make_parent(out);
    out_file.emplace(out, /*resume=*/false);
  }
  Session session;
  const std::int64_t positions = loaded->config().max_positions;
  model.add_lane(
      session, loaded,
      positions * std::min<std::int64_t>(model.max_batch, options.n * static_cast<std::int64_t>(prompts.size())));

  for (const BadLine& bad : bad_lines) write_error(bad.index, bad.error);
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
      write_error(prompts[i].id, e);
    }
  }
  if (!tree.empty()) write_tree_view(session.tree(), loaded->tokenizer().get(), tree);
  const auto s = session.stats();
  log(fmt::format(
      "{} tokens generated · prompt tokens computed {}, saved {} · attention bytes {:.3g} shared, {:.3g} unshared",
      s.n_generated, s.n_prefill_computed, s.n_prefill_saved, s.attention_bytes_shared, s.attention_bytes_unshared));
  if (interrupted()) return kInterrupted;
  if (n_failed == 0) return kDone;
  return n_done > 0 ? int{kFailedItems} : exit_code(*first_error);
}

}  // namespace

Command add_generate(CLI::App& app) {
  auto g = std::make_shared<Generate>();
  g->model.add(app);
  g->sample.add(app, 128);
  g->text.add(app, "Prompt", "Prompts: a text file, or JSON Lines with \"prompt\" and optional \"id\"");
  app.add_option("--out", g->out, "Write JSON Lines here instead of standard output");
  app.add_option("--tree", g->tree, "Draw the tree: NAME.html, NAME.dot or NAME.json");
  app.add_option("--logprobs", g->n_logprobs, "Report the K likeliest tokens of each position")
      ->transform(whole_number(1, 1000));
  app.add_flag("--chat", g->chat, "Prompts are user turns of the model's chat template");
  app.add_flag("--parse-special", g->parse_special, "Text that spells a special token becomes that token");
  app.footer(
      "Examples:\n  banyan generate -m model.gguf -p \"Once upon a time\" --n 4 --seed 1\n"
      "  banyan generate -m DIR -f prompts.jsonl --n 16 --out samples.jsonl --tree tree.html");
  return [g] { return g->run(); };
}

}  // namespace banyan::cli
