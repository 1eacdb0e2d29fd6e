#include "banyan/search/problem.hpp"

namespace banyan::search {

void Problem::lacks(std::string_view part) const {
  throw Error(ErrorCode::unsupported, "problem " + id(), "has no " + std::string(part) + ", which this search needs");
}

Prompt Problem::prompt() const { lacks("prompt"); }
Prompt Problem::propose_prompt(std::string_view /*state*/) const { lacks("propose_prompt"); }
std::vector<std::string> Problem::parse_proposals(std::string_view /*state*/, std::string_view /*output*/) const {
  lacks("parse_proposals");
}
std::vector<std::string> Problem::next_steps(std::string_view /*state*/) const { lacks("next_steps"); }
Prompt Problem::value_prompt(std::string_view /*state*/) const { lacks("value_prompt"); }
double Problem::parse_value(std::string_view /*state*/, std::string_view /*output*/) const { lacks("parse_value"); }
std::optional<double> Problem::known_value(std::string_view /*state*/) const { return std::nullopt; }
std::vector<Problem::Choice> Problem::value_choices() const { lacks("value_choices"); }
Prompt Problem::vote_prompt(std::span<const std::string> /*states*/) const { lacks("vote_prompt"); }
std::optional<std::size_t> Problem::parse_vote(std::string_view /*output*/, std::size_t /*n_states*/) const {
  lacks("parse_vote");
}
Prompt Problem::revise_prompt(std::span<const std::string> /*answers*/) const { lacks("revise_prompt"); }
bool Problem::finished(std::string_view /*state*/, FinishReason how) const { return how == FinishReason::eos; }
std::optional<std::string> Problem::answer(std::string_view state) const { return std::string(state); }
std::optional<double> Problem::verify(std::string_view /*state*/) const { return std::nullopt; }

}  // namespace banyan::search
