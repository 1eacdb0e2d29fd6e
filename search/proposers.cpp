#include "banyan/search/proposers.hpp"

#include <cmath>

namespace banyan::search {
namespace {

Task<Search::Proposals> proposed(Search& s, std::vector<ThoughtId> parents, SampleOptions options, LaneId lane) {
  std::vector<std::string> states;
  std::vector<Prompt> prompts;
  for (const ThoughtId parent : parents) {
    states.push_back(s.state(parent));
    prompts.push_back(s.problem().propose_prompt(states.back()));
  }
  const auto outputs = co_await s.ask(std::move(prompts), parents, std::move(options), lane);
  Search::Proposals proposals(parents.size());
  for (std::size_t i = 0; i < parents.size(); ++i) {
    for (const Thought& output : outputs[i]) {
      if (output.error) continue;
      for (std::string& text : s.problem().parse_proposals(states[i], output.text)) {
        Search::Proposal proposal;
        proposal.text = std::move(text);
        proposals[i].push_back(std::move(proposal));
      }
    }
  }
  co_return proposals;
}

Task<Search::Proposals> likely(Search& s, std::vector<ThoughtId> parents, Search::LikeliestOptions options,
                               LaneId lane) {
  std::vector<std::string> states;
  std::vector<Prompt> prompts;
  for (const ThoughtId parent : parents) {
    states.push_back(s.state(parent));
    prompts.push_back(s.problem().propose_prompt(states.back()));
  }
  const auto lists = co_await s.likeliest(std::move(prompts), parents, std::move(options), lane);
  Search::Proposals proposals(parents.size());
  for (std::size_t i = 0; i < parents.size(); ++i) {
    for (const Search::LikelyText& likely : lists[i]) {
      for (std::string& text : s.problem().parse_proposals(states[i], likely.text)) {
        Search::Proposal proposal;
        proposal.text = std::move(text);
        proposal.logprob = likely.logprob;
        proposals[i].push_back(std::move(proposal));
      }
    }
  }
  co_return proposals;
}

Task<std::vector<ThoughtId>> next_tokens(Search& s, std::vector<ThoughtId> parents, std::int64_t k) {
  const auto lists = co_await s.next(parents, k);
  std::vector<Search::Token> tokens;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    for (const TokenLogprob& t : lists[i]) {
      if (std::isfinite(t.logprob)) tokens.push_back({parents[i], t.id, t.logprob});
    }
  }
  co_return s.take(tokens);
}

Task<Search::Proposals> revised(Search& s, std::vector<ThoughtId> parents, SampleOptions options, std::size_t n_shown,
                                LaneId lane) {
  options.n = 1;
  std::vector<Prompt> prompts;
  for (const ThoughtId parent : parents) {
    std::vector<std::string> answers;
    for (const ThoughtId id : s.path(parent)) answers.push_back(s[id].text);
    if (answers.size() > n_shown) answers.erase(answers.begin(), answers.end() - static_cast<std::ptrdiff_t>(n_shown));
    prompts.push_back(answers.empty() ? s.problem().prompt() : s.problem().revise_prompt(answers));
  }
  auto outputs = co_await s.ask(std::move(prompts), parents, std::move(options), lane);
  Search::Proposals proposals(parents.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (Thought& output : outputs[i]) {
      if (output.error) continue;
      Search::Proposal proposal;
      proposal.text = std::move(output.text);
      proposal.logprob = output.cumulative_logprob;
      proposal.replaces = true;
      proposals[i].push_back(std::move(proposal));
    }
  }
  co_return proposals;
}

Task<Search::Proposals> by_rule(Search& s, std::vector<ThoughtId> parents) {
  Search::Proposals proposals(parents.size());
  for (std::size_t i = 0; i < parents.size(); ++i) {
    for (std::string& text : s.problem().next_steps(s.state(parents[i]))) {
      Search::Proposal proposal;
      proposal.text = std::move(text);
      proposals[i].push_back(std::move(proposal));
    }
  }
  co_return proposals;
}

}  // namespace

Proposer sample_steps(SampleOptions options) {
  return [options](Search& s, std::vector<ThoughtId> parents) { return s.sample(std::move(parents), options); };
}

Proposer propose_steps(SampleOptions options, std::optional<LaneId> lane) {
  return [options, lane](Search& s, std::vector<ThoughtId> parents) {
    return s.propose(std::move(parents), [options, lane](Search& search, std::vector<ThoughtId> ids) {
      return proposed(search, std::move(ids), options, lane.value_or(search.options().lane));
    });
  };
}

Proposer likeliest_steps(Search::LikeliestOptions options, std::optional<LaneId> lane) {
  return [options, lane](Search& s, std::vector<ThoughtId> parents) {
    return s.propose(std::move(parents), [options, lane](Search& search, std::vector<ThoughtId> ids) {
      return likely(search, std::move(ids), options, lane.value_or(search.options().lane));
    });
  };
}

Proposer likeliest_tokens(std::int64_t k) {
  return [k](Search& s, std::vector<ThoughtId> parents) { return next_tokens(s, std::move(parents), k); };
}

Proposer revise_answers(SampleOptions options, std::size_t n_shown, std::optional<LaneId> lane) {
  return [=](Search& s, std::vector<ThoughtId> parents) {
    return s.propose(std::move(parents), [=](Search& search, std::vector<ThoughtId> ids) {
      return revised(search, std::move(ids), options, n_shown, lane.value_or(search.options().lane));
    });
  };
}

Proposer rule_steps() {
  return [](Search& s, std::vector<ThoughtId> parents) { return s.propose(std::move(parents), by_rule); };
}

}  // namespace banyan::search
