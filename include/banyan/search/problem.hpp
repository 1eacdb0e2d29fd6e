// A problem as the search drivers see it: prompts, the reading of what a model wrote, and a verifier. Layer 8.
//
// A task (game of 24, GSM8K, a file of yours) makes one Problem per instance. It knows no driver and no session: it
// turns texts into prompts and texts into verdicts, nothing else. A *state* is the text of a path: the texts of its
// thoughts, root first, joined without anything between them; that of the problem itself is "".
//
// A problem overrides what its drivers use; the rest throws Error{unsupported} that names the problem and the part.
// All members must be pure: the same arguments give the same result, so that a run can be resumed and replayed.
// Threads: drivers call from the session's thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "banyan/session.hpp"

namespace banyan::search {

// A text for a model, in two parts that are tokenised by themselves: `shared` is the same for many prompts (examples,
// instructions), is stored once in the forest and computed once; `own` follows it. Either may be empty, not both.
struct Prompt {
  std::string shared;
  std::string own;
  bool parse_special = false;  // texts that spell special tokens become those (chat prompts)
  friend bool operator==(const Prompt&, const Prompt&) = default;
};

class Problem {
 public:
  virtual ~Problem() = default;

  // Unique among the problems of a run: it names the random streams, so that a result does not depend on company.
  virtual std::string id() const = 0;

  // What thoughts are a continuation of.
  virtual Prompt prompt() const;

  // Next steps by asking a model: it continues propose_prompt(state); parse_proposals gives the texts of the thoughts
  // that it wrote (each is appended to the state). A text that occurs twice is two thoughts.
  virtual Prompt propose_prompt(std::string_view state) const;
  virtual std::vector<std::string> parse_proposals(std::string_view state, std::string_view output) const;
  // Next steps by rule, without a model.
  virtual std::vector<std::string> next_steps(std::string_view state) const;

  // Judging one state: the model continues value_prompt(state), parse_value reads a number from it. `known_value` is
  // asked first: states whose value needs no model. value_choices() serves value_likelihood(): the continuations whose
  // probabilities are compared, each with what it is worth.
  virtual Prompt value_prompt(std::string_view state) const;
  virtual double parse_value(std::string_view state, std::string_view output) const;
  virtual std::optional<double> known_value(std::string_view state) const;
  struct Choice {
    std::string text;
    double worth = 0;
  };
  virtual std::vector<Choice> value_choices() const;
  // Judging several states by one ballot: which of them (index) it names; nothing if it names none.
  virtual Prompt vote_prompt(std::span<const std::string> states) const;
  virtual std::optional<std::size_t> parse_vote(std::string_view output, std::size_t n_states) const;

  // Revising: the model continues revise_prompt(answers), whose answers are the earlier ones of a chain, oldest first,
  // with a whole answer that takes their place.
  virtual Prompt revise_prompt(std::span<const std::string> answers) const;

  // Whether the path ends here with an answer. `how`: how its last thought ended; FinishReason::stop for a thought that
  // was not drawn. Default: the model wrote its end-of-text token.
  virtual bool finished(std::string_view state, FinishReason how) const;
  // The answer in a canonical form, which votes compare; nothing if there is none in it. Default: the state.
  virtual std::optional<std::string> answer(std::string_view state) const;
  // What the answer is worth, in [0, 1]; 1 is right. Nothing where only a person can say (the default).
  virtual std::optional<double> verify(std::string_view state) const;

 protected:
  // For the members above that are not overridden.
  [[noreturn]] void lacks(std::string_view part) const;
};

// A prompt and nothing else: for searches whose scorers need no task.
class PromptProblem : public Problem {
 public:
  PromptProblem(std::string id, Prompt prompt) : id_(std::move(id)), prompt_(std::move(prompt)) {}
  std::string id() const override { return id_; }
  Prompt prompt() const override { return prompt_; }

 private:
  std::string id_;
  Prompt prompt_;
};

}  // namespace banyan::search
