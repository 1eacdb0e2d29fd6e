#include "banyan/search/tot.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

namespace banyan::search {
namespace {

double or_lowest(double value) { return std::isnan(value) ? -std::numeric_limits<double>::infinity() : value; }

// Applies the rule for duplicates, and scores what is left of `thoughts`; the values stand in their order.
Task<std::vector<double>> evaluate(Search& s, std::vector<ThoughtId>& thoughts, Scorer scorer, Duplicates rule) {
  std::unordered_set<std::string> states;
  std::vector<ThoughtId> judged, left;
  for (const ThoughtId id : thoughts) {
    const bool first = rule == Duplicates::keep || states.insert(s.state(id)).second;
    if (first) judged.push_back(id);
    if (first || rule != Duplicates::merge) left.push_back(id);
  }
  const auto scores = co_await s.score(judged, std::move(scorer));
  thoughts = std::move(left);
  std::vector<double> values(thoughts.size(), 0.0);
  for (std::size_t i = 0, k = 0; i < thoughts.size(); ++i) {
    if (k < judged.size() && judged[k] == thoughts[i]) {
      values[i] = scores[k++];
    } else {
      s.set_value(thoughts[i], 0);
    }
  }
  co_return values;
}

std::vector<std::size_t> by_value(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&values](std::size_t a, std::size_t b) { return or_lowest(values[a]) > or_lowest(values[b]); });
  return order;
}

std::vector<std::size_t> drawn_by_value(const Search& s, const std::vector<double>& values, std::size_t n,
                                        std::int64_t level, bool again) {
  std::vector<double> weights;
  for (const double v : values) weights.push_back(v > 0 && std::isfinite(v) ? v : 0.0);
  std::vector<std::size_t> drawn;
  std::vector<bool> taken(values.size());
  while (drawn.size() < (again || n < values.size() ? n : values.size()) && !values.empty()) {
    double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    if (total <= 0) {
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = taken[i] && !again ? 0.0 : 1.0;
      total = std::accumulate(weights.begin(), weights.end(), 0.0);
    }
    double at = s.uniform("select", static_cast<std::uint64_t>(level), drawn.size()) * total;
    std::size_t i = 0, last = 0;  // last: with a weight, should rounding carry us past the end
    for (; i < weights.size(); ++i) {
      if (weights[i] <= 0) continue;
      last = i;
      if (at < weights[i]) break;
      at -= weights[i];
    }
    i = std::min(i, last);
    drawn.push_back(i);
    taken[i] = true;
    if (!again) weights[i] = 0;
  }
  return drawn;
}

}  // namespace

TotBfs princeton(TotBfs options) {
  options.duplicates = Duplicates::zero;
  if (options.select == Selection::sample) options.select = Selection::sample_with_replacement;
  return options;
}

Task<void> tot_bfs(Search& s, TotBfs o) {
  if (o.width < 1) throw Error(ErrorCode::usage, "width", "0 thoughts kept: must be at least 1");
  std::vector<ThoughtId> frontier{kRootThought};
  for (std::int64_t level = 0; level < o.n_levels && !frontier.empty() && !s.stopped(); ++level) {
    auto thoughts = co_await o.generate(s, frontier);
    const auto values = co_await evaluate(s, thoughts, o.evaluate, o.duplicates);
    auto chosen = o.select == Selection::greedy
                      ? by_value(values)
                      : drawn_by_value(s, values, o.width, level, o.select == Selection::sample_with_replacement);
    chosen.resize(std::min(chosen.size(), o.width));
    std::vector<ThoughtId> selected;
    for (const std::size_t i : chosen) selected.push_back(thoughts[i]);
    if (o.on_level) o.on_level(level, thoughts, values, selected);
    s.keep_only(selected);
    frontier = s.open_of(selected);
  }
}

Task<void> tot_dfs(Search& s, TotDfs o) {
  if (o.max_per_state < 1) throw Error(ErrorCode::usage, "max_per_state", "0 children: must be at least 1");
  struct Visit {
    ThoughtId id;
    bool leave;  // everything below it was seen
  };
  std::vector<Visit> stack{{kRootThought, false}};
  std::int64_t n_visits = 0;
  while (!stack.empty() && !s.stopped()) {
    const Visit visit = stack.back();
    stack.pop_back();
    if (visit.leave) {
      s.drop(visit.id);
      continue;
    }
    if (n_visits++ == o.max_visits) break;
    if (visit.id != kRootThought) stack.push_back({visit.id, true});
    std::vector<ThoughtId> parents{visit.id};
    auto thoughts = co_await o.generate(s, parents);
    const auto values = co_await evaluate(s, thoughts, o.evaluate, o.duplicates);
    std::vector<ThoughtId> next;
    for (const std::size_t i : by_value(values)) {
      const ThoughtId id = thoughts[i];
      if (!s.is_open(id)) continue;  // an answer
      const bool visited = next.size() < o.max_per_state && s[id].depth < o.n_levels && values[i] > o.threshold &&
                           !(o.prune && o.prune(s, id));
      if (visited) next.push_back(id);
      if (!visited && s[id].depth < o.n_levels) s.drop(id);
    }
    for (auto id = next.rbegin(); id != next.rend(); ++id) stack.push_back({*id, false});
    if (static_cast<std::int64_t>(s.finished().size()) >= o.max_answers) break;
  }
}

}  // namespace banyan::search
