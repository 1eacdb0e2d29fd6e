// A lane: one model with its forest and KV pool, and the items that wait for it. Layer 7, internal.
//
// An item is one sequence's share of a wish: a sample that decodes, a continuation that is scored, a node whose next
// tokens are asked for. Items are admitted in (priority, order) while the pool has room, decode side by side, and are
// preempted from the back when the pool runs out: KV is evicted, tokens stay, the item waits and is recomputed. The
// first active item always gets room, so nothing deadlocks; what can never fit fails at once.
//
// Flights. A step that was submitted is a flight until its answers have grown into the tree. Where the runner takes
// two, a sample's row behind a token that is still to be drawn is planned at once: the leaf has a drawn_token() in that
// token's place from submit() to grow(). What cannot go on without the token (penalties and hooks read it) waits, by
// itself. When grow() finds that a sample has ended, its leaf loses what stands behind the end, and what is still in
// flight for it is surplus: nobody looks at that answer. Slots that are free again may be given out at once, as a
// device computes one step after the other.
#pragma once

#include <array>
#include <coroutine>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "banyan/session.hpp"
#include "engine/text_stream.hpp"

namespace banyan::detail {

struct JobState {
  std::coroutine_handle<> handle;  // the search; null once forgotten
  JobOptions options;
  std::int64_t n_tokens = 0, n_steps = 0;
  std::int64_t n_tokens_in_flight = 0, n_steps_in_flight = 0;  // surplus ones included
  std::pair<std::int32_t, std::int64_t> last_step{-1, -1};     // it was counted in: lane, number
  bool took_part = false;                                      // in the step that grows now
  bool over_budget() const { return n_tokens >= options.max_tokens || n_steps >= options.max_steps; }
  bool may_go_on() const {
    return n_tokens + n_tokens_in_flight < options.max_tokens && n_steps + n_steps_in_flight < options.max_steps;
  }
};

// What a verb waits for. Lives in the verb's coroutine frame; its destruction withdraws the items.
struct Wish {
  explicit Wish(std::shared_ptr<SessionState> session);
  ~Wish();
  Wish(const Wish&) = delete;
  Wish& operator=(const Wish&) = delete;

  bool await_ready() const noexcept { return n_open == 0; }
  void await_suspend(std::coroutine_handle<> handle) noexcept { waiter = handle; }
  void await_resume() const noexcept {}

  std::shared_ptr<SessionState> session;
  std::shared_ptr<JobState> job;
  std::coroutine_handle<> waiter;
  std::int64_t n_open = 0;  // items that are not done

  SampleOptions sample;  // sample()
  std::vector<Thought> thoughts;
  Score score;  // score()
  std::vector<TokenId> targets;
  std::vector<TokenLogprob> top;  // next()
  double reward = 0;
  std::optional<Error> error;  // score, next, reward
};

struct Item : std::enable_shared_from_this<Item> {
  enum class Kind : std::uint8_t { sample, score, top, reward } kind = Kind::sample;
  Wish* wish = nullptr;                         // null: withdrawn, or done
  std::shared_ptr<JobState> job;                // the wish's
  std::pair<std::int64_t, std::int64_t> order;  // (-priority, number): who goes first
  std::size_t result = 0;                       // sample: index into wish->thoughts
  Node base;                                    // the node that the wish named
  Node leaf;                                    // sample, score: its own child of base, made when it is first admitted
  StreamKey key;
  std::int64_t n_top = 0;   // top
  bool path_ready = false;  // every ancestor's KV is there (kept while the item is active)
  bool admitted_before = false;
  std::int64_t n_in_flight = 0;  // queries; of a sample: tokens at the end of its leaf that are still to be drawn
  std::int64_t n_asked = 0;      // score: targets done or in flight
  std::vector<TokenId> prompt;   // sample, with penalties: the path in front of the leaf
  TextStream text;

  Item(Wish& w, Kind k) : kind(k), wish(&w), job(w.job), text(w.sample.stop, w.sample.include_stop) {}
};

// A step in flight.
struct Flight {
  StepRunner::Ticket ticket = 0;
  std::vector<StepSpan> spans;
  std::vector<std::shared_ptr<Item>> items;     // of each query; null: it was preempted and will ask again
  std::vector<std::shared_ptr<JobState>> jobs;  // that have queries in it
};

struct Lane : std::enable_shared_from_this<Lane> {
  Lane(LaneId id, std::unique_ptr<StepRunner> runner, const LaneOptions& options);

  // --- the step: called by the session's loop, in this order ---
  bool gather();  // admits items and lists the spans of the step; false: nothing to compute
  void make_plan();
  void submit();
  bool may_submit() const { return n_flights_ < max_flights_; }  // a further step, before harvest()
  bool harvest();  // waits for the answers of the oldest flight; false: none, or it failed and its items know
  void grow();     // these answers -> tokens in the tree, finished items -> wishes

  void add(std::shared_ptr<Item> item) { arrived.push_back(std::move(item)); }
  void withdraw(const Wish& wish);  // its items go at the next gather
  bool idle() const { return arrived.empty() && waiting.empty() && active.empty() && n_flights_ == 0; }
  LaneStats current_stats() const;
  // Keeps samples_drawn in proportion to the tree.
  void forget_dead_counts() {
    if (static_cast<std::int64_t>(samples_drawn.size()) < 2 * tree.n_nodes() + 1024) return;
    std::erase_if(samples_drawn, [this](const auto& entry) { return !tree.alive(NodeId{entry.first}); });
  }
  Node node(NodeId n) { return Node(shared_from_this(), n); }

  LaneId id;
  std::unique_ptr<StepRunner> runner;
  LaneOptions options;
  std::unique_ptr<KvPool> pool;
  SequenceTree tree;
  Planner planner;
  LaneStats stats;
  std::unordered_map<std::int64_t, std::uint64_t> samples_drawn;  // of each node, for default sample numbers

 private:
  struct LogitRow {     // a row whose logits somebody wants
    TreePosition at;    // of its token: token `at.pos` of the node
    std::size_t query;  // index into queries_
  };

  // admission
  void drop_withdrawn();
  void receive();
  bool refuse(Item& item);
  void admit();
  bool has_room(const Item& item, std::int64_t& promised);
  void prepare(Item& item);
  std::int64_t positions_needed(const Item& item) const;
  std::int64_t missing_kv(NodeId node, std::int64_t end) const;
  // scheduling
  bool may_go_on(const Item& item) const;
  void schedule(Item& item);
  bool schedule_path(Item& item);
  bool schedule_node(Item& item, NodeId node, std::int64_t end);
  void want_logits(Item& item);
  void want_scores(Item& item, std::int64_t begin, std::int64_t end);
  void add_query(Item& item, TreePosition at, StepQuery query);
  TreePosition last_token(NodeId node) const;
  void build_spans();
  // room in the pool
  bool make_room(Item& item, std::int64_t n_slots);
  bool evict(std::int64_t n_slots);
  bool preempt_behind(const Item& item);
  void collect_locked();
  std::int64_t n_locked(NodeId node) const;
  // flights
  void take_off(Flight& flight);
  void count_rows();
  void count_landing(Item& item) const;
  void ask_again(Item& item);
  void lose(std::span<const StepSpan> spans);
  void fail_active(const Error& error);
  void land();
  // answers, and ends of items
  void grow_item(Item& item, const StepAnswer& answer);
  void grow_sample(Item& item, const StepAnswer& answer);
  void grow_score(Item& item, const StepAnswer& answer);
  void finish_sample(Item& item, FinishReason reason, std::int64_t n_dropped = 0);
  void fail(Item& item, const Error& error);
  void close(Item& item);

  std::vector<std::shared_ptr<Item>> arrived;  // since the last gather
  std::map<std::pair<std::int64_t, std::int64_t>, std::shared_ptr<Item>> waiting;
  std::vector<std::shared_ptr<Item>> active;  // in order
  static constexpr int kMostFlights = 2;
  std::array<Flight, kMostFlights> flights_;  // the first n_flights_, oldest first
  int n_flights_ = 0, max_flights_;
  std::vector<std::shared_ptr<Item>> landed_;  // of each answer that grows now

  // of the step; kept to reuse their memory
  std::vector<StepSpan> computed_;                            // node ranges that get KV, one per node
  std::unordered_map<std::int64_t, std::int64_t> scheduled_;  // node -> end of what is computed this step
  std::vector<std::pair<NodeId, std::int64_t>> chain_;
  std::vector<LogitRow> logit_rows_;
  std::vector<StepQuery> queries_;
  std::vector<std::shared_ptr<Item>> query_items_;
  std::vector<StepAnswer> answers_;
  std::vector<StepSpan> spans_;
  std::vector<std::pair<NodeId, std::int64_t>> locked_;  // (node, leading tokens that active paths need), sorted
  Plan plan_;
  std::int64_t rows_left_ = 0, logits_left_ = 0;
  bool sweep_waiting_ = false;  // some who wait were withdrawn, or their job's budget is spent
  bool pool_is_tight_ = false;  // an item was preempted and none has ended since: admitting more would only thrash
  std::unordered_map<std::int64_t, std::int64_t> evicted_;  // node -> tokens whose KV it lost
};

struct SessionState {
  std::vector<std::shared_ptr<Lane>> lanes;
  std::deque<std::shared_ptr<JobState>> started;  // jobs that have not run yet
  std::deque<Wish*> ready;                        // whose items are all done, in the order they became so
  std::shared_ptr<JobState> current_job;          // the one whose coroutine runs now
  std::int64_t next_number = 0;

  void resume();  // the searches whose wish is met
};

}  // namespace banyan::detail
