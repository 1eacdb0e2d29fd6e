#include "banyan/search/proposers.hpp"

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

Proposer rule_steps() {
  return [](Search& s, std::vector<ThoughtId> parents) { return s.propose(std::move(parents), by_rule); };
}

}  // namespace banyan::search
