#include <cmath>

#include "banyan/search/revise.hpp"
#include "random_variates.hpp"

namespace banyan::search {
namespace {

// Values that an arm has seen, and draws of the next one from what they say.
struct Arm {
  double n = 0, sum = 0, sum_of_squares = 0;

  void see(double value) {
    n += 1;
    sum += value;
    sum_of_squares += value * value;
  }

  double draw(AbMcts::Posterior posterior, Variates& random) const {
    if (posterior == AbMcts::Posterior::beta) return random.beta(0.5 + sum, 0.5 + n - sum);
    constexpr double kMean = 0, kKappa = 1, kNu = 1, kTau2 = 0.1;
    const double mean = n > 0 ? sum / n : 0;
    const double kappa = kKappa + n, nu = kNu + n;
    const double spread = std::max(0.0, sum_of_squares - n * mean * mean);
    const double nu_tau2 = kNu * kTau2 + spread + kKappa * n / kappa * (mean - kMean) * (mean - kMean);
    const double variance = nu_tau2 / random.chi_squared(nu);
    const double location = (kKappa * kMean + n * mean) / kappa + std::sqrt(variance / kappa) * random.normal();
    return location + std::sqrt(variance) * random.normal();
  }
};

struct Arms {
  Arm generate, go_on, itself;
};

class Tree {
 public:
  Tree(Search& s, const AbMcts& o) : s_(s), o_(o) {}

  // Where the next answer is to be drawn.
  ThoughtId choose(std::int64_t draw_number) {
    Variates random(s_, "thompson", static_cast<std::uint64_t>(draw_number));
    arms_.resize(static_cast<std::size_t>(s_.size()));
    ThoughtId id = kRootThought;
    for (;;) {
      std::vector<ThoughtId> children;
      for (const ThoughtId child : s_.children(id)) {
        if (usable(child)) children.push_back(child);
      }
      if (children.empty()) return id;
      const double generate = at(id).generate.draw(o_.posterior, random);
      const double go_on = at(id).go_on.draw(o_.posterior, random);
      if (generate >= go_on) return id;
      ThoughtId best = children[0];
      double best_draw = 0;
      for (const ThoughtId child : children) {
        const double draw = at(child).itself.draw(o_.posterior, random);
        if (child != children[0] && draw <= best_draw) continue;
        best = child;
        best_draw = draw;
      }
      id = best;
    }
  }

  void see(ThoughtId id, double value) {
    arms_.resize(static_cast<std::size_t>(s_.size()));
    at(id).itself.see(value);
    at(s_[id].parent).generate.see(value);
    for (ThoughtId up = s_[id].parent; up != kRootThought; up = s_[up].parent) {
      at(up).itself.see(value);
      at(s_[up].parent).go_on.see(value);
    }
  }

 private:
  Arms& at(ThoughtId id) { return arms_[static_cast<std::size_t>(id)]; }
  bool usable(ThoughtId id) const {
    const ThoughtState state = s_[id].state;
    return state == ThoughtState::open || (o_.revises && state == ThoughtState::finished);
  }

  Search& s_;
  const AbMcts& o_;
  std::vector<Arms> arms_;
};

}  // namespace

Task<void> ab_mcts(Search& s, AbMcts o) {
  if (o.n_answers < 1 || o.batch < 1) {
    throw Error(ErrorCode::usage, o.n_answers < 1 ? "n_answers" : "batch",
                std::to_string(std::min(o.n_answers, o.batch)) + " must be at least 1");
  }
  Tree tree(s, o);
  for (std::int64_t n_drawn = 0; n_drawn < o.n_answers && !s.stopped();) {
    std::vector<ThoughtId> parents;
    while (static_cast<std::int64_t>(parents.size()) < o.batch && n_drawn < o.n_answers) {
      parents.push_back(tree.choose(n_drawn++));
    }
    const auto answers = co_await o.generate(s, parents);
    if (o.revises) {
      for (const ThoughtId id : answers) s.finish(id);
    }
    const auto values = co_await s.score(answers, o.scorer);
    for (std::size_t i = 0; i < answers.size(); ++i) {
      const bool fits =
          o.posterior == AbMcts::Posterior::gaussian ? std::isfinite(values[i]) : values[i] >= 0 && values[i] <= 1;
      if (fits) {
        tree.see(answers[i], values[i]);
      } else if (!std::isnan(values[i]) || !s.stopped()) {
        throw Error(ErrorCode::bad_input, "thought " + std::to_string(answers[i]),
                    "has the value " + std::to_string(values[i]) + ", which this posterior cannot take");
      }
    }
  }
}

}  // namespace banyan::search
