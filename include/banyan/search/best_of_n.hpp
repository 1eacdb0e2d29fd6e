// Best-of-N and self-consistency: n answers drawn independently, and one of them chosen. Layer 8.
//
// Both choose by rules that look at the first n answers alone, so one run of N answers says what n = 1, 2, 4 … N would
// have given: best_of_first() and vote_of_first().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "banyan/search/search.hpp"

namespace banyan::search {

struct BestOfN {
  std::int64_t n = 16;
  // Answers drawn and scored side by side; first_success, patience and stoppers are looked at between such batches.
  // 0: all at once.
  std::int64_t batch = 0;
  SampleOptions sample = {};  // of a whole answer; its n is not used
  Scorer scorer = {};
};

// The answer of the highest value wins, of equals the first drawn. An answer that max_tokens or the context cut off
// counts only where no other is finished.
Task<void> best_of_n(Search& search, BestOfN options);

enum class VoteRule : std::uint8_t {
  majority,  // every answer one vote (Wang et al., Self-Consistency, arXiv 2203.11171)
  weighted,  // every answer its value; those without a positive value have no weight
  max,       // the highest value decides alone
};

struct SelfConsistency {
  std::int64_t n = 16;
  std::int64_t batch = 0;  // as above
  SampleOptions sample = {};
  VoteRule rule = VoteRule::majority;
  Scorer scorer = {};  // for `weighted` and `max`
  // Majority alone: stop when the answers that are still to come cannot change the outcome.
  bool stop_when_decided = false;
};

// Answers are compared in the canonical form of Problem::answer; unfinished ones and those without an answer do not
// vote. Of answers with equal votes that one wins which was drawn first.
Task<void> self_consistency(Search& search, SelfConsistency options);

// What the first n answers elect.
struct Elected {
  std::int64_t n = 0;                 // answers looked at
  std::optional<std::string> answer;  // none: nobody voted
  ThoughtId thought = kNoThought;     // the first with that answer; weighted and max: the first of its highest value
  double votes = 0;                   // of that answer, in the rule's own measure
};
// `ids`: answers in the order they were drawn (children(kRootThought) after either driver).
Elected vote(const Search& search, const std::vector<ThoughtId>& ids, VoteRule rule);

// 1, 2, 4 … and n itself.
std::vector<std::int64_t> powers_up_to(std::int64_t n);
// The thought that best_of_n would have chosen of the first k answers, for each k; kNoThought where all had failed.
std::vector<ThoughtId> best_of_first(const Search& search, const std::vector<std::int64_t>& ks);
std::vector<Elected> vote_of_first(const Search& search, const std::vector<std::int64_t>& ks, VoteRule rule);

}  // namespace banyan::search
