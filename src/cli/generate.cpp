// banyan generate: prompts in, samples out as JSON Lines (or as streamed text on a terminal).
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <iostream>
#include <optional>
#include <unistd.h>
#include <unordered_map>

#include "banyan/code/samples.hpp"
#include "banyan/read_file.hpp"
#include "banyan/tree_view.hpp"
#include "cli/common.hpp"
#include "cli/prompt_file.hpp"

namespace banyan::cli {
namespace {

constexpr std::int64_t kMaxLogged = 20;  // errors on stderr; each is in its line of the output too

struct Prompt {
  nlohmann::json id;  // from the file, else the index
  std::int64_t index = 0;
  bool chat = false;  // a conversation: its answer ends where the template says, too
  Node node;
};

struct Generate {
  ModelFlags model;
  SampleFlags sample;
  TextFlags text;
  OutFlags out;
  std::string tree, template_name;
  std::int64_t n_logprobs = -1;
  bool chat = false, parse_special = false;

  std::shared_ptr<const Model> loaded;
  std::vector<Prompt> prompts;  // inserted in the forest
  std::int64_t n_done = 0, n_failed = 0;
  std::optional<Error> first_error;
  std::optional<code::JsonLinesWriter> out_file;
  SampleOptions options;

  int run();
  void insert_prompts(Session& session, const std::string& content, bool lines);
  void insert_prompt(Session& session, std::int64_t index, PromptLine line);
  std::string as_chat(std::span<const ChatTurn> turns);
  void sample_all(Session& session);
  Task<std::vector<Thought>> start_sampling(Session& session, const Prompt& prompt);
  void write(const Prompt& prompt, const Thought& thought);
  void write_error(const nlohmann::json& id, const Error& error);
  void count(const std::optional<Error>& error);
  void emit(const nlohmann::ordered_json& record);
  bool streams() const { return out.path.empty() && isatty(STDOUT_FILENO) != 0 && options.n == 1; }
};

// The id of a special token by its text; kNoToken: the vocabulary has none.
TokenId find_special(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode(text, {.add_bos = false, .parse_special = true});
  const bool special = ids.size() == 1 && tokenizer.spec().kinds[static_cast<std::size_t>(ids[0])] != TokenKind::normal;
  return special ? ids[0] : kNoToken;
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

void Generate::write(const Prompt& p, const Thought& t) {
  count(t.error);
  if (t.error && n_failed <= kMaxLogged) log(fmt::format("prompt {}: {}", p.id.dump(), t.error->what()));
  if (streams()) {
    std::cout << '\n';
    return;
  }
  nlohmann::ordered_json j;
  j["id"] = p.id;
  j["sample_id"] = t.sample;
  j["prompt_token_ids"] = p.node.path();
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
  j["model"] = loaded->config().name;
  j["version"] = version();
  emit(j);
}

void Generate::write_error(const nlohmann::json& id, const Error& error) {
  count(error);
  if (n_failed <= kMaxLogged) log(fmt::format("prompt {}: {}", id.dump(), error.what()));
  if (!streams()) emit({{"id", id}, {"finish_reason", "error"}, {"error", error.what()}});
}

// --- prompts into the forest ---------------------------------------------------------------------------------------

std::string Generate::as_chat(std::span<const ChatTurn> turns) {
  const TokenizerSpec& spec = loaded->tokenizer()->spec();
  if (template_name.empty()) template_name = chat_template_name(spec.chat_template);
  return render_chat(template_name, turns, chat_tokens(spec));
}

void Generate::insert_prompt(Session& session, std::int64_t index, PromptLine line) {
  try {
    const auto* raw = std::get_if<std::string>(&line.content);
    const bool in_template = chat || raw == nullptr;
    if (raw != nullptr && chat) line.content = Conversation{{"user", *raw}};
    const std::string whole = in_template ? as_chat(std::get<Conversation>(line.content)) : *raw;
    // The template spells its own special tokens.
    const auto ids =
        loaded->tokenizer()->encode(whole, {.add_bos = true, .parse_special = parse_special || in_template});
    // Said here once, not by every sample with all the ids of the prompt.
    const std::int64_t limit = session.runner().max_positions();
    if (const auto n = static_cast<std::int64_t>(ids.size()); n > limit) {
      throw Error(ErrorCode::context_full, "prompt",
                  fmt::format("{} tokens are more than the model's context of {}", n, limit));
    }
    prompts.push_back({line.id, index, in_template, session.insert(ids)});
  } catch (const Error& error) {
    write_error(line.id, error);
  }
}

void Generate::insert_prompts(Session& session, const std::string& content, bool lines) {
  if (!lines) return insert_prompt(session, 0, {0, content});
  const auto begin = std::chrono::steady_clock::now();
  read_prompt_lines(
      text.file, content, [&](std::int64_t index, PromptLine line) { insert_prompt(session, index, std::move(line)); },
      [&](std::int64_t index, const Error& error) { write_error(index, error); });
  if (prompts.empty() && n_failed == 0) throw Error(ErrorCode::bad_file, text.file, "holds no prompt");
  std::int64_t n_tokens = 0, n_stored = 0;
  for (const Prompt& prompt : prompts) {
    n_tokens += prompt.node.position();
    n_stored += static_cast<std::int64_t>(prompt.node.tokens().size());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  log(fmt::format("{} prompts of {} tokens are one forest of {} tokens ({:.1f} s)", prompts.size(), n_tokens, n_stored,
                  took.count()));
}

// Depth first, so that prompts that share a prefix run side by side, wherever they stand in the file.
std::vector<std::size_t> order_of_forest(const SequenceTree& tree, const std::vector<Prompt>& prompts) {
  std::unordered_map<std::int64_t, std::size_t> by_node;
  for (std::size_t i = 0; i < prompts.size(); ++i) by_node.emplace(prompts[i].node.id().value, i);
  std::vector<std::size_t> order;
  std::vector<NodeId> open(tree.roots().rbegin(), tree.roots().rend());
  while (!open.empty()) {
    const NodeId node = open.back();
    open.pop_back();
    if (const auto it = by_node.find(node.value); it != by_node.end()) order.push_back(it->second);
    open.insert(open.end(), tree.children(node).rbegin(), tree.children(node).rend());
  }
  return order;
}

// --- samples -------------------------------------------------------------------------------------------------------

Task<std::vector<Thought>> Generate::start_sampling(Session& session, const Prompt& p) {
  SampleOptions mine = options;
  mine.stream = static_cast<std::uint64_t>(p.index);
  mine.keep_nodes = !tree.empty();  // for the picture
  mine.on_done = [this, &p](std::size_t, const Thought& t) { write(p, t); };
  if (streams()) {
    mine.on_text = [](std::size_t, std::uint64_t, std::string_view piece) { std::cout << piece << std::flush; };
  }
  if (p.chat) {
    const TokenId end = find_special(*loaded->tokenizer(), chat_answer_end(template_name));
    if (end != kNoToken) mine.eos_ids.push_back(end);
  }
  return session.sample(p.node, std::move(mine));
}

// Prompts are started as others end: a search that waits costs memory, its prompt in the forest costs little.
void Generate::sample_all(Session& session) {
  struct Running {
    Job<std::vector<Thought>> job;
    std::size_t prompt;
  };
  const auto order = order_of_forest(session.tree(), prompts);
  const auto n_running_most = static_cast<std::size_t>(std::max<std::int64_t>(2, 2 * model.max_batch / options.n));
  const auto total = options.n * static_cast<std::int64_t>(prompts.size());
  std::vector<Running> running;
  std::vector<std::vector<Thought>> kept;  // keeps their nodes for the picture
  const auto collect = [&](Running& r) {
    if (!r.job.done()) return false;
    try {
      auto thoughts = r.job.result();
      if (!tree.empty()) kept.push_back(std::move(thoughts));
    } catch (const Error& e) {
      write_error(prompts[r.prompt].id, e);
    }
    if (tree.empty()) prompts[r.prompt].node = Node();
    return true;
  };
  std::size_t n_started = 0;
  for (bool more = true; !interrupted() && (more || n_started < order.size());) {
    for (; n_started < order.size() && running.size() < n_running_most; ++n_started) {
      const std::size_t i = order[n_started];
      running.push_back({session.start(start_sampling(session, prompts[i])), i});
    }
    more = session.step();
    std::erase_if(running, collect);
    if (streams()) continue;
    const auto s = session.stats();
    progress(fmt::format("{} samples running, {} waiting of {} · {} tokens · KV {}/{}", s.n_active,
                         total - n_done - n_failed - s.n_active, total, s.n_generated, s.kv_slots_used,
                         s.kv_slots_total));
  }
  end_progress();
  if (!tree.empty()) write_tree_view(session.tree(), loaded->tokenizer().get(), tree);
}

int Generate::run() {
  catch_interrupts();
  check_tree_path(tree);
  out.claim();
  options = sample.options();
  options.n_logprobs = n_logprobs > 0 ? n_logprobs : 0;
  std::string content = text.from_file() ? read_file(text.file) : text.prompt;
  const bool lines = text.from_file() && holds_prompt_lines(text.file, content);
  if (!template_name.empty()) chat = true;
  loaded = model.load();
  if (!loaded->tokenizer()) throw Error(ErrorCode::bad_file, model.path, "holds no tokenizer");
  const ChatTurn nothing{"user", ""};
  if (chat) as_chat({&nothing, 1});  // refuses an unknown template before anything runs
  if (!out.path.empty()) out_file.emplace(out.path, /*resume=*/false);
  Session session;
  const std::int64_t n_prompts = lines ? 1 + std::count(content.begin(), content.end(), '\n') : 1;
  model.add_lane(session, loaded,
                 loaded->config().max_positions * std::min<std::int64_t>(model.max_batch, options.n * n_prompts));
  insert_prompts(session, content, lines);
  content = {};
  if (!prompts.empty()) sample.log_seed();
  sample_all(session);
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
  g->text.add(app, "Prompt",
              "Prompts: a text file, or JSON Lines with \"prompt\" or \"messages\" (turns of \"role\" and \"content\", "
              "written in the chat template) and optional \"id\"");
  g->out.add(app, "New file for the JSON Lines, instead of standard output", OutFlags::Resume::no);
  app.add_option("--tree", g->tree, "Draw the tree: NAME.html, NAME.dot or NAME.json; replaced if it is there");
  app.add_option("--logprobs", g->n_logprobs, "Report the K likeliest tokens of each position")
      ->transform(whole_number(1, 1000));
  app.add_flag("--chat", g->chat, "Prompts are user turns of the model's chat template");
  const auto templates = chat_template_names();
  app.add_option("--chat-template", g->template_name, "Implies --chat; the template to use instead of the model's own")
      ->check(CLI::IsMember(std::vector<std::string>(templates.begin(), templates.end())));
  app.add_flag("--parse-special", g->parse_special, "Text that spells a special token becomes that token");
  app.footer(
      "Examples:\n  banyan generate -m model.gguf -p \"Once upon a time\" --n 4 --seed 1\n"
      "  banyan generate -m DIR -f prompts.jsonl --n 16 --out samples.jsonl --tree tree.html");
  return [g] { return g->run(); };
}

}  // namespace banyan::cli
