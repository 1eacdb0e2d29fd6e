// The session's loop, its verbs and the handles it gives out.
#include "banyan/session.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "engine/lane.hpp"

namespace banyan {

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::eos: return "eos";
    case FinishReason::length: return "length";
    case FinishReason::context: return "context";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::error: return "error";
  }
  return "unknown";
}

// --- Node ----------------------------------------------------------------------------------------------------------

Node::Node(std::shared_ptr<detail::Lane> lane, NodeId id) : lane_(std::move(lane)), id_(id) { lane_->tree.pin(id_); }
Node::Node(const Node& other) : lane_(other.lane_), id_(other.id_) {
  if (lane_) lane_->tree.pin(id_);
}
Node& Node::operator=(Node other) noexcept {
  std::swap(lane_, other.lane_);
  std::swap(id_, other.id_);
  return *this;
}
Node::~Node() {
  if (lane_) lane_->tree.release(id_);
}
LaneId Node::lane() const { return lane_->id; }
std::span<const TokenId> Node::tokens() const { return lane_->tree.tokens(id_); }
std::vector<TokenId> Node::path() const {
  std::vector<TokenId> tokens;
  lane_->tree.path_tokens(id_, tokens);
  return tokens;
}
std::int64_t Node::position() const { return lane_->tree.end_position(id_); }
std::string Node::text() const {
  const Tokenizer* tokenizer = lane_->runner->tokenizer();
  return tokenizer != nullptr ? tokenizer->decode(tokens(), !lane_->tree.parent(id_).valid()) : std::string();
}

namespace detail {

// --- wishes and jobs -----------------------------------------------------------------------------------------------

Wish::Wish(std::shared_ptr<SessionState> s) : session(std::move(s)), job(session->current_job) {}

Wish::~Wish() {
  if (n_open > 0) {
    for (const auto& lane : session->lanes) lane->withdraw(*this);
  }
  std::erase(session->ready, this);
}

void SessionState::resume() {
  const auto run = [this](const std::shared_ptr<JobState>& job, std::coroutine_handle<> handle) {
    current_job = job;
    handle.resume();
    current_job = nullptr;
  };
  // Only what stands there now: searches woken here may start others and meet new wishes; those come next turn.
  for (std::size_t n = started.size(); n > 0 && !started.empty(); --n) {
    const auto job = started.front();
    started.pop_front();
    if (job->handle) run(job, job->handle);
  }
  for (std::size_t n = ready.size(); n > 0 && !ready.empty(); --n) {
    Wish& wish = *ready.front();
    ready.pop_front();
    // A wish that was met before it was awaited has no waiter: its verb goes on by itself.
    if (wish.waiter) run(wish.job, std::exchange(wish.waiter, nullptr));
  }
}

bool job_done(const JobState& job) { return !job.handle || job.handle.done(); }
void forget_job(JobState& job) { job.handle = nullptr; }
std::int64_t job_tokens(const JobState& job) { return job.n_tokens; }

}  // namespace detail

// --- session -------------------------------------------------------------------------------------------------------

Session::Session() : state_(std::make_shared<detail::SessionState>()) {}
Session::~Session() = default;

LaneId Session::add_lane(std::unique_ptr<StepRunner> runner, const LaneOptions& options) {
  if (options.max_batch < 1 || options.max_rows < 1) {
    throw Error(ErrorCode::usage, options.max_batch < 1 ? "max_batch" : "max_rows",
                std::to_string(std::min(options.max_batch, options.max_rows)) + " must be at least 1");
  }
  const LaneId id{static_cast<std::int32_t>(state_->lanes.size())};
  state_->lanes.push_back(std::make_shared<detail::Lane>(id, std::move(runner), options));
  return id;
}

detail::Lane& Session::lane(LaneId id) const {
  if (id.value < 0 || static_cast<std::size_t>(id.value) >= state_->lanes.size()) {
    throw Error(ErrorCode::usage, "lane " + std::to_string(id.value),
                "the session has " + std::to_string(state_->lanes.size()) + " lanes");
  }
  return *state_->lanes[static_cast<std::size_t>(id.value)];
}
const StepRunner& Session::runner(LaneId id) const { return *lane(id).runner; }
const SequenceTree& Session::tree(LaneId id) const { return lane(id).tree; }
LaneStats Session::stats(LaneId id) const { return lane(id).current_stats(); }

namespace {

void check_tokens(const detail::Lane& lane, std::span<const TokenId> tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= lane.runner->vocab_size()) {
      throw Error(ErrorCode::bad_input, "token " + std::to_string(i),
                  "id " + std::to_string(tokens[i]) + " is not in the vocabulary of " +
                      std::to_string(lane.runner->vocab_size()));
    }
  }
}

const Tokenizer& tokenizer_of(const detail::Lane& lane) {
  if (lane.runner->tokenizer() == nullptr) {
    throw Error(ErrorCode::unsupported, lane.runner->name(), "has no tokenizer: give token ids");
  }
  return *lane.runner->tokenizer();
}

const std::shared_ptr<detail::Lane>& lane_of(const std::shared_ptr<detail::Lane>& lane) {
  if (!lane) throw Error(ErrorCode::usage, "node", "an empty handle names no node");
  return lane;
}

// Stable id of a token path, for the default random stream of its samples.
std::uint64_t hash_path(std::span<const TokenId> tokens) {
  return hash_stream({reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
}

}  // namespace

Node Session::insert(std::span<const TokenId> tokens, LaneId id) {
  detail::Lane& l = lane(id);
  check_tokens(l, tokens);
  return l.node(l.tree.insert(tokens));
}

Node Session::insert(std::string_view text, LaneId id, bool parse_special) {
  return insert(tokenizer_of(lane(id)).encode(text, {.add_bos = true, .parse_special = parse_special}), id);
}

Node Session::extend(const Node& node, std::span<const TokenId> tokens) {
  detail::Lane& l = *lane_of(node.lane_);
  check_tokens(l, tokens);
  Node child = l.node(l.tree.fork(node.id()));
  l.tree.append(child.id(), tokens);
  return child;
}

Node Session::extend(const Node& node, std::string_view text, bool parse_special) {
  const auto& tokenizer = tokenizer_of(*lane_of(node.lane_));
  return extend(node, tokenizer.encode(text, {.add_bos = false, .parse_special = parse_special, .first = false}));
}

Node Session::fork(const Node& node, std::int64_t pos) {
  detail::Lane& l = *lane_of(node.lane_);
  return l.node(l.tree.fork(node.id(), pos));
}

void Session::adopt_kv(const Node& node) {
  detail::Lane& l = *lane_of(node.lane_);
  const std::int64_t n = l.tree.n_tokens(node.id());
  if (l.pool == nullptr || !l.tree.allocate_kv(node.id(), n)) {
    throw Error(
        ErrorCode::never_fits, "node " + std::to_string(node.id().value),
        std::to_string(n) + " tokens, " + std::to_string(l.pool == nullptr ? 0 : l.pool->n_free()) + " free KV slots");
  }
  l.tree.commit_kv(node.id(), n);
}

// --- verbs ---------------------------------------------------------------------------------------------------------

namespace {

std::shared_ptr<detail::Item> make_item(detail::Wish& wish, detail::Item::Kind kind, const Node& base,
                                        std::int32_t priority) {
  auto item = std::make_shared<detail::Item>(wish, kind);
  item->base = base;
  item->order = {-static_cast<std::int64_t>(priority), wish.session->next_number++};
  ++wish.n_open;
  return item;
}

void check_eos_ids(const detail::Lane& lane, std::span<const TokenId> ids) {
  for (const TokenId id : ids) {
    if (id >= 0 && id < lane.runner->vocab_size()) continue;
    throw Error(ErrorCode::usage, "eos_ids",
                std::to_string(id) + " is not in the vocabulary of " + std::to_string(lane.runner->vocab_size()));
  }
}

void check(const SampleOptions& options) {
  validate(options.sampler);
  const auto bad = [](const char* name, std::int64_t value, const char* rule) {
    throw Error(ErrorCode::usage, name, std::to_string(value) + " " + rule);
  };
  if (options.n < 1) bad("n", options.n, "must be at least 1");
  if (options.max_tokens < -1) bad("max_tokens", options.max_tokens, "must be -1 (up to the context) or more");
  if (options.n_logprobs < -1) bad("n_logprobs", options.n_logprobs, "must be -1 or more");
}

}  // namespace

Task<std::vector<Thought>> Session::sample(std::vector<Node> nodes, SampleOptions options) {
  check(options);
  detail::Wish wish(state_);
  wish.sample = std::move(options);
  const auto n = static_cast<std::size_t>(wish.sample.n);
  wish.thoughts.resize(nodes.size() * n);
  std::vector<TokenId> path;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    detail::Lane& l = *lane_of(nodes[i].lane_);
    check_eos_ids(l, wish.sample.eos_ids);
    l.forget_dead_counts();
    l.tree.path_tokens(nodes[i].id(), path);
    const std::uint64_t stream = wish.sample.stream.value_or(hash_path(path));
    std::uint64_t& drawn = l.samples_drawn[nodes[i].id().value];
    const std::uint64_t first = wish.sample.first_sample.value_or(drawn);
    drawn = std::max(drawn, first + n);
    for (std::size_t k = 0; k < n; ++k) {
      auto item = make_item(wish, detail::Item::Kind::sample, nodes[i], wish.sample.priority);
      item->result = i * n + k;
      item->key = {.seed = wish.sample.seed, .prompt = stream, .sample = first + k, .position = 0};
      wish.thoughts[item->result].parent_index = i;
      wish.thoughts[item->result].sample = first + k;
      l.add(std::move(item));
    }
  }
  co_await wish;
  co_return std::move(wish.thoughts);
}

Task<std::vector<Thought>> Session::sample(Node node, SampleOptions options) {
  return sample(std::vector<Node>{std::move(node)}, std::move(options));
}

Task<Score> Session::score(Node node, std::vector<TokenId> tokens) {
  detail::Lane& l = *lane_of(node.lane_);
  check_tokens(l, tokens);
  detail::Wish wish(state_);
  if (!tokens.empty()) {
    wish.targets = std::move(tokens);
    l.add(make_item(wish, detail::Item::Kind::score, node, 0));
  }
  co_await wish;
  if (wish.error) throw Error(*wish.error);
  co_return std::move(wish.score);
}

Task<std::vector<TokenLogprob>> Session::next(Node node, std::int64_t k) {
  detail::Lane& l = *lane_of(node.lane_);
  if (k < 1) throw Error(ErrorCode::usage, "k", std::to_string(k) + " must be at least 1");
  detail::Wish wish(state_);
  auto item = make_item(wish, detail::Item::Kind::top, node, 0);
  item->n_top = std::min(k, l.runner->vocab_size());
  l.add(std::move(item));
  co_await wish;
  if (wish.error) throw Error(*wish.error);
  co_return std::move(wish.top);
}

Task<double> Session::reward(Node node) {
  detail::Lane& l = *lane_of(node.lane_);
  detail::Wish wish(state_);
  l.add(make_item(wish, detail::Item::Kind::reward, node, 0));
  co_await wish;
  if (wish.error) throw Error(*wish.error);
  co_return wish.reward;
}

// --- the loop ------------------------------------------------------------------------------------------------------

std::shared_ptr<detail::JobState> Session::start_job(std::coroutine_handle<> handle, const JobOptions& options) {
  auto job = std::make_shared<detail::JobState>();
  job->handle = handle;
  job->options = options;
  state_->started.push_back(job);
  return job;
}

bool Session::step() {
  const auto state = state_;  // a callback may destroy the session's owner
  state->resume();            // searches that were started, or whose wish needed no step
  for (const auto& lane : state->lanes) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    const auto since = [](Clock::time_point t) {
      return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
    };
    const bool any = lane->gather();
    lane->stats.gather_ms += since(begin);
    if (any) {
      const auto plan_begin = Clock::now();
      lane->make_plan();
      lane->stats.plan_ms += since(plan_begin);
      lane->submit();
      if (lane->may_submit()) continue;  // a device plans the next step while it computes this one
    }
    if (!lane->harvest()) continue;
    const auto grow_begin = Clock::now();
    lane->grow();
    lane->stats.grow_ms += since(grow_begin);
  }
  state->resume();
  return !state->started.empty() || !state->ready.empty() ||
         std::any_of(state->lanes.begin(), state->lanes.end(), [](const auto& lane) { return !lane->idle(); });
}

}  // namespace banyan
