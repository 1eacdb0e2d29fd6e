// The search: reading, bookkeeping, the chain of stoppers, the result.
#include "banyan/search/search.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "search_state.hpp"

namespace banyan::search {

std::string_view to_string(ThoughtState state) {
  switch (state) {
    case ThoughtState::open: return "open";
    case ThoughtState::inner: return "inner";
    case ThoughtState::finished: return "finished";
    case ThoughtState::dropped: return "dropped";
    case ThoughtState::failed: return "failed";
  }
  return "unknown";
}

std::string_view to_string(StopReason reason) {
  switch (reason) {
    case StopReason::none: return "none";
    case StopReason::tokens: return "tokens";
    case StopReason::prefill_tokens: return "prefill_tokens";
    case StopReason::kv_bytes: return "kv_bytes";
    case StopReason::thoughts: return "thoughts";
    case StopReason::scorer_calls: return "scorer_calls";
    case StopReason::wall_time: return "wall_time";
    case StopReason::first_success: return "first_success";
    case StopReason::converged: return "converged";
    case StopReason::stopper: return "stopper";
  }
  return "unknown";
}

namespace {

double or_lowest(double value) { return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value; }

double steady_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void check(const Budget& budget) {
  const auto at_least = [](const char* name, double value, double least) {
    if (value >= least) return;
    throw Error(ErrorCode::usage, std::string("budget.") + name,
                std::to_string(value) + " must be at least " + std::to_string(least));
  };
  at_least("tokens", static_cast<double>(budget.tokens), 0);
  at_least("prefill_tokens", static_cast<double>(budget.prefill_tokens), 0);
  at_least("kv_bytes", static_cast<double>(budget.kv_bytes), 0);
  at_least("thoughts", static_cast<double>(budget.thoughts), 0);
  at_least("scorer_calls", static_cast<double>(budget.scorer_calls), 0);
  at_least("wall_ms", budget.wall_ms, 0);
  at_least("patience", static_cast<double>(budget.patience), 0);
}

}  // namespace

Search::State::State(Search& search_in, Session& session_in, std::shared_ptr<const Problem> problem_in,
                     SearchOptions options_in)
    : search(search_in), session(session_in), problem(std::move(problem_in)), options(std::move(options_in)) {
  check(options.budget);
  if (!problem) throw Error(ErrorCode::usage, "problem", "a search needs one");
  records.emplace_back();
  records[0].stream = hash_stream(problem->id());
  held.push_back(kRootThought);
  started_ms = now_ms();
}

Search::Search(Session& session, std::shared_ptr<const Problem> problem, SearchOptions options)
    : state_(std::make_unique<State>(*this, session, std::move(problem), std::move(options))) {
  const Json start = {
      {"event", "start"}, {"version", 1}, {"problem", state_->problem->id()}, {"seed", state_->options.seed}};
  state_->emit(start);
}
Search::~Search() = default;

// --- reading -------------------------------------------------------------------------------------------------------

Session& Search::session() const { return state_->session; }
const Problem& Search::problem() const { return *state_->problem; }
const SearchOptions& Search::options() const { return state_->options; }
std::int64_t Search::size() const { return static_cast<std::int64_t>(state_->records.size()); }
const ThoughtRecord& Search::operator[](ThoughtId id) const { return state_->at(id).thought; }
const std::vector<ThoughtId>& Search::children(ThoughtId id) const { return state_->at(id).children; }
const std::vector<ThoughtId>& Search::finished() const { return state_->finished; }

std::vector<ThoughtId> Search::path(ThoughtId id) const {
  std::vector<ThoughtId> ids;
  for (; id != kRootThought; id = (*this)[id].parent) ids.push_back(id);
  std::reverse(ids.begin(), ids.end());
  return ids;
}

std::string Search::state(ThoughtId id) const {
  std::vector<ThoughtId> parts;
  for (; id != kRootThought; id = (*this)[id].parent) {
    parts.push_back(id);
    if ((*this)[id].replaces) break;
  }
  std::string text;
  for (auto i = parts.rbegin(); i != parts.rend(); ++i) text += (*this)[*i].text;
  return text;
}

std::vector<ThoughtId> Search::open_of(const std::vector<ThoughtId>& ids) const {
  std::vector<ThoughtId> open;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(open), [this](ThoughtId id) { return is_open(id); });
  return open;
}

Counters Search::counters() const {
  Counters c = state_->counters;
  c.prefill_saved = state_->n_on_paths - c.prefill_computed;
  std::vector<bool> kept(state_->records.size());
  for (ThoughtId id = size() - 1; id > 0; --id) {  // parents come before children
    const ThoughtRecord& t = (*this)[id];
    const auto i = static_cast<std::size_t>(id);
    if (t.state != ThoughtState::dropped && t.state != ThoughtState::failed) kept[i] = true;
    if (!kept[i]) continue;
    kept[static_cast<std::size_t>(t.parent)] = true;
    if (state_->at(id).drawn) c.tokens_kept += static_cast<std::int64_t>(t.tokens.size());
  }
  return c;
}

SearchResult Search::result() const {
  SearchResult r;
  r.stop = state_->stop;
  r.counters = counters();
  r.error = state_->error;
  const auto better = [this](ThoughtId a, ThoughtId b) {  // of partial paths
    return std::tuple(or_lowest((*this)[a].value), (*this)[a].depth, -a) >
           std::tuple(or_lowest((*this)[b].value), (*this)[b].depth, -b);
  };
  if (r.stop == StopReason::first_success) {
    r.best = state_->success;
  } else if (state_->chosen != kNoThought) {
    r.best = state_->chosen;
  } else if (!state_->finished.empty()) {
    r.best = *std::max_element(state_->finished.begin(), state_->finished.end(), [this](ThoughtId a, ThoughtId b) {
      return std::tuple(or_lowest((*this)[a].value), -a) < std::tuple(or_lowest((*this)[b].value), -b);
    });
  } else {
    std::vector<ThoughtId> candidates;
    for (const ThoughtId id : state_->held) {
      if (id != kRootThought && is_open(id)) candidates.push_back(id);
    }
    if (candidates.empty()) {
      for (ThoughtId id = 1; id < size(); ++id) {
        if ((*this)[id].state != ThoughtState::failed) candidates.push_back(id);
      }
    }
    for (const ThoughtId id : candidates) {
      if (r.best == kRootThought || better(id, r.best)) r.best = id;
    }
  }
  r.complete = (*this)[r.best].state == ThoughtState::finished;
  r.text = state(r.best);
  r.value = (*this)[r.best].value;
  if (r.complete) r.answer = state_->problem->answer(r.text);
  if (!r.error && r.best == kRootThought && r.counters.n_failed > 0) {
    for (ThoughtId id = 1; id < size() && !r.error; ++id) {
      if ((*this)[id].state != ThoughtState::failed) continue;
      r.error = Error(ErrorCode::bad_input, state_->problem->id(),
                      "none of the " + std::to_string(r.counters.n_thoughts) +
                          " thoughts could be drawn; the first: " + (*this)[id].error);
    }
  }
  return r;
}

double Search::uniform(std::string_view purpose, std::uint64_t i, std::uint64_t k) const {
  return uniform01({.seed = state_->options.seed,
                    .prompt = mix(state_->at(kRootThought).stream, hash_stream(purpose)),
                    .sample = i,
                    .position = k});
}

// --- bookkeeping ---------------------------------------------------------------------------------------------------

std::vector<ThoughtId> Search::keep_best(const std::vector<ThoughtId>& ids, const std::vector<double>& values,
                                         std::size_t n) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (is_open(ids[i])) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&values](std::size_t a, std::size_t b) { return or_lowest(values[a]) > or_lowest(values[b]); });
  std::vector<ThoughtId> best;
  for (std::size_t i = 0; i < std::min(n, order.size()); ++i) best.push_back(ids[order[i]]);
  keep_only(best);
  return best;
}

void Search::keep_only(const std::vector<ThoughtId>& ids) {
  State& s = *state_;
  const std::set<ThoughtId> kept(ids.begin(), ids.end());
  std::set<ThoughtId> on_path;
  for (const ThoughtId id : kept) {
    for (ThoughtId up = (*this)[id].parent; up != kNoThought && is_open(up) && on_path.insert(up).second;) {
      up = (*this)[up].parent;
    }
  }
  // Deepest first, so that a thought whose last child goes is seen after that child.
  std::vector<ThoughtId> before;
  std::swap(before, s.held);
  std::sort(before.begin(), before.end());
  for (auto id = before.rbegin(); id != before.rend(); ++id) {
    ThoughtRecord& t = s.at(*id).thought;
    if (kept.contains(*id)) {
      s.held.push_back(*id);
      continue;
    }
    if (t.state == ThoughtState::open) {
      t.state = on_path.contains(*id) || *id == kRootThought ? ThoughtState::inner : ThoughtState::dropped;
    }
    if (*id != kRootThought) s.let_go(*id);
  }
  std::reverse(s.held.begin(), s.held.end());
  s.emit_ids("keep", ids);
}

void Search::drop(ThoughtId id) {
  ThoughtRecord& t = state_->at(id).thought;
  if (t.state == ThoughtState::open) t.state = ThoughtState::dropped;
  state_->let_go(id);
  state_->emit_ids("drop", {id});
}

void Search::finish(ThoughtId id) {
  ThoughtRecord& t = state_->at(id).thought;
  if (t.state == ThoughtState::finished || t.state == ThoughtState::failed) return;
  t.state = ThoughtState::finished;
  state_->note_finished(id);
  state_->emit_ids("finish", {id});
}

void Search::choose(ThoughtId id) {
  state_->chosen = id;
  state_->emit_ids("choose", {id});
}

void Search::set_value(ThoughtId id, double value) { state_->at(id).thought.value = value; }

void Search::State::note_finished(ThoughtId id) {
  finished.push_back(id);
  if (options.budget.first_success && success == kNoThought && problem->verify(search.state(id)).value_or(0) >= 1) {
    success = id;
  }
}

// --- stoppers ------------------------------------------------------------------------------------------------------

double Search::State::now_ms() const { return options.clock_ms ? options.clock_ms() : steady_ms(); }

namespace {

// Reasons that lie outside the search's own events, and so are events themselves.
bool from_outside(StopReason reason) { return reason == StopReason::wall_time || reason == StopReason::stopper; }

// `at`: the call of stopped() that it answers, so that a resumed search stops at the same one.
Json stop_event(StopReason reason, std::int64_t at) {
  return {{"event", "stop"}, {"at", at}, {"stop", to_string(reason)}};
}

}  // namespace

bool Search::stopped() {
  State& s = *state_;
  ++s.n_stop_asked;
  if (s.stop == StopReason::none && !s.ended) {
    s.stop = s.reached();
    if (from_outside(s.stop)) s.emit(stop_event(s.stop, s.n_stop_asked));
  }
  return s.stop != StopReason::none || s.ended;
}

void Search::stop(StopReason reason) {
  State& s = *state_;
  if (s.stop != StopReason::none || s.ended) return;
  s.stop = reason;
  if (s.interrupt) {  // the open wish ends with what it has, and says so in its event
    s.interrupted = true;
    const auto interrupt = s.interrupt;
    interrupt();
  } else if (from_outside(reason)) {
    s.emit(stop_event(reason, s.n_stop_asked + 1));
  }
}

bool Search::out_of_time() const {
  const double limit = state_->options.budget.wall_ms;
  return limit < std::numeric_limits<double>::infinity() && state_->now_ms() - state_->started_ms >= limit;
}

// The chain: the first link that says stop.
StopReason Search::State::reached() {
  const Budget& b = options.budget;
  const bool replays = replaying();
  if (replays) {
    if (const auto logged = replayed_stop()) return *logged;
  }
  if (success != kNoThought) return StopReason::first_success;
  if (counters.tokens_generated >= b.tokens) return StopReason::tokens;
  if (counters.prefill_computed >= b.prefill_tokens) return StopReason::prefill_tokens;
  if (counters.kv_tokens >= kv_limit()) return StopReason::kv_bytes;
  if (counters.n_thoughts >= b.thoughts) return StopReason::thoughts;
  if (counters.n_scorer_calls >= b.scorer_calls) return StopReason::scorer_calls;
  if (b.patience > 0 && n_stale >= b.patience) return StopReason::converged;
  if (replays) return StopReason::none;
  for (const Stopper& link : options.stoppers) {
    if (link(search)) return StopReason::stopper;
  }
  if (search.out_of_time()) return StopReason::wall_time;
  return StopReason::none;
}

std::int64_t Search::State::kv_limit() const {
  if (options.budget.kv_bytes == kNoLimit) return kNoLimit;
  return options.budget.kv_bytes / std::max<std::int64_t>(1, session.runner(options.lane).kv_bytes_per_token());
}

Search::State::Room Search::State::room_for(std::int64_t max_tokens, bool keep) {
  const Budget& b = options.budget;
  Room room{kNoLimit, max_tokens};
  const auto fit = [&](std::int64_t left, StopReason reason) {
    if (left <= 0) {
      room.n_samples = 0;
      if (stop == StopReason::none) stop = reason;
    } else if (max_tokens > left) {
      room.n_samples = std::min<std::int64_t>(room.n_samples, 1);
      if (left < room.max_tokens) {
        room.max_tokens = left;
        room.cut = reason;
      }
    } else if (max_tokens > 0) {
      room.n_samples = std::min(room.n_samples, left / max_tokens);
    }
  };
  if (b.tokens != kNoLimit) fit(b.tokens - counters.tokens_generated, StopReason::tokens);
  if (keep && b.kv_bytes != kNoLimit) fit(kv_limit() - counters.kv_tokens - n_wish_kv, StopReason::kv_bytes);
  if (keep && b.thoughts != kNoLimit) {
    const std::int64_t left = b.thoughts - counters.n_thoughts - n_wish_thoughts;
    room.n_samples = std::min(room.n_samples, std::max<std::int64_t>(left, 0));
    if (left <= 0 && stop == StopReason::none) stop = StopReason::thoughts;
  }
  return room;
}

void Search::end(std::optional<Error> error, std::int64_t n_drawn) {
  State& s = *state_;
  if (s.ended) return;
  s.ended = true;
  s.error = std::move(error);
  const bool log_is_wrong = s.error && s.replaying();
  s.counters.tokens_lost =
      std::max<std::int64_t>(0, n_drawn + s.n_replayed - (s.counters.tokens_generated - s.counters.tokens_chosen));
  s.counters.tokens_generated += s.counters.tokens_lost;
  if (s.stop == StopReason::none && s.success != kNoThought) s.stop = StopReason::first_success;
  const SearchResult r = result();
  Json event = {{"event", "end"}, {"stop", to_string(r.stop)}, {"best", r.best}, {"complete", r.complete}};
  if (s.error) event["error"] = sanitize_utf8(s.error->what());
  if (!log_is_wrong) s.emit(event);
  for (State::Record& r : s.records) r.node = Node();
  s.shared_prompts.clear();
  s.options.root = Node();
  s.counters.kv_tokens = 0;
}

}  // namespace banyan::search
