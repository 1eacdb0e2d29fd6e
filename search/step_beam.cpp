// Step-level beam search and diverse verifier tree search: both score steps, and differ in what they keep.
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "banyan/search/beam.hpp"

namespace banyan::search {
namespace {

// Values of paths from the scores of their steps.
class Aggregator {
 public:
  explicit Aggregator(Aggregate rule) : rule_(rule) { paths_[kRootThought] = {}; }

  // Adds the score of a path's last step.
  double add(const Search& s, ThoughtId id, double score) {
    Path path = paths_.at(s[id].parent);
    path.sum += score;
    path.prod *= score;
    path.min = std::min(path.min, score);
    ++path.n_steps;
    paths_[id] = path;
    switch (rule_) {
      case Aggregate::last: return score;
      case Aggregate::min: return path.min;
      case Aggregate::prod: return path.prod;
      case Aggregate::mean: return path.sum / static_cast<double>(path.n_steps);
      case Aggregate::sum: return path.sum;
    }
    return score;
  }

 private:
  struct Path {
    double sum = 0, prod = 1, min = std::numeric_limits<double>::infinity();
    std::int64_t n_steps = 0;
  };
  Aggregate rule_;
  std::unordered_map<ThoughtId, Path> paths_;
};

struct StepOptions {
  SampleOptions step;
  Scorer scorer;
  std::int64_t lookahead = 0;
};

// Scores candidates, or what greedy steps from them lead to.
Task<std::vector<double>> scores_of(Search& s, std::vector<ThoughtId> candidates, StepOptions o) {
  std::vector<ThoughtId> ends = candidates;  // where each candidate's lookahead has come to
  for (std::int64_t i = 0; i < o.lookahead && !s.stopped(); ++i) {
    SampleOptions greedy = o.step;
    greedy.n = 1;
    greedy.sampler.temperature = 0;
    const auto open = s.open_of(ends);
    if (open.empty()) break;
    const auto further = co_await s.sample(open, greedy);
    for (const ThoughtId id : further) std::replace(ends.begin(), ends.end(), s[id].parent, id);
  }
  co_return co_await s.score(ends, o.scorer);
}

// Candidates of a level with their values.
struct Level {
  std::vector<ThoughtId> ids;
  std::vector<double> values;
};

Task<Level> next_level(Search& s, std::vector<ThoughtId> parents, StepOptions o, Duplicates rule,
                       Aggregator& aggregator) {
  Level level;
  const auto drawn = co_await s.sample(std::move(parents), o.step);
  std::unordered_set<std::string> states;
  std::vector<ThoughtId> zero;
  for (const ThoughtId id : drawn) {
    if (rule == Duplicates::keep || states.insert(s.state(id)).second) {
      level.ids.push_back(id);
    } else if (rule == Duplicates::zero) {
      zero.push_back(id);
    }
  }
  level.values = co_await scores_of(s, level.ids, std::move(o));
  for (const ThoughtId id : zero) {
    level.ids.push_back(id);
    level.values.push_back(0);
  }
  for (std::size_t i = 0; i < level.ids.size(); ++i) {
    level.values[i] = aggregator.add(s, level.ids[i], level.values[i]);
    s.set_value(level.ids[i], level.values[i]);
  }
  co_return level;
}

void check(const char* name, std::int64_t value, std::int64_t least) {
  if (value >= least) return;
  throw Error(ErrorCode::usage, name, std::to_string(value) + " must be at least " + std::to_string(least));
}

}  // namespace

Task<void> step_beam(Search& s, StepBeam o) {
  check("width", static_cast<std::int64_t>(o.width), 1);
  check("branch", o.branch, 1);
  check("lookahead", o.lookahead, 0);
  o.step.n = o.branch;
  const StepOptions step{o.step, o.scorer, o.lookahead};
  Aggregator aggregator(o.aggregate);
  std::vector<ThoughtId> beam(o.width, kRootThought);
  for (std::int64_t i = 0; i < o.n_levels && !beam.empty() && !s.stopped(); ++i) {
    const Level level = co_await next_level(s, beam, step, o.duplicates, aggregator);
    beam = s.keep_best(level.ids, level.values, o.width);
    if (o.max_answers > 0 && static_cast<std::int64_t>(s.finished().size()) >= o.max_answers) break;
  }
}

Task<void> dvts(Search& s, Dvts o) {
  check("n_subtrees", o.n_subtrees, 1);
  check("branch", o.branch, 1);
  check("lookahead", o.lookahead, 0);
  o.step.n = o.branch;
  const StepOptions step{o.step, o.scorer, o.lookahead};
  Aggregator aggregator(o.aggregate);
  std::vector<ThoughtId> tips(static_cast<std::size_t>(o.n_subtrees), kRootThought);  // where each subtree goes on
  std::vector<ThoughtId> last;  // the candidates that each subtree ended with
  for (std::int64_t i = 0; i < o.n_levels && !tips.empty() && !s.stopped(); ++i) {
    const Level level = co_await next_level(s, tips, step, Duplicates::keep, aggregator);
    std::unordered_map<std::int64_t, std::vector<std::size_t>> subtrees;  // candidates of each
    std::vector<std::int64_t> order;
    for (std::size_t k = 0; k < level.ids.size(); ++k) {
      const ThoughtRecord& t = s[level.ids[k]];
      const std::int64_t subtree = t.parent == kRootThought ? -1 - t.child_index / o.branch : t.parent;
      if (subtrees[subtree].empty()) order.push_back(subtree);
      subtrees[subtree].push_back(k);
    }
    if (!level.ids.empty()) tips.clear();
    for (const std::int64_t subtree : order) {
      const auto& of = subtrees[subtree];
      const std::size_t best = *std::max_element(of.begin(), of.end(), [&level](std::size_t a, std::size_t b) {
        return std::isnan(level.values[b]) ? false : std::isnan(level.values[a]) || level.values[a] < level.values[b];
      });
      // A subtree whose best candidate has finished is done.
      if (s.is_open(level.ids[best]) && i + 1 < o.n_levels) {
        tips.push_back(level.ids[best]);
      } else {
        for (const std::size_t k : of) last.push_back(level.ids[k]);
      }
    }
    if (level.ids.empty()) break;
    std::vector<ThoughtId> kept = tips;
    for (const ThoughtId id : last) {
      if (s.is_open(id)) kept.push_back(id);
    }
    s.keep_only(kept);
  }
  if (o.returned == Dvts::Returned::completed) co_return;
  for (const ThoughtId tip : tips) {
    if (tip != kRootThought) last.push_back(tip);
  }
  ThoughtId best = kNoThought;
  for (const ThoughtId id : last) {
    if (best == kNoThought || s[id].value > s[best].value || (std::isnan(s[best].value) && !std::isnan(s[id].value))) {
      best = id;
    }
  }
  if (best != kNoThought) s.choose(best);
}

}  // namespace banyan::search
