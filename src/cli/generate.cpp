// banyan generate: prompts in, samples out as JSON Lines (or as streamed text on a terminal).
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <iostream>
#include <mutex>
#include <optional>
#include <unistd.h>
#include <unordered_map>

#include "banyan/code/samples.hpp"
#include "banyan/read_file.hpp"
#include "banyan/tree.hpp"
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
  NodeId node;        // of the forest of prompts
};

struct Generate {
  ModelFlags model;
  SampleFlags sample;
  TextFlags text;
  OutFlags out;
  std::string tree, template_name;
  std::int64_t n_logprobs = -1;
  bool chat = false, parse_special = false;

  ModelGroup group;
  std::shared_ptr<const Model> loaded;  // the first of the group
  // All prompts, by the tokens that they share. Read alone once sampling begins; every session stores of it what it is
  // at work on.
  SequenceTree forest;
  std::vector<Prompt> prompts;
  SampleOptions options;
  // Of each session: the prompt that it took samples of last, and where that is stored.
  struct Stored {
    const Prompt* prompt = nullptr;
    Node node;
  };
  std::vector<Stored> stored;
  std::mutex mutex;  // guards what follows: several sessions write
  std::int64_t n_done = 0, n_failed = 0;
  std::optional<Error> first_error;
  std::optional<code::JsonLinesWriter> out_file;
  std::vector<std::vector<Thought>> kept;  // with --tree: keeps their nodes

  int run();
  void insert_prompts(const std::string& content, bool lines);
  void insert_prompt(std::int64_t index, PromptLine line);
  std::string as_chat(std::span<const ChatTurn> turns);
  void sample_all();
  Task<> start_sampling(std::size_t member, Session& session, const Prompt& prompt, const WorkPart& part);
  Task<> draw(Session& session, Node node, SampleOptions mine, const Prompt& prompt);
  void write(const Prompt& prompt, const Thought& thought);
  void write_error(const nlohmann::json& id, const Error& error);
  void count(const std::optional<Error>& error);
  void emit(const nlohmann::ordered_json& record);
  bool streams() const {
    return out.path.empty() && isatty(STDOUT_FILENO) != 0 && options.n == 1 && group.sessions->size() == 1;
  }
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
  std::vector<TokenId> path;
  forest.path_tokens(p.node, path);
  const std::lock_guard lock(mutex);
  count(t.error);
  if (t.error && n_failed <= kMaxLogged) log(fmt::format("prompt {}: {}", p.id.dump(), t.error->what()));
  if (streams()) {
    std::cout << '\n';
    return;
  }
  nlohmann::ordered_json j;
  j["id"] = p.id;
  j["sample_id"] = t.sample;
  j["prompt_token_ids"] = path;
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
  const std::lock_guard lock(mutex);
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

void Generate::insert_prompt(std::int64_t index, PromptLine line) {
  try {
    const auto* raw = std::get_if<std::string>(&line.content);
    const bool in_template = chat || raw == nullptr;
    if (raw != nullptr && chat) line.content = Conversation{{"user", *raw}};
    const std::string whole = in_template ? as_chat(std::get<Conversation>(line.content)) : *raw;
    // The template spells its own special tokens.
    const auto ids =
        loaded->tokenizer()->encode(whole, {.add_bos = true, .parse_special = parse_special || in_template});
    // Said here once, not by every sample with all the ids of the prompt.
    const std::int64_t limit = loaded->config().max_positions, vocab_size = loaded->config().vocab_size;
    if (const auto n = static_cast<std::int64_t>(ids.size()); n > limit) {
      throw Error(ErrorCode::context_full, "prompt",
                  fmt::format("{} tokens are more than the model's context of {}", n, limit));
    }
    if (const auto id = std::ranges::find_if(ids, [&](TokenId t) { return t >= vocab_size; }); id != ids.end()) {
      throw Error(ErrorCode::bad_input, fmt::format("token {}", id - ids.begin()),
                  fmt::format("id {} is not in the vocabulary of {}", *id, vocab_size));
    }
    prompts.push_back({line.id, index, in_template, forest.insert(ids)});
  } catch (const Error& error) {
    write_error(line.id, error);
  }
}

void Generate::insert_prompts(const std::string& content, bool lines) {
  if (!lines) return insert_prompt(0, {0, content});
  const auto begin = std::chrono::steady_clock::now();
  read_prompt_lines(
      text.file, content, [&](std::int64_t index, PromptLine line) { insert_prompt(index, std::move(line)); },
      [&](std::int64_t index, const Error& error) { write_error(index, error); });
  if (prompts.empty() && n_failed == 0) throw Error(ErrorCode::bad_file, text.file, "holds no prompt");
  std::int64_t n_tokens = 0, n_stored = 0;
  for (const Prompt& prompt : prompts) {
    n_tokens += forest.end_position(prompt.node);
    n_stored += forest.n_tokens(prompt.node);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  log(fmt::format("{} prompts of {} tokens are one forest of {} tokens ({:.1f} s)", prompts.size(), n_tokens, n_stored,
                  took.count()));
}

// Depth first.
std::vector<std::size_t> order_of_forest(const SequenceTree& tree, const std::vector<Prompt>& prompts) {
  std::unordered_map<std::int64_t, std::size_t> by_node;
  for (std::size_t i = 0; i < prompts.size(); ++i) by_node.emplace(prompts[i].node.value, i);
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

Task<> Generate::start_sampling(std::size_t member, Session& session, const Prompt& p, const WorkPart& part) {
  SampleOptions mine = options;
  mine.stream = static_cast<std::uint64_t>(p.index);
  mine.n = part.size();
  mine.first_sample = static_cast<std::uint64_t>(part.begin);
  mine.keep_nodes = !tree.empty();  // for the picture
  mine.on_done = [this, member, &p](std::size_t, const Thought& t) {
    if (t.error && t.error->code() == ErrorCode::device) return group.sessions->retire(member, *t.error);
    write(p, t);
  };
  if (streams()) {
    mine.on_text = [](std::size_t, std::uint64_t, std::string_view piece) { std::cout << piece << std::flush; };
  }
  if (p.chat) {
    const TokenId end = find_special(*loaded->tokenizer(), chat_answer_end(template_name));
    if (end != kNoToken) mine.eos_ids.push_back(end);
  }
  Stored& last = stored[member];
  if (last.prompt != &p) {
    std::vector<TokenId> path;
    forest.path_tokens(p.node, path);
    last = {&p, session.insert(path)};  // while the one before is still there, whose prefix it may share
  }
  return draw(session, last.node, std::move(mine), p);
}

Task<> Generate::draw(Session& session, Node node, SampleOptions mine, const Prompt& p) {
  try {
    auto thoughts = co_await session.sample(std::move(node), std::move(mine));
    if (!tree.empty()) kept.push_back(std::move(thoughts));  // of one session
  } catch (const Error& e) {
    write_error(p.id, e);
  }
}

// Depth first, so that prompts that share a prefix run side by side, wherever they stand in the file; each starts as
// others end.
void Generate::sample_all() {
  const auto order = order_of_forest(forest, prompts);
  const auto total = options.n * static_cast<std::int64_t>(prompts.size());
  stored.resize(group.sessions->size());
  GroupWork work;
  work.n_samples.assign(prompts.size(), options.n);
  work.n_held = model.max_batch;
  work.start = [&](std::size_t member, Session& session, WorkPart part) {
    return start_sampling(member, session, prompts[order[part.item]], part);
  };
  work.on_progress = [&](const LaneStats& s) {
    const std::lock_guard lock(mutex);
    if (!streams()) {
      progress(fmt::format("{} samples running, {} waiting of {} · {} tokens · KV {}/{}", s.n_active,
                           total - n_done - n_failed - s.n_active, total, s.n_generated, s.kv_slots_used,
                           s.kv_slots_total));
    }
    return !interrupted();
  };
  group.sessions->run(work);
  stored.clear();
  end_progress();
  if (!tree.empty()) write_tree_view(group.sessions->session(0).tree(), loaded->tokenizer().get(), tree);
}

int Generate::run() {
  catch_interrupts();
  check_tree_path(tree);
  if (!tree.empty()) model.check_one_forest("--tree");
  out.claim();
  options = sample.options();
  options.n_logprobs = n_logprobs > 0 ? n_logprobs : 0;
  std::string content = text.from_file() ? read_file(text.file) : text.prompt;
  const bool lines = text.from_file() && holds_prompt_lines(text.file, content);
  if (!template_name.empty()) chat = true;
  const std::int64_t n_prompts = lines ? 1 + std::count(content.begin(), content.end(), '\n') : 1;
  group = model.open([&](const Model& m) {
    return m.config().max_positions * std::min<std::int64_t>(model.max_batch, options.n * n_prompts);
  });
  loaded = group.models[0];
  if (!loaded->tokenizer()) throw Error(ErrorCode::bad_file, model.path, "holds no tokenizer");
  const ChatTurn nothing{"user", ""};
  if (chat) as_chat({&nothing, 1});  // refuses an unknown template before anything runs
  if (!out.path.empty()) out_file.emplace(out.path, /*resume=*/false);
  insert_prompts(content, lines);
  content = {};
  if (!prompts.empty()) sample.log_seed();
  const auto begin = std::chrono::steady_clock::now();
  sample_all();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const auto s = group.sessions->stats();
  log(
      fmt::format("{} tokens generated in {:.1f} s, {:.0f}/s · prompt tokens computed {}, saved {} · attention bytes "
                  "{:.3g} shared, {:.3g} unshared",
                  s.n_generated, took.count(), static_cast<double>(s.n_generated) / took.count(), s.n_prefill_computed,
                  s.n_prefill_saved, s.attention_bytes_shared, s.attention_bytes_unshared));
  if (interrupted()) return kInterrupted;
  const bool any_retired = group.report_retired();
  if (n_failed == 0) return any_retired ? kFailedItems : kDone;
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
