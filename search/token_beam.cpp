#include <algorithm>
#include <cmath>

#include "banyan/search/beam.hpp"

namespace banyan::search {
namespace {

struct Hypothesis {
  ThoughtId id = kNoThought;
  double score = 0;
};

// The best `width` hypotheses that have ended.
class Ended {
 public:
  explicit Ended(const TokenBeam& o) : o_(o) {}

  double score(double sum, std::int64_t n_tokens) const {
    return sum / std::pow(static_cast<double>(std::max<std::int64_t>(n_tokens, 1)), o_.length_penalty);
  }
  void add(ThoughtId id, double score) {
    const auto at =
        std::upper_bound(best_.begin(), best_.end(), score, [](double s, const Hypothesis& h) { return s > h.score; });
    best_.insert(at, {id, score});
    if (best_.size() > o_.width) best_.pop_back();
  }
  // Whether no running beam is going to matter: `best_sum` is of the best beam, which has n_tokens.
  bool settled(double best_sum, std::int64_t n_tokens) const {
    if (best_.size() < o_.width) return false;
    switch (o_.early_stopping) {
      case TokenBeam::EarlyStopping::when_full: return true;
      case TokenBeam::EarlyStopping::heuristic: return best_.back().score >= score(best_sum, n_tokens);
      case TokenBeam::EarlyStopping::never:
        // Sums only fall. With a positive penalty a longer text may still gain.
        return best_.back().score >= score(best_sum, o_.length_penalty > 0 ? o_.max_tokens : n_tokens);
    }
    return false;
  }
  const std::vector<Hypothesis>& best() const { return best_; }

 private:
  const TokenBeam& o_;
  std::vector<Hypothesis> best_;  // best first
};

struct Candidate {
  double sum;
  std::size_t beam;
  TokenLogprob token;
};

std::vector<Candidate> best_candidates(const Search& s, const std::vector<ThoughtId>& beams,
                                       const std::vector<std::vector<TokenLogprob>>& next, std::size_t n) {
  std::vector<Candidate> all;
  for (std::size_t b = 0; b < next.size(); ++b) {
    for (const TokenLogprob& t : next[b]) {
      if (std::isfinite(t.logprob)) all.push_back({s[beams[b]].path_logprob + t.logprob, b, t});
    }
  }
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(n, all.size()));
  std::partial_sort(all.begin(), end, all.end(), [](const Candidate& a, const Candidate& b) {
    if (a.sum != b.sum) return a.sum > b.sum;
    return a.beam != b.beam ? a.beam < b.beam : a.token.id < b.token.id;
  });
  all.erase(end, all.end());
  return all;
}

}  // namespace

Task<void> token_beam(Search& s, TokenBeam o) {
  if (o.width < 1) throw Error(ErrorCode::usage, "width", "0 beams: must be at least 1");
  if (o.max_tokens < 1) {
    throw Error(ErrorCode::usage, "max_tokens", std::to_string(o.max_tokens) + " must be at least 1");
  }
  const std::vector<TokenId> eos = s.session().runner(s.options().lane).eos_ids();
  const std::size_t n_candidates = o.width * std::max<std::size_t>(2, 1 + eos.size());
  Ended ended(o);
  std::vector<ThoughtId> beams{kRootThought};
  bool settled = false;
  for (std::int64_t n_tokens = 1; n_tokens <= o.max_tokens && !beams.empty() && !settled && !s.stopped(); ++n_tokens) {
    const auto next = co_await s.next(beams, static_cast<std::int64_t>(n_candidates));
    const auto candidates = best_candidates(s, beams, next, n_candidates);
    // The first `width` that go on, and those that end ahead of them among the best `width`.
    std::vector<Search::Token> taken;
    std::vector<bool> ends;
    std::size_t n_running = 0;
    for (std::size_t rank = 0; rank < candidates.size() && n_running < o.width; ++rank) {
      const Candidate& c = candidates[rank];
      const bool is_eos = std::find(eos.begin(), eos.end(), c.token.id) != eos.end();
      if (is_eos && rank >= o.width) continue;
      taken.push_back({beams[c.beam], c.token.id, c.token.logprob});
      n_running += is_eos ? 0 : 1;
    }
    const auto made = s.take(taken);
    std::vector<ThoughtId> running;
    for (const ThoughtId id : made) {
      if (s[id].how == FinishReason::eos || !s.is_open(id)) {  // or the problem says that the path ends here
        const bool uncounted = s[id].how == FinishReason::eos && !o.count_eos;
        const double score = ended.score(s[id].path_logprob, n_tokens - (uncounted ? 1 : 0));
        s.finish(id);
        s.set_value(id, score);
        ended.add(id, score);
      } else {
        s.set_value(id, ended.score(s[id].path_logprob, n_tokens));
        running.push_back(id);
      }
    }
    s.keep_only(running);
    if (running.empty()) break;
    beams = running;
    settled = ended.settled(s[beams[0]].path_logprob, n_tokens);
  }
  if (!settled) {  // cut off: by max_tokens, or by the budget
    for (const ThoughtId id : beams) {
      if (id != kRootThought && s.is_open(id)) ended.add(id, s[id].value);
    }
  }
  if (!ended.best().empty()) s.choose(ended.best()[0].id);
}

}  // namespace banyan::search
