#include "banyan/search/scorers.hpp"

#include <algorithm>
#include <cmath>

namespace banyan::search {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();

std::string text_of(const Prompt& prompt) { return prompt.shared + '\0' + prompt.own; }

std::string value_key(const Search& s, ThoughtId id) {
  const std::string state = s.state(id);
  return s.problem().known_value(state) ? "known\n" + state : text_of(s.problem().value_prompt(state));
}

// The states whose value a model must say, and their prompts; the values of the others.
struct Unknown {
  std::vector<double> values;   // of all thoughts
  std::vector<std::size_t> at;  // which of them are to be asked
  std::vector<ThoughtId> ids;   // of those
  std::vector<std::string> states;
  std::vector<Prompt> prompts;
};

Unknown unknown_of(const Search& s, const std::vector<ThoughtId>& ids) {
  Unknown u;
  u.values.assign(ids.size(), kNoValue);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::string state = s.state(ids[i]);
    if (const auto known = s.problem().known_value(state)) {
      u.values[i] = *known;
      continue;
    }
    u.at.push_back(i);
    u.ids.push_back(ids[i]);
    u.prompts.push_back(s.problem().value_prompt(state));
    u.states.push_back(std::move(state));
  }
  return u;
}

Task<std::vector<double>> judged(Search& s, std::vector<ThoughtId> ids, SampleOptions options, LaneId lane) {
  Unknown u = unknown_of(s, ids);
  const auto n = static_cast<std::size_t>(options.n);
  const auto outputs = co_await s.ask(u.prompts, u.ids, std::move(options), lane);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].size() < n) continue;  // the budget ended in the midst of it: no fair value
    double sum = 0;
    for (const Thought& t : outputs[i]) sum += t.error ? kNoValue : s.problem().parse_value(u.states[i], t.text);
    u.values[u.at[i]] = sum;
  }
  co_return u.values;
}

Task<std::vector<double>> by_likelihood(Search& s, std::vector<ThoughtId> ids, LaneId lane) {
  Unknown u = unknown_of(s, ids);
  const auto choices = s.problem().value_choices();
  std::vector<std::string> texts;
  for (const auto& choice : choices) texts.push_back(choice.text);
  const auto logprobs = co_await s.logprobs(u.prompts, std::move(texts), lane);
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    if (logprobs[i].empty()) continue;
    const double most = *std::max_element(logprobs[i].begin(), logprobs[i].end());
    double total = 0, worth = 0;
    for (std::size_t k = 0; k < choices.size(); ++k) {
      const double p = std::exp(logprobs[i][k] - most);
      total += p;
      worth += p * choices[k].worth;
    }
    u.values[u.at[i]] = worth / total;
  }
  co_return u.values;
}

Task<std::vector<double>> voted(Search& s, std::vector<ThoughtId> ids, SampleOptions options, LaneId lane) {
  std::vector<std::string> states;
  for (const ThoughtId id : ids) states.push_back(s.state(id));
  std::vector<Prompt> prompts;
  prompts.push_back(s.problem().vote_prompt(states));
  std::vector<ThoughtId> charged;
  charged.push_back(ids.front());
  const auto ballots = co_await s.ask(std::move(prompts), std::move(charged), std::move(options), lane);
  std::vector<double> votes(ids.size(), ballots[0].empty() ? kNoValue : 0.0);
  for (const Thought& ballot : ballots[0]) {
    const auto named = ballot.error ? std::nullopt : s.problem().parse_vote(ballot.text, ids.size());
    if (named && *named < votes.size()) votes[*named] += 1;
  }
  co_return votes;
}

Task<std::vector<double>> called_back(Search& s, std::vector<ThoughtId> ids,
                                      std::function<double(const Search&, ThoughtId)> value) {
  std::vector<double> values;
  for (const ThoughtId id : ids) values.push_back(value(s, id));
  co_return values;
}

Task<std::vector<double>> rewarded(Search& s, std::vector<ThoughtId> ids) {
  co_return co_await s.rewards(std::move(ids));
}

}  // namespace

Scorer callback(std::function<double(const Search&, ThoughtId)> value) {
  Scorer scorer;
  scorer.name = "callback";
  scorer.values = [value = std::move(value)](Search& s, std::vector<ThoughtId> ids) {
    return called_back(s, std::move(ids), value);
  };
  return scorer;
}

Scorer likelihood_sum() {
  Scorer scorer = callback([](const Search& s, ThoughtId id) { return s[id].path_logprob; });
  scorer.name = "likelihood_sum";
  return scorer;
}

Scorer likelihood_mean() {
  Scorer scorer = callback([](const Search& s, ThoughtId id) {
    return s[id].n_path_tokens == 0 ? 0.0 : s[id].path_logprob / static_cast<double>(s[id].n_path_tokens);
  });
  scorer.name = "likelihood_mean";
  return scorer;
}

Scorer verifier() {
  Scorer scorer =
      callback([](const Search& s, ThoughtId id) { return s.problem().verify(s.state(id)).value_or(kNoValue); });
  scorer.name = "verifier";
  return scorer;
}

Scorer reward() {
  Scorer scorer;
  scorer.name = "reward";
  scorer.values = rewarded;
  return scorer;
}

Scorer value_judge(SampleOptions options, bool remember, std::optional<LaneId> lane) {
  Scorer scorer;
  scorer.name = "value x" + std::to_string(options.n);
  scorer.values = [options, lane](Search& s, std::vector<ThoughtId> ids) {
    return judged(s, std::move(ids), options, lane.value_or(s.options().lane));
  };
  if (remember) scorer.cache_key = value_key;
  return scorer;
}

Scorer value_likelihood(bool remember, std::optional<LaneId> lane) {
  Scorer scorer;
  scorer.name = "value likelihood";
  scorer.values = [lane](Search& s, std::vector<ThoughtId> ids) {
    return by_likelihood(s, std::move(ids), lane.value_or(s.options().lane));
  };
  if (remember) scorer.cache_key = value_key;
  return scorer;
}

Scorer vote_judge(SampleOptions options, std::optional<LaneId> lane) {
  Scorer scorer;
  scorer.name = "vote x" + std::to_string(options.n);
  scorer.values = [options, lane](Search& s, std::vector<ThoughtId> ids) {
    return voted(s, std::move(ids), options, lane.value_or(s.options().lane));
  };
  return scorer;
}

}  // namespace banyan::search
