#include "banyan/search/revise.hpp"

#include <algorithm>
#include <cmath>

namespace banyan::search {

Task<void> revise(Search& s, Revise o) {
  if (o.n_chains < 1 || o.chain_length < 1) {
    throw Error(ErrorCode::usage, o.n_chains < 1 ? "n_chains" : "chain_length",
                std::to_string(std::min(o.n_chains, o.chain_length)) + " must be at least 1");
  }
  std::vector<ThoughtId> tips(static_cast<std::size_t>(o.n_chains), kRootThought);
  std::vector<ThoughtId> answers;
  for (std::int64_t i = 0; i < o.chain_length && !tips.empty() && !s.stopped(); ++i) {
    tips = co_await o.revise(s, tips);
    for (const ThoughtId id : tips) s.finish(id);
    answers.insert(answers.end(), tips.begin(), tips.end());
    co_await s.score(tips, o.scorer);
  }
  // The best of each chain: of equals the earliest.
  std::vector<ThoughtId> best(s.children(kRootThought).size(), kNoThought);
  for (const ThoughtId id : answers) {
    const ThoughtId chain = s.path(id).front();
    ThoughtId& b = best[static_cast<std::size_t>(s[chain].child_index)];
    if (b == kNoThought || s[id].value > s[b].value || (std::isnan(s[b].value) && !std::isnan(s[id].value))) b = id;
  }
  std::erase(best, kNoThought);
  const Elected elected = vote(s, best, o.rule);
  if (elected.thought != kNoThought) s.choose(elected.thought);
}

}  // namespace banyan::search
