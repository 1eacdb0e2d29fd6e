// What a Search holds, and the parts of its work. Internal to search/.
//
// Two accounts are kept for each thought's place in the forest:
//   held     its node is pinned: while it is wanted, or a thought below it is held. kv_tokens counts held nodes.
//   charged  the KV of its node was counted as computed: at the first use by a sample or a score.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <unordered_map>
#include <utility>

#include "banyan/search/search.hpp"

namespace banyan::search {

using Json = nlohmann::ordered_json;

std::uint64_t mix(std::uint64_t a, std::uint64_t b);  // of two stream names a new one

struct Search::State {
  struct Record {
    ThoughtRecord thought;
    std::vector<ThoughtId> children;
    std::uint64_t stream = 0;   // random stream of the samples below it
    std::uint64_t n_drawn = 0;  // samples drawn below it
    // Its place in the forest.
    Node node;                       // empty: not made yet, or let go
    std::string pending;             // bytes of a character that its text has not completed
    std::vector<TokenId> given;      // a proposal's own tokens
    std::int64_t n_kept = 0;         // drawn: leading tokens that are in its node
    std::int64_t n_node_tokens = 0;  // root: of the whole path
    std::int64_t n_to_compute = 0;   // tokens whose KV its first use computes
    std::int64_t n_held_below = 0;   // children that are held
    bool drawn = false, wanted = true, charged = false;
  };

  // What became of a wish for thoughts, drawn now or read from the journal.
  struct NewThought {
    ThoughtId parent = kNoThought;
    FinishReason how = FinishReason::stop;
    std::string text;
    std::vector<TokenId> tokens;  // drawn, or given
    std::vector<float> logprobs;
    double logprob = 0;
    bool drawn = false, replaces = false;
    std::int64_t n_kept = 0;
    std::string error;
    Node node;  // where it was drawn now
  };

  // What scorers and proposers used within one wish: logged with it, so that a resumed run has the same accounts.
  struct Spent {
    std::int64_t generated = 0, chosen = 0, computed = 0, on_paths = 0;
    std::vector<std::pair<ThoughtId, std::int64_t>> by;  // tokens drawn on a thought's account
    std::vector<std::uint64_t> shared;                   // prompts' shared parts charged
    std::vector<ThoughtId> used;                         // thoughts whose nodes were used
  };

  // Samples to draw at one place.
  struct Draw {
    Node node;
    std::uint64_t stream = 0, first = 0;
    std::int64_t n = 1, n_begun = 0;
    std::int64_t position = 0;       // of the node
    ThoughtId thought = kNoThought;  // whose node it is; kNoThought: a prompt that is asked
    std::uint64_t shared = 0;        // a prompt's shared part (hash), and the tokens that it and the rest have
    std::int64_t n_shared_tokens = 0, n_own_tokens = 0;
  };

  State(Search& search, Session& session, std::shared_ptr<const Problem> problem, SearchOptions options);

  Record& at(ThoughtId id) { return records[static_cast<std::size_t>(id)]; }
  const Record& at(ThoughtId id) const { return records[static_cast<std::size_t>(id)]; }

  // --- places in the forest (search_forest.cpp) ---
  Node node_of(ThoughtId id);  // made where it is not there; empty, and the search has stopped: no room for its KV
  Draw prompt_place(const Prompt& prompt, LaneId lane);
  void hold(ThoughtId id, Node node, std::int64_t n_to_compute);
  void let_go(ThoughtId id);
  void release_if_free(ThoughtId id);
  // Counts what using a place computes. False: the budget of prefill tokens does not reach, and the search has stopped.
  bool use(ThoughtId id);
  bool use(const Draw& draw);
  bool charge(std::int64_t n_tokens);

  // --- wishes (search_wishes.cpp) ---
  // Waits for the session; stop() from outside ends the wait, with nothing, and the session's work for it.
  template <class T>
  class Wait {
   public:
    Wait(State& state, Task<T> task) : state_(state), task_(std::move(task)) {}
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    ~Wait() {
      if (state_.interrupt) state_.interrupt = nullptr;
    }
    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiter) {
      task_->handle().promise().continuation = waiter;
      state_.interrupt = [this, waiter] {
        state_.interrupt = nullptr;  // stop() calls a copy of this function
        task_.reset();
        waiter.resume();
      };
      return task_->handle();
    }
    std::optional<T> await_resume() {
      state_.interrupt = nullptr;
      if (!task_) return std::nullopt;
      return task_->handle().promise().take();
    }

   private:
    State& state_;
    std::optional<Task<T>> task_;
  };
  bool begin_wish();  // false: the search has stopped
  Task<std::vector<std::vector<Thought>>> draw(std::vector<Draw> draws, SampleOptions options, bool keep);
  Task<std::optional<std::vector<std::vector<TokenLogprob>>>> next_of(std::vector<Node> nodes, std::int64_t n_grown,
                                                                      std::int64_t k);
  bool charge_chosen(ThoughtId id, std::int64_t n);  // tokens of likeliest(); false: the budget does not reach
  std::vector<ThoughtId> add(std::vector<NewThought> news);
  void note_finished(ThoughtId id);
  void apply(const Spent& spent);

  // --- budget (search.cpp) ---
  struct Room {
    std::int64_t n_samples = 0;
    std::int64_t max_tokens = 0;        // of each
    StopReason cut = StopReason::none;  // why that is less than was wanted
  };
  // How many samples of at most `max_tokens` may be begun now. None: the search has stopped.
  Room room_for(std::int64_t max_tokens, bool keep);
  StopReason reached();
  std::int64_t kv_limit() const;  // tokens
  double now_ms() const;

  // --- event log (search_events.cpp) ---
  void emit(const Json& event);
  bool unheard();  // nobody reads the next event: it is counted, and need not be written
  bool replaying() const { return n_events < options.journal.size(); }
  std::optional<StopReason> replayed_stop() const;  // if the next event of the journal is a stop from outside
  Json replayed(std::string_view kind) const;       // the next event of the journal, which must be of this kind
  void emit_thoughts(ThoughtId first, const Spent& spent);
  std::vector<NewThought> replayed_thoughts(Spent& spent);
  void emit_values(const std::string& scorer, const std::vector<ThoughtId>& ids, const std::vector<double>& values);
  std::vector<double> replayed_values(std::size_t n, Spent& spent);
  void emit_next(const std::vector<ThoughtId>& ids, const std::vector<std::vector<TokenLogprob>>& top);
  std::vector<std::vector<TokenLogprob>> replayed_next();
  void emit_ids(const char* kind, const std::vector<ThoughtId>& ids);

  Search& search;
  Session& session;
  std::shared_ptr<const Problem> problem;
  SearchOptions options;
  std::vector<Record> records;
  std::vector<ThoughtId> held;  // open and finished thoughts that no keep_only() has settled yet
  std::vector<ThoughtId> finished;
  std::map<std::pair<std::int32_t, std::string>, Node> shared_prompts;  // by lane and text
  std::set<std::uint64_t> charged_prompts;
  std::unordered_map<std::string, double> known_values;  // by scorer and its key
  Counters counters;
  std::int64_t n_on_paths = 0;                      // tokens on the paths of all samples and scores
  std::int64_t n_wish_thoughts = 0, n_wish_kv = 0;  // drawn by the open wish, not among the records yet
  Spent spent;                                      // of the open wish
  std::int64_t n_stop_asked = 0;                    // calls of stopped()
  std::uint64_t n_asked = 0;                        // prompts asked in the open wish
  std::size_t n_events = 0;
  std::int64_t n_replayed = 0;  // tokens that the journal's samples had
  StopReason stop = StopReason::none;
  ThoughtId chosen = kNoThought;
  double best_value = -std::numeric_limits<double>::infinity();
  std::int64_t n_stale = 0;         // scorings in a row without a higher value
  ThoughtId success = kNoThought;   // the first answer that is right, with budget.first_success
  std::function<void()> interrupt;  // while a wish waits for the session
  bool interrupted = false, ended = false;
  std::optional<Error> error;
  double started_ms = 0;
};

}  // namespace banyan::search
