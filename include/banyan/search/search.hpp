// One search over one problem: what every driver is written on. Layer 8: sees the public session only.
//
// A driver is a coroutine over a Search, and reads as its paper's pseudo-code:
//
//     Task<void> tot(Search& s, int levels, std::size_t width, Proposer generate, Scorer evaluate) {
//       std::vector<ThoughtId> frontier{kRootThought};
//       while (levels-- > 0 && !s.stopped()) {
//         const auto thoughts = co_await generate(s, frontier);
//         const auto values = co_await s.score(thoughts, evaluate);
//         frontier = s.keep_best(thoughts, values, width);
//       }
//     }
//
// The Search keeps the tree of thoughts, counts what is spent, holds every wish inside the budget, writes the event log
// and answers wishes from it when a run is resumed, and knows at any moment the best answer so far.
//
// - A driver has one wish open at a time; a wish holds as many thoughts as it likes. So the order of a search's events,
//   and with it every id and every random stream, is its own, whatever else runs in the session.
// - Budgets. Of tokens, prefill tokens, KV bytes, thoughts and scorer calls none is ever overshot: samples are drawn in
//   waves that fit even if each of them runs to its limit (the last sample may be cut short); what does not fit is not
//   begun. first_success, patience and stoppers are looked at between wishes. Wall time is looked at between wishes
//   and, by run_searches(), between the session's steps. A Search that has stopped grants no wish, so a driver that
//   asks stopped() in its loops comes to its end.
// - The record outlives the driver: result() holds at any time, also when the coroutine was destroyed half-way.
// - Not copied and not moved; must outlive its driver. Threads: the session's.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "banyan/search/problem.hpp"
#include "banyan/session.hpp"

namespace banyan::search {

class Search;

// --- the tree of thoughts ------------------------------------------------------------------------------------------

// Number of a thought in its search: 0 is the problem itself, parents come before children.
using ThoughtId = std::int64_t;
constexpr ThoughtId kRootThought = 0;
constexpr ThoughtId kNoThought = -1;

enum class ThoughtState : std::uint8_t {
  open,      // may be continued
  inner,     // was continued; lies on the path of something that is kept
  finished,  // the path ends here with an answer
  dropped,   // given up by the driver; its KV is free
  failed,    // the model could not draw it; `error` says why
};
std::string_view to_string(ThoughtState state);

struct ThoughtRecord {
  ThoughtId parent = kNoThought;
  std::vector<ThoughtId> sources = {};  // further thoughts that it was made of (graph of thoughts)
  std::int64_t depth = 0;
  std::int64_t child_index = 0;  // among the children of its parent
  ThoughtState state = ThoughtState::open;
  FinishReason how = FinishReason::stop;  // how its text ended; stop if it was not drawn
  std::string text = {};                  // of this thought alone
  std::vector<TokenId> tokens = {};       // drawn for it, as in banyan::Thought; empty if its text was given
  std::vector<float> logprobs = {};       // of each of `tokens`
  double logprob = 0;                     // their sum
  double path_logprob = 0;                // of the whole path, and how many tokens it counts
  std::int64_t n_path_tokens = 0;
  double value = std::numeric_limits<double>::quiet_NaN();  // of the last scorer; NaN: none
  std::int64_t n_spent = 0;                                 // tokens drawn to propose from it and to judge it
  bool replaces = false;                                    // the state begins with it (a revised answer)
  std::string error = {};
};

// --- budgets -------------------------------------------------------------------------------------------------------

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

struct Budget {
  std::int64_t tokens = kNoLimit;          // drawn: by thoughts, proposals and judges together
  std::int64_t prefill_tokens = kNoLimit;  // given tokens whose KV is computed: prompts, texts of proposed thoughts
  std::int64_t kv_bytes = kNoLimit;        // that open thoughts hold at once; a scripted model counts 1 byte a token
  std::int64_t thoughts = kNoLimit;        // made, without the problem itself
  std::int64_t scorer_calls = kNoLimit;    // thoughts handed to a scorer
  double wall_ms = std::numeric_limits<double>::infinity();
  bool first_success = false;  // stop at the first finished thought that the problem's verifier gives 1
  std::int64_t patience = 0;   // > 0: stop when so many scorings in a row brought no higher value
};

enum class StopReason : std::uint8_t {
  none,  // the driver came to its own end
  tokens,
  prefill_tokens,
  kv_bytes,
  thoughts,
  scorer_calls,
  wall_time,
  first_success,
  converged,
  stopper,
};
std::string_view to_string(StopReason reason);

struct Counters {
  std::int64_t n_thoughts = 0;        // made, without the problem itself
  std::int64_t n_failed = 0;          // of those
  std::int64_t n_wishes = 0;          // of the driver
  std::int64_t n_scorer_calls = 0;    // thoughts handed to a scorer; values from its cache do not count
  std::int64_t tokens_generated = 0;  // all that were drawn: thoughts, proposals, judges, and what was cut off
  std::int64_t tokens_spent = 0;      // of those, by proposals and judges
  std::int64_t tokens_chosen = 0;     // of those, by take(): not drawn by a sampler
  std::int64_t tokens_lost = 0;       // of those, in flight when the search was stopped from outside
  std::int64_t tokens_kept = 0;       // of those, in thoughts that are open or finished
  // Given tokens, and last tokens of thoughts that were continued: those whose KV had to be computed, and those on the
  // paths of all samples and scores whose KV was there because the tree shares it. Evictions are the session's affair.
  std::int64_t prefill_computed = 0, prefill_saved = 0;
  std::int64_t kv_tokens = 0, kv_tokens_max = 0;  // held by open thoughts now, at most

  std::int64_t tokens_discarded() const { return tokens_generated - tokens_kept - tokens_spent; }
};

// True: stop. A link of the caller's own in the chain of stoppers.
using Stopper = std::function<bool(const Search&)>;

struct SearchOptions {
  std::uint64_t seed = 0;
  Budget budget = {};
  std::vector<Stopper> stoppers = {};
  LaneId lane = {};           // for the problem's prompts
  std::int32_t priority = 0;  // of all wishes; higher goes first
  Node root = {};             // instead of Problem::prompt(): what thoughts are a continuation of
  // The event log: JSON objects, one at a time, without line ends. Times and addresses do not occur in it, so equal
  // runs write equal bytes.
  std::function<void(std::string_view event)> on_event = {};
  // Events of an earlier run of this very search, from its first to any later one: wishes that they answer are not
  // computed again. The search goes on behind them, and on_event hears of what is new alone. Throws Error{bad_file}
  // naming the event that another search (or another version) must have written.
  std::vector<std::string> journal = {};
  std::function<double()> clock_ms = {};  // for wall_ms; empty: the steady clock
};

// --- outcome -------------------------------------------------------------------------------------------------------

struct SearchResult {
  ThoughtId best = kRootThought;      // a finished answer, or the best partial path
  bool complete = false;              // which of the two
  std::string text;                   // of its path
  std::optional<std::string> answer;  // canonical; only if complete
  double value = std::numeric_limits<double>::quiet_NaN();
  StopReason stop = StopReason::none;
  Counters counters;
  std::optional<Error> error;  // what the driver threw; or, where nothing could be drawn, why
};

// --- scorers -------------------------------------------------------------------------------------------------------

// Gives thoughts a value; higher is better; one that is not finite is none (NaN). A batch at a time, so that thoughts
// can be judged side by side and against each other. The kinds are in scorers.hpp; any coroutine will do.
struct Scorer {
  std::string name;
  std::function<Task<std::vector<double>>(Search&, std::vector<ThoughtId>)> values;
  // Thoughts with the same key have the same value, which is computed once in a search. Empty: nothing is remembered.
  std::function<std::string(const Search&, ThoughtId)> cache_key = {};
};

// Next thoughts below each parent, in the parents' order. The kinds are in proposers.hpp; any coroutine will do.
using Proposer = std::function<Task<std::vector<ThoughtId>>(Search&, std::vector<ThoughtId> parents)>;

// A whole search: any coroutine over a Search.
using Driver = std::function<Task<void>(Search&)>;

// --- the search ----------------------------------------------------------------------------------------------------

class Search {
 public:
  Search(Session& session, std::shared_ptr<const Problem> problem, SearchOptions options = {});
  ~Search();
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  Session& session() const;
  const Problem& problem() const;
  const SearchOptions& options() const;

  // --- reading ---
  std::int64_t size() const;  // ids are [0, size)
  const ThoughtRecord& operator[](ThoughtId id) const;
  const std::vector<ThoughtId>& children(ThoughtId id) const;
  std::vector<ThoughtId> path(ThoughtId id) const;  // root first, without the problem itself
  std::string state(ThoughtId id) const;            // texts of the path, joined
  bool is_open(ThoughtId id) const { return (*this)[id].state == ThoughtState::open; }
  std::vector<ThoughtId> open_of(const std::vector<ThoughtId>& ids) const;  // those that may be continued
  const std::vector<ThoughtId>& finished() const;                           // in the order they were made
  Counters counters() const;
  SearchResult result() const;
  // A random number in [0, 1) of this search, by name: the same whenever and however often it is asked for.
  double uniform(std::string_view purpose, std::uint64_t i, std::uint64_t k = 0) const;

  // --- wishes: await them in a driver, one at a time ---
  // options.n continuations of each parent; a parent that is named twice gets 2 n. Of the options, seed, stream, sample
  // number, priority and callbacks are the search's own. Gives the new thoughts, without those that failed; fewer where
  // the budget ends. A thought whose text was given is tokenised by itself when it is continued.
  Task<std::vector<ThoughtId>> sample(std::vector<ThoughtId> parents, SampleOptions options);
  // Thoughts whose texts come from elsewhere: texts_of gives a list for each parent (a proposer's coroutine that may
  // ask()). Log-probabilities and tokens may be given with them.
  struct Proposal {
    std::string text;
    std::vector<TokenId> tokens = {};  // instead of tokenising the text, where the thought is continued
    double logprob = 0;
    bool replaces = false;  // it is the whole state by itself: what stands before it on the path is not part of it
  };
  using Proposals = std::vector<std::vector<Proposal>>;
  using TextsOf = std::function<Task<Proposals>(Search&, std::vector<ThoughtId> parents)>;
  Task<std::vector<ThoughtId>> propose(std::vector<ThoughtId> parents, TextsOf texts_of);
  // The k likeliest next tokens of each parent, best first; fewer parents where the budget ends.
  Task<std::vector<std::vector<TokenLogprob>>> next(std::vector<ThoughtId> parents, std::int64_t k);
  // Values, in the order of ids; NaN for what the budget left out. They are recorded in the thoughts.
  Task<std::vector<double>> score(std::vector<ThoughtId> ids, Scorer scorer);

  // --- at once ---
  // Thoughts of one token each, chosen from what next() gave; they count as generated tokens. An end-of-text token of
  // the model ends the path. Fewer where the budget ends.
  struct Token {
    ThoughtId parent = kRootThought;
    TokenId token = kNoToken;
    double logprob = 0;
  };
  std::vector<ThoughtId> take(const std::vector<Token>& tokens);

  // --- for scorers and proposers: parts of the wish that is open ---
  // options.n texts behind each prompt; nothing is kept. charged[i] is the thought on whose account prompt i is asked.
  // A prompt that the budget does not reach has fewer texts, or none.
  Task<std::vector<std::vector<Thought>>> ask(std::vector<Prompt> prompts, std::vector<ThoughtId> charged,
                                              SampleOptions options, LaneId lane);
  // The options.k likeliest texts behind each prompt that end with `stop` or an end-of-text token, no two alike, best
  // first: a beam of k over tokens. Texts that max_tokens or the budget cuts are left out.
  struct LikeliestOptions {
    std::int64_t k = 1, max_tokens = 64;
    std::string stop = {};
    bool include_stop = false;
  };
  struct LikelyText {
    std::string text;
    double logprob = 0;
  };
  Task<std::vector<std::vector<LikelyText>>> likeliest(std::vector<Prompt> prompts, std::vector<ThoughtId> charged,
                                                       LikeliestOptions options, LaneId lane);
  // Log-probability of each of the texts behind each prompt. No prompt or all are reached: else the list is empty.
  Task<std::vector<std::vector<double>>> logprobs(std::vector<Prompt> prompts, std::vector<std::string> texts,
                                                  LaneId lane);
  // The scalar head at the end of each thought; NaN where the budget does not reach. Given texts are tokenised by
  // themselves.
  Task<std::vector<double>> rewards(std::vector<ThoughtId> ids);

  // --- bookkeeping ---
  // The first of the highest values, at most `n`, best first; a thought without a value (NaN) is not kept while one
  // with a value is dropped. Finished ones among them stay answers but take no place. keep_only() of these.
  std::vector<ThoughtId> keep_best(const std::vector<ThoughtId>& ids, const std::vector<double>& values, std::size_t n);
  void keep_only(const std::vector<ThoughtId>& ids);  // every other open thought becomes inner or is dropped
  void drop(ThoughtId id);                            // not continued any more; finished ones stay answers
  void finish(ThoughtId id);                          // it is an answer, whatever the problem says
  void choose(ThoughtId id);                   // the driver's answer, instead of the finished one of highest value
  void set_value(ThoughtId id, double value);  // what result() compares
  // Asks the chain of stoppers. Once stopped, a search stays so.
  bool stopped();
  void stop(StopReason reason);  // from outside; the first reason stays
  bool out_of_time() const;      // wall_ms alone: may be asked while a wish is open

  // The driver has ended, well or with an error; n_drawn: tokens drawn on its behalf by the session's count, where
  // some may have been in flight. Called by run_searches(); no wish is granted afterwards.
  void end(std::optional<Error> error = {}, std::int64_t n_drawn = 0);

 private:
  struct State;  // search/search_state.hpp
  std::unique_ptr<State> state_;
};

// Runs a driver over each search, side by side in their one session, until all have ended. Searches that run out of
// wall time are stopped between two steps. An error of one ends that one alone and stands in its result.
std::vector<SearchResult> run_searches(Session& session, std::span<const std::unique_ptr<Search>> searches,
                                       const Driver& driver);

}  // namespace banyan::search
