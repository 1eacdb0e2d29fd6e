#include "banyan/search/mcts.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "random_variates.hpp"

namespace banyan::search {
namespace {

class Walk {
 public:
  Walk(Search& s, const Mcts& o) : s_(s), o_(o), nodes_(1) {}

  MctsNode& operator[](ThoughtId id) { return nodes_[static_cast<std::size_t>(id)]; }
  const std::vector<MctsNode>& nodes() const { return nodes_; }

  // From the problem to a leaf: a thought that was not visited, or cannot be continued.
  ThoughtId select() {
    ThoughtId id = kRootThought;
    for (ThoughtId next = id; next != kNoThought; next = (*this)[id].expanded ? best_child(id) : kNoThought) id = next;
    return id;
  }

  // Children that an expansion made: their priors.
  void expanded(ThoughtId id) {
    nodes_.resize(static_cast<std::size_t>(s_.size()));
    (*this)[id].expanded = true;
    const auto children = choices(id);
    double total = 0;
    for (const ThoughtId child : children) total += (*this)[child].prior = prior_of(child);
    for (const ThoughtId child : children) {
      MctsNode& n = (*this)[child];
      n.prior = total > 0 ? n.prior / total : 1.0 / static_cast<double>(children.size());
    }
    if (id != kRootThought || o_.noise_weight <= 0) return;
    Variates random(s_, "noise", 0);
    std::vector<double> noise;
    for (std::size_t i = 0; i < children.size(); ++i) noise.push_back(random.gamma(o_.noise_alpha));
    double sum = 0;
    for (const double x : noise) sum += x;
    for (std::size_t i = 0; i < children.size() && sum > 0; ++i) {
      MctsNode& n = (*this)[children[i]];
      n.prior = (1 - o_.noise_weight) * n.prior + o_.noise_weight * noise[i] / sum;
    }
  }

  void depart(ThoughtId leaf) {
    on_path(leaf, [](MctsNode& n) { ++n.n_in_flight; });
  }
  void arrive(ThoughtId leaf, double value) {
    on_path(leaf, [value](MctsNode& n) {
      --n.n_in_flight;
      ++n.n_visits;
      n.value_sum += value;
    });
  }
  void turn_back(ThoughtId leaf) {
    on_path(leaf, [](MctsNode& n) { --n.n_in_flight; });
  }

  // From the problem down, always the child of the highest measure, of equals the first.
  template <class Measure>
  ThoughtId follow(const Measure& measure) {
    ThoughtId id = kRootThought;
    for (;;) {
      ThoughtId best = kNoThought;
      for (const ThoughtId child : s_.children(id)) {
        if (visited(child) && (best == kNoThought || measure((*this)[child]) > measure((*this)[best]))) best = child;
      }
      if (best == kNoThought) return id;
      id = best;
    }
  }

 private:
  bool visited(ThoughtId id) { return (*this)[id].n_visits + (*this)[id].n_in_flight > 0; }

  std::vector<ThoughtId> choices(ThoughtId id) const {
    std::vector<ThoughtId> usable;
    for (const ThoughtId child : s_.children(id)) {
      if (s_[child].state != ThoughtState::failed) usable.push_back(child);
    }
    return usable;
  }

  double prior_of(ThoughtId id) const {
    if (o_.prior) return std::max(0.0, o_.prior(s_, id));
    const auto n = static_cast<double>(std::max<std::size_t>(1, s_[id].tokens.size()));
    return std::exp(s_[id].logprob / n);
  }

  // kNoThought: there is none.
  ThoughtId best_child(ThoughtId parent) {
    const MctsNode& up = (*this)[parent];
    // The parent's own first visit chose none of its children; at least 1, so that priors count from the first choice.
    const auto n_up = static_cast<double>(std::max<std::int64_t>(1, up.n_visits + up.n_in_flight));
    const double c = std::log((n_up + o_.c_base + 1) / o_.c_base) + o_.c_init;
    ThoughtId best = kNoThought;
    double best_score = 0;
    for (const ThoughtId child : s_.children(parent)) {
      if (s_[child].state == ThoughtState::failed) continue;
      const MctsNode& n = (*this)[child];
      const auto count = static_cast<double>(n.n_visits + n.n_in_flight);
      double mean = n.n_visits > 0 ? n.mean() : up.mean();
      if (o_.virtual_loss != 0 && count > 0) {
        mean = (mean * count - o_.virtual_loss * static_cast<double>(n.n_in_flight)) / count;
      }
      double score = 0;
      if (o_.rule == Mcts::Rule::puct) {
        score = mean + c * n.prior * std::sqrt(n_up) / (1 + count);
      } else if (count > 0) {
        score = mean + o_.c_uct * std::sqrt(std::log(n_up) / count);
      } else {
        score = std::numeric_limits<double>::max();
      }
      const bool better =
          best == kNoThought || score > best_score || (score == best_score && n.prior > (*this)[best].prior);
      if (better) {
        best = child;
        best_score = score;
      }
    }
    return best;
  }

  template <class Change>
  void on_path(ThoughtId id, const Change& change) {
    for (; id != kNoThought; id = s_[id].parent) change((*this)[id]);
  }

  Search& s_;
  const Mcts& o_;
  std::vector<MctsNode> nodes_;
};

// Values of leaves; those that were visited before have theirs.
Task<std::vector<double>> values_of(Search& s, std::vector<ThoughtId> leaves, const Mcts* o) {
  std::vector<ThoughtId> open, ended;
  for (const ThoughtId id : leaves) {
    if (!std::isnan(s[id].value)) continue;
    (o->terminal.values && !s.is_open(id) ? ended : open).push_back(id);
  }
  co_await s.score(open, o->evaluate);
  co_await s.score(ended, o->terminal);
  std::vector<double> values;
  for (const ThoughtId id : leaves) {
    values.push_back(s[id].value);
    if (std::isnan(values.back()) && !s.stopped()) {
      throw Error(ErrorCode::bad_input, "thought " + std::to_string(id),
                  "has no value (NaN): " + s.state(id).substr(0, 200));
    }
  }
  co_return values;
}

void check(const Mcts& o) {
  const auto positive = [](const char* name, std::int64_t value) {
    if (value < 1) throw Error(ErrorCode::usage, name, std::to_string(value) + " must be at least 1");
  };
  positive("n_iterations", o.n_iterations);
  positive("batch", o.batch);
  positive("n_levels", o.n_levels);
  if (!(o.noise_weight >= 0 && o.noise_weight <= 1) || !(o.noise_alpha > 0)) {
    throw Error(ErrorCode::usage, "noise",
                "weight " + std::to_string(o.noise_weight) + " must be in [0, 1], alpha " +
                    std::to_string(o.noise_alpha) + " above 0");
  }
}

}  // namespace

Task<void> mcts(Search& s, Mcts o) {
  check(o);
  Walk walk(s, o);
  std::vector<ThoughtId> expandable{kRootThought};
  std::int64_t n_done = 0;
  ThoughtId best_leaf = kNoThought, last_leaf = kNoThought, last_finished = kNoThought;
  while (n_done < o.n_iterations && !s.stopped()) {
    if (!expandable.empty()) co_await o.expand(s, expandable);
    for (const ThoughtId id : expandable) walk.expanded(id);
    if (walk.select() == kRootThought) break;  // nothing can be thought of

    // Gather: a leaf that is in the batch already ends it.
    std::vector<ThoughtId> leaves;
    while (static_cast<std::int64_t>(leaves.size()) < std::min(o.batch, o.n_iterations - n_done)) {
      const ThoughtId leaf = walk.select();
      if (std::find(leaves.begin(), leaves.end(), leaf) != leaves.end()) break;
      walk.depart(leaf);
      leaves.push_back(leaf);
    }
    const auto values = co_await values_of(s, leaves, &o);
    expandable.clear();
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (std::isnan(values[i])) {  // the budget ended before it
        walk.turn_back(leaves[i]);
        continue;
      }
      walk.arrive(leaves[i], values[i]);
      ++n_done;
      last_leaf = leaves[i];
      if (best_leaf == kNoThought || values[i] > s[best_leaf].value) best_leaf = leaves[i];
      if (s[leaves[i]].state == ThoughtState::finished) last_finished = leaves[i];
      if (s.is_open(leaves[i]) && !walk[leaves[i]].expanded && s[leaves[i]].depth < o.n_levels) {
        expandable.push_back(leaves[i]);
      }
    }
  }
  assert(std::all_of(walk.nodes().begin(), walk.nodes().end(), [](const MctsNode& n) { return n.n_in_flight == 0; }));

  ThoughtId answer = kNoThought;
  switch (o.answer) {
    case Mcts::Answer::max_reward: break;  // what a search answers by itself
    case Mcts::Answer::follow_max: answer = walk.follow([](const MctsNode& n) { return n.mean(); }); break;
    case Mcts::Answer::max_visit:
      answer = walk.follow([](const MctsNode& n) { return static_cast<double>(n.n_visits); });
      break;
    case Mcts::Answer::max_iter: answer = best_leaf; break;
    case Mcts::Answer::last_iter: answer = last_leaf; break;
    case Mcts::Answer::last_terminal_iter: answer = last_finished; break;
  }
  if (answer != kNoThought && answer != kRootThought) s.choose(answer);
  if (o.on_end) o.on_end(walk.nodes());
}

}  // namespace banyan::search
