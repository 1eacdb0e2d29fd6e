// The event log of a search, and the answers that a resumed search takes from it.
//
//   start     version, problem, seed
//   thoughts  of one wish: id, parent, text, tokens, logprobs, …; what proposers spent
//   next      of one wish: ids and their likeliest next tokens
//   values    of one wish: the scorer, ids and values; what the scorer spent
//   keep, drop, finish, choose   ids: what the driver decided
//   stop      by wall time or a stopper, between wishes (within one it stands in the wish's event)
//   end       why it stopped, the best thought, whether that is a finished answer
//
// A search is a function of the answers to its wishes, so a driver that runs again over the logged answers comes to
// where the log ends. Every event that it writes on the way is compared with the log.
#include <cmath>
#include <nlohmann/json.hpp>

#include "banyan/tokenizer.hpp"
#include "search_state.hpp"

namespace banyan::search {
namespace {

// What JSON has no form for is null: a value that there is not, a log-probability of nothing.
Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }
double value_of(const Json& j) { return j.is_null() ? std::numeric_limits<double>::quiet_NaN() : j.get<double>(); }
double logprob_of(const Json& j) { return j.is_null() ? -HUGE_VAL : j.get<double>(); }

FinishReason finish_of(const std::string& name) {
  for (const FinishReason r : {FinishReason::stop, FinishReason::eos, FinishReason::length, FinishReason::context,
                               FinishReason::cancelled, FinishReason::error}) {
    if (name == to_string(r)) return r;
  }
  throw Error(ErrorCode::bad_file, "how", "\"" + name + "\" is no way in which a text ends");
}

StopReason stop_of(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(StopReason::stopper); ++i) {
    if (name == to_string(static_cast<StopReason>(i))) return static_cast<StopReason>(i);
  }
  throw Error(ErrorCode::bad_file, "stop", "\"" + name + "\" is no reason to stop");
}

}  // namespace

void Search::State::emit(const Json& event) {
  const std::string line = event.dump();
  if (replaying()) {
    const std::string& logged = options.journal[n_events];
    if (line != logged) {
      throw Error(ErrorCode::bad_file, "event " + std::to_string(n_events),
                  "the log is of another search: it has " + logged.substr(0, 200) + " where this one has " +
                      line.substr(0, 200));
    }
    ++n_events;
    return;
  }
  ++n_events;
  if (options.on_event) options.on_event(line);
}

bool Search::State::unheard() {
  if (replaying() || options.on_event) return false;
  ++n_events;
  return true;
}

Json Search::State::replayed(std::string_view kind) const {
  const auto fail = [this](const std::string& why) -> Json {
    throw Error(ErrorCode::bad_file, "event " + std::to_string(n_events), why);
  };
  Json event = Json::parse(options.journal[n_events], nullptr, false);
  if (event.is_discarded() || !event.is_object()) return fail("is no JSON object");
  if (event.value("event", "") != kind) {
    return fail("is \"" + event.value("event", "") + "\" where this search has \"" + std::string(kind) + "\"");
  }
  return event;
}

std::optional<StopReason> Search::State::replayed_stop() const {
  if (!options.journal[n_events].starts_with("{\"event\":\"stop\"")) return std::nullopt;
  const Json event = replayed("stop");
  if (event.value("at", std::int64_t{0}) != n_stop_asked) return std::nullopt;
  return stop_of(event.value("stop", ""));
}

namespace {

// Json's own exceptions (a missing key, another type) as ours.
template <class Read>
auto reading(std::size_t event, const Read& read) {
  try {
    return read();
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorCode::bad_file, "event " + std::to_string(event), e.what());
  }
}

template <class Spent>
Json json_of(const Spent& spent) {
  Json by = Json::array();
  for (const auto& [id, n] : spent.by) by.push_back({id, n});
  return {{"generated", spent.generated},
          {"chosen", spent.chosen},
          {"computed", spent.computed},
          {"on_paths", spent.on_paths},
          {"by", std::move(by)},
          {"shared", spent.shared},
          {"used", spent.used}};
}

template <class Spent>
void read_spent(const Json& event, Spent& spent) {
  const Json& j = event.at("spent");
  j.at("generated").get_to(spent.generated);
  j.at("chosen").get_to(spent.chosen);
  j.at("computed").get_to(spent.computed);
  j.at("on_paths").get_to(spent.on_paths);
  for (const Json& entry : j.at("by")) spent.by.emplace_back(entry.at(0), entry.at(1));
  j.at("shared").get_to(spent.shared);
  j.at("used").get_to(spent.used);
}

}  // namespace

void Search::State::emit_thoughts(ThoughtId first, const Spent& spent_now) {
  if (unheard()) return;
  Json list = Json::array();
  for (ThoughtId id = first; id < search.size(); ++id) {
    const Record& r = at(id);
    const ThoughtRecord& t = r.thought;
    Json logprobs = Json::array();
    for (const float x : t.logprobs) logprobs.push_back(number(x));
    Json thought = {{"id", id},
                    {"parent", t.parent},
                    {"state", to_string(t.state)},
                    {"how", to_string(t.how)},
                    {"text", t.text},
                    {"drawn", r.drawn},
                    {"tokens", r.drawn ? t.tokens : r.given},
                    {"n_kept", r.n_kept},
                    {"logprobs", std::move(logprobs)},
                    {"logprob", number(t.logprob)}};
    if (t.replaces) thought["replaces"] = true;
    if (!t.error.empty()) thought["error"] = sanitize_utf8(t.error);
    list.push_back(std::move(thought));
  }
  const Json event = {{"event", "thoughts"},
                      {"wish", counters.n_wishes},
                      {"thoughts", std::move(list)},
                      {"spent", json_of(spent_now)},
                      {"stop", to_string(stop)}};
  emit(event);
}

std::vector<Search::State::NewThought> Search::State::replayed_thoughts(Spent& logged) {
  const Json event = replayed("thoughts");
  return reading(n_events, [&] {
    std::vector<NewThought> news;
    for (const Json& t : event.at("thoughts")) {
      NewThought n;
      t.at("parent").get_to(n.parent);
      n.how = finish_of(t.at("how"));
      t.at("text").get_to(n.text);
      t.at("drawn").get_to(n.drawn);
      t.at("tokens").get_to(n.tokens);
      t.at("n_kept").get_to(n.n_kept);
      for (const Json& x : t.at("logprobs")) n.logprobs.push_back(static_cast<float>(logprob_of(x)));
      n.logprob = logprob_of(t.at("logprob"));
      n.error = t.value("error", "");
      n.replaces = t.value("replaces", false);
      if (n.parent < 0 || n.parent >= search.size() || n.n_kept < 0 ||
          n.n_kept > static_cast<std::int64_t>(n.tokens.size())) {
        throw Error(ErrorCode::bad_file, "event " + std::to_string(n_events),
                    "thought " + t.at("id").dump() + " has a parent or a count that is not there");
      }
      news.push_back(std::move(n));
    }
    read_spent(event, logged);
    stop = stop_of(event.at("stop"));
    return news;
  });
}

void Search::State::emit_values(const std::string& scorer, const std::vector<ThoughtId>& ids,
                                const std::vector<double>& values) {
  if (unheard()) return;
  Json numbers = Json::array();
  for (const double v : values) numbers.push_back(number(v));
  const Json event = {{"event", "values"},
                      {"wish", counters.n_wishes},
                      {"scorer", scorer},
                      {"ids", ids},
                      {"values", std::move(numbers)},
                      {"spent", json_of(spent)},
                      {"stop", to_string(stop)}};
  emit(event);
}

std::vector<double> Search::State::replayed_values(std::size_t n, Spent& logged) {
  const Json event = replayed("values");
  return reading(n_events, [&] {
    std::vector<double> values;
    for (const Json& v : event.at("values")) values.push_back(value_of(v));
    if (values.size() != n) {
      throw Error(ErrorCode::bad_file, "event " + std::to_string(n_events),
                  "has " + std::to_string(values.size()) + " values for " + std::to_string(n) + " thoughts");
    }
    read_spent(event, logged);
    for (const auto& [id, tokens] : logged.by) {
      if (id < 0 || id >= search.size()) {
        throw Error(ErrorCode::bad_file, "event " + std::to_string(n_events),
                    "names thought " + std::to_string(id) + ", which is not there");
      }
    }
    stop = stop_of(event.at("stop"));
    return values;
  });
}

void Search::State::emit_next(const std::vector<ThoughtId>& ids, const std::vector<std::vector<TokenLogprob>>& top) {
  if (unheard()) return;
  Json lists = Json::array();
  for (const auto& tokens : top) {
    Json list = Json::array();
    for (const TokenLogprob& t : tokens) list.push_back({t.id, number(t.logprob)});
    lists.push_back(std::move(list));
  }
  const Json event = {{"event", "next"},
                      {"wish", counters.n_wishes},
                      {"ids", ids},
                      {"top", std::move(lists)},
                      {"stop", to_string(stop)}};
  emit(event);
}

std::vector<std::vector<TokenLogprob>> Search::State::replayed_next() {
  const Json event = replayed("next");
  return reading(n_events, [&] {
    std::vector<std::vector<TokenLogprob>> top;
    for (const Json& list : event.at("top")) {
      top.emplace_back();
      for (const Json& t : list) {
        top.back().push_back({t.at(0).get<TokenId>(), static_cast<float>(logprob_of(t.at(1)))});
      }
    }
    stop = stop_of(event.at("stop"));
    return top;
  });
}

void Search::State::emit_ids(const char* kind, const std::vector<ThoughtId>& ids) {
  if (unheard()) return;
  const Json event = {{"event", kind}, {"ids", ids}};
  emit(event);
}

}  // namespace banyan::search
