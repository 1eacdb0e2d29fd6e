// The wishes of a search: sampling, proposing, scoring, inside its budget and through its event log.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "search_state.hpp"

namespace banyan::search {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

// Where the unfinished character at the end of `bytes` begins.
std::size_t begin_of_last_character(std::string_view bytes) {
  std::size_t at = bytes.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(bytes[at]) & 0xc0u) == 0x80u) --at;
  return at;
}

const Tokenizer& tokenizer_of(const Session& session, LaneId lane) {
  const StepRunner& runner = session.runner(lane);
  if (runner.tokenizer() == nullptr) {
    throw Error(ErrorCode::unsupported, runner.name(), "has no tokenizer: it cannot read prompts");
  }
  return *runner.tokenizer();
}

}  // namespace

bool Search::State::begin_wish() {
  if (search.stopped()) return false;
  ++counters.n_wishes;
  spent = {};
  n_asked = 0;
  n_wish_thoughts = n_wish_kv = 0;
  return true;
}

// Draws in waves: as many samples at once as fit into the budget even if each runs to its limit. The result has an
// entry for each draw, with fewer samples than asked for, or none, where the budget ends.
Task<std::vector<std::vector<Thought>>> Search::State::draw(std::vector<Draw> draws, SampleOptions sample, bool keep) {
  std::vector<std::vector<Thought>> drawn(draws.size());
  sample.seed = options.seed;
  sample.priority = options.priority;
  sample.keep_nodes = keep;
  sample.on_text = {};
  std::size_t next = 0;
  bool stopping = false;
  while (next < draws.size() && !stopping && !interrupted) {
    std::int64_t longest = sample.max_tokens;
    if (longest < 0) {
      for (std::size_t i = next; i < draws.size(); ++i) {
        longest = std::max(longest, session.runner(draws[i].node.lane()).max_positions() - draws[i].position);
      }
    }
    Room room = room_for(longest, keep);
    SampleOptions in_wave = sample;
    if (room.max_tokens < longest) in_wave.max_tokens = room.max_tokens;
    std::vector<Task<std::vector<Thought>>> wave;
    while (next < draws.size() && room.n_samples > 0) {
      Draw& d = draws[next];
      if (d.n_begun == 0 && !use(d)) {
        stopping = true;
        break;
      }
      in_wave.n = std::min(d.n, room.n_samples);
      in_wave.stream = d.stream;
      in_wave.first_sample = d.first;
      in_wave.on_done = [&drawn, next](std::size_t, const Thought& thought) { drawn[next].push_back(thought); };
      wave.push_back(session.sample(d.node, in_wave));
      room.n_samples -= in_wave.n;
      d.first += static_cast<std::uint64_t>(in_wave.n);
      d.n -= in_wave.n;
      d.n_begun += in_wave.n;
      if (d.n == 0) ++next;
    }
    if (wave.empty()) break;
    // Samples are taken as each of them ends, so that those which have ended are there if the wait is interrupted.
    std::vector<std::size_t> n_before;
    for (const auto& samples : drawn) n_before.push_back(samples.size());
    Wait wait(*this, all(std::move(wave)));
    co_await wait;
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      const std::int64_t position = draws[i].position;
      for (std::size_t k = n_before[i]; k < drawn[i].size(); ++k) {
        const Thought& thought = drawn[i][k];
        counters.tokens_generated += static_cast<std::int64_t>(thought.tokens.size());
        if (room.cut != StopReason::none && thought.finish == FinishReason::length &&
            static_cast<std::int64_t>(thought.tokens.size()) == room.max_tokens && stop == StopReason::none) {
          stop = room.cut;  // its text is not what it would have been
        }
        if (!thought.error) n_on_paths += position;
        if (!keep && !thought.error) spent.on_paths += position;
        ++n_wish_thoughts;
        if (thought.node) n_wish_kv += static_cast<std::int64_t>(thought.node.tokens().size());
      }
    }
  }
  for (auto& samples : drawn) {
    std::sort(samples.begin(), samples.end(), [](const Thought& a, const Thought& b) { return a.sample < b.sample; });
  }
  co_return drawn;
}

// Makes the thoughts of a wish, in order.
std::vector<ThoughtId> Search::State::add(std::vector<NewThought> news) {
  std::vector<ThoughtId> ids;
  for (NewThought& n : news) {
    const ThoughtId id = search.size();
    Record& parent = at(n.parent);
    Record r;
    r.thought.parent = n.parent;
    r.thought.depth = parent.thought.depth + 1;
    r.thought.child_index = static_cast<std::int64_t>(parent.children.size());
    r.thought.how = n.how;
    r.thought.text = std::move(n.text);
    r.thought.logprobs = std::move(n.logprobs);
    r.thought.logprob = n.logprob;
    r.thought.path_logprob = parent.thought.path_logprob + n.logprob;
    r.thought.n_path_tokens = parent.thought.n_path_tokens + static_cast<std::int64_t>(n.tokens.size());
    r.thought.replaces = n.replaces;
    r.thought.error = std::move(n.error);
    r.stream = mix(parent.stream, static_cast<std::uint64_t>(r.thought.child_index));
    r.drawn = n.drawn;
    r.n_kept = n.n_kept;
    if (n.drawn) {
      ++parent.n_drawn;
      r.thought.tokens = std::move(n.tokens);
    } else {
      r.given = std::move(n.tokens);
    }
    parent.children.push_back(id);
    records.push_back(std::move(r));
    ++counters.n_thoughts;
    ThoughtRecord& thought = at(id).thought;
    if (!thought.error.empty()) {
      thought.state = ThoughtState::failed;
      ++counters.n_failed;
      continue;
    }
    ids.push_back(id);
    held.push_back(id);
    if (n.node) {
      // The last token drawn has no KV yet if the text ended with it.
      const auto n_computed = static_cast<std::int64_t>(thought.tokens.size()) - 1;
      hold(id, std::move(n.node), std::max<std::int64_t>(0, at(id).n_kept - n_computed));
    }
    if (problem->finished(search.state(id), thought.how)) {
      thought.state = ThoughtState::finished;
      note_finished(id);
    }
  }
  return ids;
}

Task<std::vector<ThoughtId>> Search::sample(std::vector<ThoughtId> parents, SampleOptions options) {
  State& s = *state_;
  if (options.n < 1) {
    throw Error(ErrorCode::usage, "n", std::to_string(options.n) + " must be at least 1");
  }
  if (!s.begin_wish()) co_return std::vector<ThoughtId>();
  std::vector<State::Draw> draws;
  std::unordered_map<ThoughtId, std::uint64_t> n_asked_of;
  for (const ThoughtId parent : parents) {
    State::Draw d;
    d.node = s.node_of(parent);
    if (!d.node) break;
    d.position = d.node.position();
    d.thought = parent;
    d.stream = s.at(parent).stream;
    d.first = s.at(parent).n_drawn + n_asked_of[parent];
    d.n = options.n;
    n_asked_of[parent] += static_cast<std::uint64_t>(options.n);
    draws.push_back(std::move(d));
  }
  const ThoughtId first = size();
  std::vector<State::NewThought> news;
  if (s.replaying()) {
    State::Spent none;
    news = s.replayed_thoughts(none);
    ThoughtId last = kNoThought;
    for (State::NewThought& n : news) {
      if (n.parent != last) s.use(n.parent);
      last = n.parent;
      s.counters.tokens_generated += static_cast<std::int64_t>(n.tokens.size());
      s.n_replayed += static_cast<std::int64_t>(n.tokens.size());
      if (!n.error.empty()) continue;
      const Node parent = s.node_of(n.parent);
      s.n_on_paths += parent.position();
      n.node = session().extend(parent, std::span(n.tokens).first(static_cast<std::size_t>(n.n_kept)));
    }
  } else {
    auto drawn = co_await s.draw(std::move(draws), std::move(options), true);
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      for (Thought& t : drawn[i]) {
        State::NewThought n;
        n.parent = parents[i];
        n.how = t.finish;
        n.text = std::move(t.text);
        n.tokens = std::move(t.tokens);
        n.logprobs = std::move(t.logprobs);
        n.logprob = t.cumulative_logprob;
        n.drawn = true;
        n.n_kept = t.node ? static_cast<std::int64_t>(t.node.tokens().size()) : 0;
        n.error = t.error ? t.error->what() : "";
        n.node = std::move(t.node);
        news.push_back(std::move(n));
      }
    }
  }
  auto ids = s.add(std::move(news));
  s.emit_thoughts(first, {});
  co_return ids;
}

Task<std::vector<ThoughtId>> Search::propose(std::vector<ThoughtId> parents, TextsOf texts_of) {
  State& s = *state_;
  if (!s.begin_wish()) co_return std::vector<ThoughtId>();
  const ThoughtId first = size();
  std::vector<State::NewThought> news;
  if (s.replaying()) {
    State::Spent logged;
    news = s.replayed_thoughts(logged);
    s.apply(logged);
  } else {
    Proposals texts = co_await texts_of(*this, parents);
    for (std::size_t i = 0; i < std::min(texts.size(), parents.size()); ++i) {
      for (Proposal& p : texts[i]) {
        if (s.counters.n_thoughts + static_cast<std::int64_t>(news.size()) >= s.options.budget.thoughts) {
          stop(StopReason::thoughts);
          break;
        }
        State::NewThought n;
        n.parent = parents[i];
        n.text = sanitize_utf8(p.text);
        n.tokens = std::move(p.tokens);
        n.logprob = p.logprob;
        n.replaces = p.replaces;
        news.push_back(std::move(n));
      }
    }
  }
  auto ids = s.add(std::move(news));
  s.emit_thoughts(first, s.spent);
  co_return ids;
}

Task<std::vector<std::vector<TokenLogprob>>> Search::next(std::vector<ThoughtId> parents, std::int64_t k) {
  State& s = *state_;
  std::vector<std::vector<TokenLogprob>> top;
  if (!s.begin_wish()) co_return top;
  std::vector<Task<std::vector<TokenLogprob>>> wishes;
  for (const ThoughtId parent : parents) {
    const Node node = s.node_of(parent);
    if (!node || !s.use(parent)) break;
    s.n_on_paths += node.position();
    wishes.push_back(s.session.next(node, k));
  }
  parents.resize(wishes.size());
  if (s.replaying()) {
    top = s.replayed_next();
  } else {
    State::Wait wait(s, all(std::move(wishes)));
    auto got = co_await wait;
    if (got) top = std::move(*got);
  }
  s.emit_next(parents, top);
  co_return top;
}

std::vector<ThoughtId> Search::take(const std::vector<Token>& tokens) {
  State& s = *state_;
  const ThoughtId first = size();
  const StepRunner& runner = session().runner(s.options.lane);
  std::vector<State::NewThought> news;
  std::vector<std::string> pending;
  for (const Token& t : tokens) {
    if (s.counters.tokens_generated >= s.options.budget.tokens) {
      stop(StopReason::tokens);
      break;
    }
    if (s.counters.n_thoughts + static_cast<std::int64_t>(news.size()) >= s.options.budget.thoughts) {
      stop(StopReason::thoughts);
      break;
    }
    const bool ends = std::find(runner.eos_ids().begin(), runner.eos_ids().end(), t.token) != runner.eos_ids().end();
    State::NewThought n;
    n.parent = t.parent;
    n.how = ends ? FinishReason::eos : FinishReason::length;
    n.tokens.push_back(t.token);
    n.logprobs.push_back(static_cast<float>(t.logprob));
    n.logprob = t.logprob;
    n.drawn = true;
    n.n_kept = ends ? 0 : 1;
    std::string bytes = s.at(t.parent).pending;
    if (!ends && runner.tokenizer() != nullptr) bytes += runner.tokenizer()->token_bytes(t.token, false);
    Utf8Stream characters;
    n.text = characters.push(bytes);
    if (ends) n.text += characters.flush();
    pending.push_back(characters.pending() ? bytes.substr(begin_of_last_character(bytes)) : std::string());
    news.push_back(std::move(n));
    ++s.counters.tokens_generated;
    ++s.counters.tokens_chosen;
  }
  auto ids = s.add(std::move(news));
  for (std::size_t i = 0; i < pending.size(); ++i) s.at(first + static_cast<ThoughtId>(i)).pending = pending[i];
  s.emit_thoughts(first, {});
  return ids;
}

Task<std::vector<double>> Search::score(std::vector<ThoughtId> ids, Scorer scorer) {
  State& s = *state_;
  std::vector<double> values(ids.size(), kNoValue);
  if (ids.empty() || !s.begin_wish()) co_return values;
  // What is asked: each key once, and no more than the budget of calls allows.
  std::vector<std::string> keys(ids.size());
  std::vector<ThoughtId> asked;
  std::vector<std::size_t> asked_at;                      // index into ids
  std::unordered_map<std::string, std::size_t> first_of;  // key -> index into ids
  std::vector<std::size_t> same_as(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    same_as[i] = i;
    if (scorer.cache_key) {
      keys[i] = scorer.name + '\0' + scorer.cache_key(*this, ids[i]);
      if (const auto known = s.known_values.find(keys[i]); known != s.known_values.end()) {
        values[i] = known->second;
        continue;
      }
      same_as[i] = first_of.emplace(keys[i], i).first->second;
      if (same_as[i] != i) continue;
    }
    if (s.counters.n_scorer_calls + static_cast<std::int64_t>(asked.size()) >= s.options.budget.scorer_calls) {
      stop(StopReason::scorer_calls);
      continue;
    }
    asked.push_back(ids[i]);
    asked_at.push_back(i);
  }
  s.counters.n_scorer_calls += static_cast<std::int64_t>(asked.size());
  if (s.replaying()) {
    State::Spent logged;
    values = s.replayed_values(ids.size(), logged);
    s.apply(logged);
  } else {
    if (!asked.empty()) {
      const auto got = co_await scorer.values(*this, asked);
      if (got.size() != asked.size()) {
        throw Error(ErrorCode::usage, "scorer " + scorer.name,
                    "gave " + std::to_string(got.size()) + " values for " + std::to_string(asked.size()) + " thoughts");
      }
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (std::isfinite(got[i])) values[asked_at[i]] = got[i];
      }
    }
    for (std::size_t i = 0; i < ids.size(); ++i) values[i] = values[same_as[i]];
  }
  bool better = false;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    s.at(ids[i]).thought.value = values[i];
    if (scorer.cache_key && !std::isnan(values[i])) s.known_values.emplace(keys[i], values[i]);
    if (values[i] > s.best_value) {
      s.best_value = values[i];
      better = true;
    }
  }
  s.n_stale = better ? 0 : s.n_stale + 1;
  s.emit_values(scorer.name, ids, values);
  co_return values;
}

// --- parts of a wish -----------------------------------------------------------------------------------------------

Task<std::vector<std::vector<Thought>>> Search::ask(std::vector<Prompt> prompts, std::vector<ThoughtId> charged,
                                                    SampleOptions options, LaneId lane) {
  State& s = *state_;
  std::vector<State::Draw> draws;
  for (const Prompt& prompt : prompts) {
    State::Draw d = s.prompt_place(prompt, lane);
    d.n = options.n;
    // Named by wish and place in it: a resumed run asks by the same names, whatever it did not ask again before.
    d.stream = mix(mix(s.at(kRootThought).stream, static_cast<std::uint64_t>(s.counters.n_wishes)), ~s.n_asked++);
    draws.push_back(std::move(d));
  }
  auto answers = co_await s.draw(std::move(draws), std::move(options), false);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    std::int64_t n = 0;
    for (const Thought& t : answers[i]) n += static_cast<std::int64_t>(t.tokens.size());
    s.counters.tokens_spent += n;
    s.spent.generated += n;
    s.at(charged[i]).thought.n_spent += n;
    s.spent.by.emplace_back(charged[i], n);
  }
  co_return answers;
}

Task<std::vector<std::vector<double>>> Search::logprobs(std::vector<Prompt> prompts, std::vector<std::string> texts,
                                                        LaneId lane) {
  State& s = *state_;
  const Tokenizer& tokenizer = tokenizer_of(s.session, lane);
  std::vector<std::vector<TokenId>> targets;
  for (const std::string& text : texts) {
    targets.push_back(tokenizer.encode(text, {.add_bos = false, .parse_special = false, .first = false}));
  }
  std::vector<std::vector<double>> sums(prompts.size());
  std::vector<Task<Score>> scores;
  std::size_t n_reached = 0;
  for (const Prompt& prompt : prompts) {
    const State::Draw place = s.prompt_place(prompt, lane);
    if (!s.use(place)) break;
    ++n_reached;
    for (const auto& target : targets) {
      const std::int64_t n_more = std::max<std::int64_t>(0, static_cast<std::int64_t>(target.size()) - 1);
      s.counters.prefill_computed += n_more;
      s.spent.computed += n_more;
      s.n_on_paths += place.node.position();
      s.spent.on_paths += place.node.position();
      scores.push_back(s.session.score(place.node, target));
    }
  }
  State::Wait wait(s, all(std::move(scores)));
  const auto answers = co_await wait;
  if (!answers) co_return sums;
  const std::vector<Score>& got = *answers;
  for (std::size_t i = 0; i < n_reached; ++i) {
    for (std::size_t k = 0; k < targets.size(); ++k) sums[i].push_back(got[i * targets.size() + k].sum);
  }
  co_return sums;
}

Task<std::vector<double>> Search::rewards(std::vector<ThoughtId> ids) {
  State& s = *state_;
  std::vector<double> values(ids.size(), kNoValue);
  std::vector<Task<double>> wishes;
  for (const ThoughtId id : ids) {
    const Node node = s.node_of(id);
    if (!node || !s.use(id)) break;
    s.spent.used.push_back(id);
    s.n_on_paths += node.position();
    s.spent.on_paths += node.position();
    wishes.push_back(s.session.reward(node));
  }
  State::Wait wait(s, all(std::move(wishes)));
  const auto got = co_await wait;
  if (got) std::copy(got->begin(), got->end(), values.begin());
  co_return values;
}

// The accounts of a wish that is read from the journal.
void Search::State::apply(const Spent& logged) {
  counters.tokens_generated += logged.generated;
  counters.tokens_spent += logged.generated;
  counters.tokens_chosen += logged.chosen;
  n_replayed += logged.generated - logged.chosen;
  counters.prefill_computed += logged.computed;
  n_on_paths += logged.on_paths;
  for (const auto& [id, n] : logged.by) at(id).thought.n_spent += n;
  charged_prompts.insert(logged.shared.begin(), logged.shared.end());
  for (const ThoughtId id : logged.used) {
    node_of(id);
    use(id);
  }
  spent = logged;
}

}  // namespace banyan::search
