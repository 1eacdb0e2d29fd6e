#include "banyan/search/best_of_n.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace banyan::search {
namespace {

// Draws the next answers of a run of n.
Task<std::vector<ThoughtId>> draw_answers(Search& s, SampleOptions sample, std::int64_t n, std::int64_t batch) {
  const auto n_drawn = static_cast<std::int64_t>(s.children(kRootThought).size());
  sample.n = batch > 0 ? std::min(batch, n - n_drawn) : n - n_drawn;
  std::vector<ThoughtId> parents;
  parents.push_back(kRootThought);
  const auto answers = co_await s.sample(std::move(parents), std::move(sample));
  for (const ThoughtId id : answers) {
    if (s[id].how == FinishReason::eos || s[id].how == FinishReason::stop) s.finish(id);
  }
  co_return answers;
}

// Answers are not continued.
void give_back_kv(Search& s) { s.keep_only(std::vector<ThoughtId>()); }

bool wants_more(Search& s, std::int64_t n) {
  return static_cast<std::int64_t>(s.children(kRootThought).size()) < n && !s.stopped();
}

void check(std::int64_t n, std::int64_t batch) {
  if (n < 1) throw Error(ErrorCode::usage, "n", std::to_string(n) + " must be at least 1");
  if (batch < 0) throw Error(ErrorCode::usage, "batch", std::to_string(batch) + " must be 0 (all at once) or more");
}

// Whether b beats a as an answer; of equals the first stays.
bool beats(const ThoughtRecord& b, const ThoughtRecord& a) {
  const bool a_ends = a.state == ThoughtState::finished, b_ends = b.state == ThoughtState::finished;
  if (a_ends != b_ends) return b_ends;
  return std::isnan(a.value) ? !std::isnan(b.value) : b.value > a.value;
}

}  // namespace

Task<void> best_of_n(Search& s, BestOfN o) {
  check(o.n, o.batch);
  while (wants_more(s, o.n)) {
    const auto answers = co_await draw_answers(s, o.sample, o.n, o.batch);
    co_await s.score(answers, o.scorer);
    give_back_kv(s);
  }
}

Task<void> self_consistency(Search& s, SelfConsistency o) {
  check(o.n, o.batch);
  while (wants_more(s, o.n)) {
    const auto answers = co_await draw_answers(s, o.sample, o.n, o.batch);
    if (o.scorer.values) co_await s.score(answers, o.scorer);
    give_back_kv(s);
    if (!o.stop_when_decided || o.rule != VoteRule::majority) continue;
    std::map<std::string, std::int64_t> votes;
    for (const ThoughtId id : s.finished()) {
      if (const auto answer = s.problem().answer(s.state(id))) ++votes[*answer];
    }
    std::int64_t first = 0, second = 0;
    for (const auto& [answer, n] : votes) {
      second = std::max(second, std::min(first, n));
      first = std::max(first, n);
    }
    if (first - second > o.n - static_cast<std::int64_t>(s.children(kRootThought).size())) {
      s.stop(StopReason::converged);
    }
  }
  const Elected elected = vote(s, s.children(kRootThought), o.rule);
  if (elected.thought != kNoThought) s.choose(elected.thought);
}

Elected vote(const Search& s, const std::vector<ThoughtId>& ids, VoteRule rule) {
  struct Party {
    ThoughtId first = kNoThought, best = kNoThought;
    double votes = 0;
  };
  std::map<std::string, Party> parties;
  Elected elected;
  elected.n = static_cast<std::int64_t>(ids.size());
  for (const ThoughtId id : ids) {
    if (s[id].state != ThoughtState::finished) continue;
    const auto answer = s.problem().answer(s.state(id));
    if (!answer) continue;
    const double value = s[id].value;
    Party& party = parties[*answer];
    if (party.first == kNoThought) party.first = party.best = id;
    if (std::isnan(s[party.best].value) ? !std::isnan(value) : value > s[party.best].value) party.best = id;
    switch (rule) {
      case VoteRule::majority: party.votes += 1; break;
      case VoteRule::weighted: party.votes += value > 0 ? value : 0; break;
      case VoteRule::max: party.votes = s[party.best].value; break;
    }
  }
  ThoughtId first = kNoThought;  // of the leading party, for ties
  for (const auto& [answer, party] : parties) {
    const bool leads =
        first == kNoThought || (std::isnan(elected.votes) && !std::isnan(party.votes)) || party.votes > elected.votes;
    const bool ties = !leads && !(party.votes < elected.votes) &&
                      std::isnan(party.votes) == std::isnan(elected.votes) && party.first < first;
    if (!leads && !ties) continue;
    elected.answer = answer;
    elected.thought = rule == VoteRule::majority ? party.first : party.best;
    elected.votes = party.votes;
    first = party.first;
  }
  return elected;
}

std::vector<std::int64_t> powers_up_to(std::int64_t n) {
  std::vector<std::int64_t> ks;
  for (std::int64_t k = 1; k < n; k *= 2) ks.push_back(k);
  if (n > 0) ks.push_back(n);
  return ks;
}

std::vector<ThoughtId> best_of_first(const Search& s, const std::vector<std::int64_t>& ks) {
  const auto& ids = s.children(kRootThought);
  std::vector<ThoughtId> best_of;  // of the first i + 1
  ThoughtId best = kNoThought;
  for (const ThoughtId id : ids) {
    if (s[id].state != ThoughtState::failed && (best == kNoThought || beats(s[id], s[best]))) best = id;
    best_of.push_back(best);
  }
  std::vector<ThoughtId> chosen;
  for (const std::int64_t k : ks) {
    const auto n = std::min(static_cast<std::size_t>(std::max<std::int64_t>(k, 0)), best_of.size());
    chosen.push_back(n == 0 ? kNoThought : best_of[n - 1]);
  }
  return chosen;
}

std::vector<Elected> vote_of_first(const Search& s, const std::vector<std::int64_t>& ks, VoteRule rule) {
  const auto& ids = s.children(kRootThought);
  std::vector<Elected> elected;
  for (const std::int64_t k : ks) {
    const auto n = std::min(static_cast<std::size_t>(std::max<std::int64_t>(k, 0)), ids.size());
    const std::vector<ThoughtId> first(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
    elected.push_back(vote(s, first, rule));
  }
  return elected;
}

}  // namespace banyan::search
