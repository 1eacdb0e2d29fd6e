// Lane: admission, scheduling and room in the pool -- the `gather` of a step. The rest of the step is in lane_step.cpp.
#include "engine/lane.hpp"

#include <algorithm>
#include <cassert>
#include <string>
#include <tuple>

namespace banyan::detail {
namespace {

// Rows of logits that scoring may ask for in one step: 64 rows of a 150,000-word vocabulary are 38 MB.
constexpr std::int64_t kMaxScoreRows = 64;

std::string where(const Item& item) {
  return "node " + std::to_string(item.base.id().value) + ", sample " + std::to_string(item.key.sample);
}

}  // namespace

Lane::Lane(LaneId id_in, std::unique_ptr<StepRunner> runner_in, const LaneOptions& options_in)
    : id(id_in),
      runner(std::move(runner_in)),
      options(options_in),
      pool(runner->n_kv_slots() > 0 ? std::make_unique<KvPool>(runner->n_kv_slots()) : nullptr),
      tree(pool.get()),
      planner(PlanOptions{.deterministic = runner->deterministic(), .sharing = options.sharing}),
      max_flights_(std::clamp(runner->max_in_flight(), 1, kMostFlights)) {}

// --- admission -----------------------------------------------------------------------------------------------------

bool Lane::gather() {
  computed_.clear();
  scheduled_.clear();
  logit_rows_.clear();
  queries_.clear();
  query_items_.clear();
  receive();
  drop_withdrawn();
  admit();
  if (n_flights_ > 0) {
    // Few rows beside many that wait for tokens would part the batch into two that take turns: they wait, too.
    const auto n_going = std::count_if(active.begin(), active.end(), [this](const auto& i) { return may_go_on(*i); });
    if (2 * n_going <= std::ssize(active)) return false;
  }
  rows_left_ = std::max(options.max_rows, static_cast<std::int64_t>(active.size()));
  for (const auto& item : active) rows_left_ -= item->path_ready ? 1 : 0;
  // Decoding items always get their row; prompts share what is left, at least one tile of it.
  rows_left_ = std::max(rows_left_, kTilePositions);
  logits_left_ = kMaxScoreRows;
  for (std::size_t i = 0; i < active.size(); ++i) schedule(*active[i]);  // may shorten `active` behind i
  build_spans();
  return !spans_.empty();
}

void Lane::drop_withdrawn() {
  const auto check_budget = [this](Item& item) {
    if (item.wish == nullptr || !item.job || !item.job->over_budget()) return;
    sweep_waiting_ = true;
    if (item.kind == Item::Kind::sample) {
      finish_sample(item, FinishReason::length);
    } else {
      fail(item, Error(ErrorCode::cancelled, "job", "the budget of tokens or steps is spent"));
    }
  };
  for (const auto& item : active) check_budget(*item);
  std::erase_if(active, [](const auto& item) { return item->wish == nullptr; });
  if (!sweep_waiting_) return;  // those who wait may be many more than those who decode
  for (const auto& entry : waiting) check_budget(*entry.second);
  std::erase_if(waiting, [](const auto& entry) { return entry.second->wish == nullptr; });
  sweep_waiting_ = false;
}

// What can never be done is refused at once, before it waits for its turn.
void Lane::receive() {
  for (std::size_t i = 0; i < arrived.size(); ++i) {  // a callback of a refused one may add more
    auto item = std::move(arrived[i]);
    if (item->wish == nullptr || refuse(*item)) continue;
    sweep_waiting_ = sweep_waiting_ || (item->job && item->job->over_budget());
    waiting.emplace(item->order, std::move(item));
  }
  arrived.clear();
}

void Lane::admit() {
  if (pool_is_tight_ && !active.empty()) return;
  std::int64_t promised = 0;  // slots that items admitted in this step will take
  while (!waiting.empty() && static_cast<std::int64_t>(active.size()) < options.max_batch) {
    const auto first = waiting.begin();
    if (!has_room(*first->second, promised)) return;  // not now; later ones do not overtake
    auto item = std::move(first->second);
    waiting.erase(first);
    prepare(*item);
    const auto at = std::upper_bound(active.begin(), active.end(), item->order,
                                     [](const auto& order, const auto& other) { return order < other->order; });
    active.insert(at, std::move(item));
  }
}

// Positions that the item's path will have at its end.
std::int64_t Lane::positions_needed(const Item& item) const {
  const std::int64_t base = tree.end_position(item.base.id());
  switch (item.kind) {
    case Item::Kind::sample: {
      const std::int64_t room = runner->max_positions() - base;
      const std::int64_t wanted = item.wish->sample.max_tokens;
      return base + (wanted < 0 ? room : std::min(wanted, room));
    }
    case Item::Kind::score: return base + static_cast<std::int64_t>(item.wish->targets.size());
    case Item::Kind::top:
    case Item::Kind::reward: return base;
  }
  return base;
}

std::int64_t Lane::missing_kv(NodeId node, std::int64_t end) const {
  std::int64_t missing = 0;
  while (node.valid()) {
    missing += std::max<std::int64_t>(0, end - tree.n_kv(node));
    end = tree.attach(node);
    node = tree.parent(node);
  }
  return missing;
}

// True: the item can never be done, or needs no step; its wish was told.
bool Lane::refuse(Item& item) {
  const std::int64_t base = tree.end_position(item.base.id());
  const std::int64_t limit = runner->max_positions();
  if (base == 0) {
    fail(item, Error(ErrorCode::bad_input, where(item),
                     "the path is empty and the vocabulary has no BOS: there is nothing to continue from"));
  } else if (base > limit) {
    fail(item, Error(ErrorCode::context_full, where(item),
                     "the path has " + std::to_string(base) + " tokens, the model takes " + std::to_string(limit)));
  } else if (item.kind == Item::Kind::score && positions_needed(item) > limit) {
    fail(item, Error(ErrorCode::context_full, where(item),
                     "path and continuation have " + std::to_string(positions_needed(item)) +
                         " tokens, the model takes " + std::to_string(limit)));
  } else if (item.kind == Item::Kind::sample && base == limit) {
    finish_sample(item, FinishReason::context);
  } else if (item.kind == Item::Kind::sample && item.wish->sample.max_tokens == 0) {
    finish_sample(item, FinishReason::length);
  } else if (pool != nullptr && positions_needed(item) > pool->n_slots()) {
    fail(item, Error(ErrorCode::never_fits, where(item),
                     "needs KV for " + std::to_string(positions_needed(item)) + " tokens (" + std::to_string(base) +
                         " given), the pool holds " + std::to_string(pool->n_slots()) +
                         "; raise the KV budget or lower the token limit"));
  } else {
    return false;
  }
  return true;
}

bool Lane::has_room(const Item& item, std::int64_t& promised) {
  if (pool == nullptr) return true;
  const NodeId end_node = item.leaf ? item.leaf.id() : item.base.id();
  tree.touch(end_node);
  const bool shares_path = !active.empty() && active.back()->base == item.base;
  const std::int64_t missing = shares_path ? 0 : missing_kv(end_node, tree.n_tokens(end_node));
  const std::int64_t wanted = promised + missing + kKvBlock;
  if (!active.empty() && pool->n_free() < wanted && !evict(wanted)) return false;
  promised = wanted;
  return true;
}

// The item's own node, and room for what it will hold. Once: a preempted item keeps them.
void Lane::prepare(Item& item) {
  if (item.admitted_before) return;
  item.admitted_before = true;
  const NodeId base = item.base.id();
  stats.n_prefill_saved += tree.end_position(base);  // what is computed is taken off again when it is
  if (item.kind == Item::Kind::sample) {
    item.leaf = node(tree.fork(base));
    // As much as is likely to be wanted, so that steps allocate nothing; growing beyond it costs one allocation.
    const std::int64_t n_expected = std::min<std::int64_t>(positions_needed(item) - tree.end_position(base), 4096);
    tree.reserve(item.leaf.id(), n_expected);
    Thought& thought = item.wish->thoughts[item.result];
    thought.tokens.reserve(static_cast<std::size_t>(n_expected));
    if (item.wish->sample.n_logprobs >= 0) thought.logprobs.reserve(static_cast<std::size_t>(n_expected));
    item.text.reserve(n_expected);
    if (item.wish->sample.sampler.repetition_penalty != 1.0) tree.path_tokens(base, item.prompt);
  } else if (item.kind == Item::Kind::score) {
    item.leaf = node(tree.fork(base));
    tree.append(item.leaf.id(), item.wish->targets);
  }
}

// --- scheduling ----------------------------------------------------------------------------------------------------

// The last token of the path that ends with `node`; kNoNode if the path is empty.
TreePosition Lane::last_token(NodeId node) const {
  std::int64_t end = tree.n_tokens(node);
  while (end == 0) {
    end = tree.attach(node);
    node = tree.parent(node);
    if (!node.valid()) return {};
  }
  return {node, end - 1};
}

// KV for tokens [.., end) of a node, as far as this step's rows reach. True when it is complete after this step.
bool Lane::schedule_node(Item& item, NodeId node, std::int64_t end) {
  const auto found = scheduled_.find(node.value);
  const std::int64_t begin = found != scheduled_.end() ? found->second : tree.n_kv(node);
  if (begin >= end) return true;
  const std::int64_t n = std::min(end - begin, rows_left_);
  if (n == 0) return false;
  if (pool != nullptr && !tree.allocate_kv(node, begin + n)) {
    if (!make_room(item, n) || !tree.allocate_kv(node, begin + n)) return false;
  }
  // Given tokens are all there from the start; only a sample's leaf grows.
  if (pool != nullptr && !(item.kind == Item::Kind::sample && node == item.leaf.id())) tree.trim_kv(node);
  rows_left_ -= n;
  if (found == scheduled_.end()) {
    scheduled_.emplace(node.value, begin + n);
    computed_.push_back({node, begin, begin + n, 0, true});
  } else {
    found->second = begin + n;
    std::find_if(computed_.rbegin(), computed_.rend(), [&](const auto& s) { return s.node == node; })->end = begin + n;
  }
  return begin + n == end;
}

// KV of the ancestors of the item's end node, root first. True when they are complete after this step.
bool Lane::schedule_path(Item& item) {
  chain_.clear();
  const NodeId end_node = item.leaf ? item.leaf.id() : item.base.id();
  bool stored = true;
  for (NodeId n = end_node; tree.parent(n).valid(); n = tree.parent(n)) {
    const NodeId up = tree.parent(n);
    chain_.emplace_back(up, tree.attach(n));
    stored = stored && tree.n_kv(up) >= tree.attach(n);
  }
  item.path_ready = stored;
  if (stored) return true;
  for (auto it = chain_.rbegin(); it != chain_.rend(); ++it) {
    if (!schedule_node(item, it->first, it->second)) return false;
  }
  return true;
}

// Whether there is something to compute for the item before what is in flight has come back.
bool Lane::may_go_on(const Item& item) const {
  if (item.job && !item.job->may_go_on()) return false;
  if (item.kind == Item::Kind::score) return item.n_asked < static_cast<std::int64_t>(item.wish->targets.size());
  if (item.n_in_flight == 0) return true;
  if (item.kind != Item::Kind::sample) return false;
  const SampleOptions& sample = item.wish->sample;
  const SamplerOptions& sampler = sample.sampler;
  const bool reads_tokens = sample.hook || sampler.repetition_penalty != 1.0 || sampler.presence_penalty != 0.0 ||
                            sampler.frequency_penalty != 0.0;
  return !reads_tokens && tree.n_tokens(item.leaf.id()) != sample.max_tokens &&
         tree.end_position(item.leaf.id()) < runner->max_positions();
}

void Lane::schedule(Item& item) {
  if (!may_go_on(item)) return;
  if (!item.path_ready && !schedule_path(item)) return;
  const NodeId node = item.leaf ? item.leaf.id() : item.base.id();
  const std::int64_t n = tree.n_tokens(node);
  if (item.kind == Item::Kind::score) {
    const std::int64_t begin = tree.n_kv(node);
    const std::int64_t first_logits = item.n_asked == 0 ? 1 : 0;  // of the token in front of the continuation
    const std::int64_t n_rows =
        std::min({n - 1 - begin, logits_left_ - first_logits, std::max<std::int64_t>(rows_left_, 0)});
    if (n_rows < 0) return;
    logits_left_ -= n_rows + first_logits;
    if (n_rows > 0 && !schedule_node(item, node, begin + n_rows)) return;
    want_scores(item, begin, begin + n_rows);
    return;
  }
  const std::int64_t n_missing = n - tree.n_kv(node);
  if (item.path_ready && item.kind == Item::Kind::sample && n_missing <= 1) {
    // The private leaf of a decoding sample: its row was set aside.
    if (n_missing == 1) {
      if (pool != nullptr && !tree.allocate_kv(node, n) && (!make_room(item, 1) || !tree.allocate_kv(node, n))) return;
      computed_.push_back({node, n - 1, n, 0, true});
    }
  } else if (!schedule_node(item, node, n)) {
    return;
  }
  want_logits(item);
}

void Lane::want_logits(Item& item) {
  StepQuery query;
  query.key = item.key;
  if (item.kind == Item::Kind::sample) {
    const auto& sample = item.wish->sample;
    query.kind = StepQuery::Kind::draw;
    query.sampler = &sample.sampler;
    query.n_top = std::max<std::int64_t>(0, sample.n_logprobs);
    query.history = {item.prompt, tree.tokens(item.leaf.id())};
    if (sample.hook) query.hook = &sample.hook;
    query.key.position = static_cast<std::uint64_t>(tree.end_position(item.leaf.id()));
  } else {
    query.kind = item.kind == Item::Kind::top ? StepQuery::Kind::top : StepQuery::Kind::reward;
    query.n_top = item.n_top;
  }
  add_query(item, last_token(item.leaf ? item.leaf.id() : item.base.id()), query);
}

// Targets whose predecessor is computed in this step: target i is read from the row of token i - 1 of the leaf.
void Lane::want_scores(Item& item, std::int64_t begin, std::int64_t end) {
  const auto& targets = item.wish->targets;
  StepQuery query;
  query.kind = StepQuery::Kind::logprob;
  if (item.n_asked == 0) {
    query.target = targets[0];
    add_query(item, last_token(item.base.id()), query);
  }
  for (std::int64_t i = begin; i < end; ++i) {
    query.target = targets[static_cast<std::size_t>(i + 1)];
    add_query(item, {item.leaf.id(), i}, query);
  }
  item.n_asked = end + 1;
}

void Lane::add_query(Item& item, TreePosition at, StepQuery query) {
  query.node = at.node;
  query.n_node_tokens = at.pos + 1;
  logit_rows_.push_back({at, queries_.size()});
  queries_.push_back(query);
  query_items_.push_back(item.shared_from_this());
}

// Spans of the plan from what is computed and the rows whose logits are wanted. A row that is wanted but not computed
// (its KV is stored) is a span of its own that writes nothing.
void Lane::build_spans() {
  spans_.clear();
  std::sort(computed_.begin(), computed_.end(), [](const auto& a, const auto& b) { return a.node < b.node; });
  std::sort(logit_rows_.begin(), logit_rows_.end(), [](const LogitRow& a, const LogitRow& b) {
    return std::tuple(a.at.node, a.at.pos, a.query) < std::tuple(b.at.node, b.at.pos, b.query);
  });
  // Appends a row to the last span if it continues it, else opens a new one.
  const auto add_logit_row = [this](NodeId node, std::int64_t pos, bool write) {
    if (!spans_.empty() && spans_.back().node == node && spans_.back().end == pos && spans_.back().write_kv == write &&
        spans_.back().n_logits > 0) {
      ++spans_.back().end;
      ++spans_.back().n_logits;
    } else {
      spans_.push_back({node, pos, pos + 1, 1, write});
    }
  };
  auto logit = logit_rows_.begin();
  const auto replay_before = [&](NodeId node, std::int64_t pos) {  // wanted rows in front of (node, pos): stored ones
    std::pair<NodeId, std::int64_t> last{kNoNode, -1};
    for (; logit != logit_rows_.end() && std::pair(logit->at.node, logit->at.pos) < std::pair(node, pos); ++logit) {
      const std::pair here(logit->at.node, logit->at.pos);
      if (here != last) add_logit_row(here.first, here.second, false);
      last = here;
    }
  };
  for (const auto& c : computed_) {
    replay_before(c.node, c.begin);
    std::int64_t begin = c.begin;
    while (logit != logit_rows_.end() && logit->at.node == c.node && logit->at.pos < c.end) {
      const std::int64_t pos = logit->at.pos;
      while (logit != logit_rows_.end() && logit->at.node == c.node && logit->at.pos == pos) ++logit;
      if (begin < pos) {
        spans_.push_back({c.node, begin, pos + 1, 1, true});
      } else {
        add_logit_row(c.node, pos, true);
      }
      begin = pos + 1;
    }
    if (begin < c.end) spans_.push_back({c.node, begin, c.end, 0, true});
  }
  replay_before(NodeId{tree.id_bound()}, 0);
}

// --- room in the pool ----------------------------------------------------------------------------------------------

bool Lane::make_room(Item& item, std::int64_t n_slots) {
  while (pool->n_free() < n_slots) {
    if (evict(n_slots)) return true;
    if (preempt_behind(item)) continue;
    if (active.size() == 1) {
      fail(item, Error(ErrorCode::never_fits, where(item),
                       "needs " + std::to_string(n_slots) + " more KV slots, " + std::to_string(pool->n_free()) +
                           " of " + std::to_string(pool->n_slots()) + " are free and nothing else can be evicted"));
    }
    return false;  // waits until those in front of it are done
  }
  return true;
}

// How much of each node the paths of active items need: that KV stays.
void Lane::collect_locked() {
  locked_.clear();
  for (const auto& item : active) {
    const NodeId end_node = item->leaf ? item->leaf.id() : item->base.id();
    std::int64_t n_needed = tree.n_tokens(end_node);
    for (NodeId n = end_node; n.valid(); n = tree.parent(n)) {
      locked_.emplace_back(n, n_needed);
      n_needed = tree.attach(n);
    }
  }
  std::sort(locked_.begin(), locked_.end());
}

std::int64_t Lane::n_locked(NodeId node) const {
  const auto behind =
      std::upper_bound(locked_.begin(), locked_.end(), std::pair(NodeId{node.value + 1}, std::int64_t{-1}));
  return behind != locked_.begin() && std::prev(behind)->first == node ? std::prev(behind)->second : 0;
}

// Evicts KV that no active item needs, least recently used first and deepest first, until n_slots are free. False, and
// nothing is evicted, where that cannot give n_slots.
bool Lane::evict(std::int64_t n_slots) {
  std::erase_if(evicted_, [this](const auto& entry) { return !tree.alive(NodeId{entry.first}); });
  collect_locked();
  struct Candidate {
    std::uint64_t last_use;
    NodeId node;
    std::int64_t n_keep;
  };
  std::vector<Candidate> candidates;
  std::int64_t n_reachable = pool->n_free();
  std::vector<NodeId> open(tree.roots().begin(), tree.roots().end());
  while (!open.empty()) {
    const NodeId n = open.back();
    open.pop_back();
    open.insert(open.end(), tree.children(n).begin(), tree.children(n).end());
    std::int64_t n_held = 0;
    for (const SlotRun& run : tree.slots(n)) n_held += run.n;
    if (const std::int64_t n_keep = n_locked(n); n_held > n_keep) {
      candidates.push_back({tree.last_use(n), n, n_keep});
      n_reachable += n_held - n_keep;
    }
  }
  if (n_reachable < n_slots) return false;
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.last_use != b.last_use ? a.last_use < b.last_use : a.node > b.node;
  });
  for (const Candidate& c : candidates) {
    if (pool->n_free() >= n_slots) break;
    const std::int64_t n_kv = tree.n_kv(c.node);
    stats.n_evicted_slots += std::max<std::int64_t>(0, n_kv - c.n_keep);
    auto& before = evicted_[c.node.value];
    before = std::max(before, n_kv);
    tree.evict_kv(c.node, c.n_keep);
  }
  return pool->n_free() >= n_slots;
}

// Sends the last active item behind `item` back to wait; its own KV is freed. False: there is none.
bool Lane::preempt_behind(const Item& item) {
  if (active.empty() || active.back().get() == &item) return false;
  auto victim = std::move(active.back());
  active.pop_back();
  victim->path_ready = false;
  ask_again(*victim);
  if (victim->leaf) {
    evicted_[victim->leaf.id().value] = tree.n_kv(victim->leaf.id());
    tree.evict_kv(victim->leaf.id());
  }
  ++stats.n_preempted;
  pool_is_tight_ = true;
  waiting.emplace(victim->order, std::move(victim));
  return true;
}

LaneStats Lane::current_stats() const {
  LaneStats s = stats;
  s.n_active = static_cast<std::int64_t>(active.size());
  s.n_waiting = static_cast<std::int64_t>(waiting.size() + arrived.size());
  if (pool != nullptr) {
    s.kv_slots_total = pool->n_slots();
    s.kv_slots_used = pool->n_slots() - pool->n_free();
  }
  return s;
}

}  // namespace banyan::detail
