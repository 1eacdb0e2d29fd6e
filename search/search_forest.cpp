// Where thoughts and prompts stand in the session's forest, and what using them computes.
#include <algorithm>

#include "search_state.hpp"

namespace banyan::search {

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {  // the finaliser of SplitMix64
  std::uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Node Search::State::node_of(ThoughtId id) {
  if (at(id).node) return at(id).node;
  Node node;
  std::int64_t n_tokens = 0, n_charged = 0;  // of its run (root: of its path); of those, charged already
  if (id == kRootThought) {
    if (options.root) {
      node = options.root;
    } else {
      const Draw place = prompt_place(problem->prompt(), options.lane);
      node = place.node;
      // The shared part is charged with the root, unless a judge's prompt began with it.
      if (place.n_shared_tokens > 0 && !charged_prompts.insert(place.shared).second) n_charged = place.n_shared_tokens;
    }
    n_tokens = node.position();
  } else {
    const Node parent = node_of(at(id).thought.parent);
    if (!parent) return parent;
    const Record& r = at(id);
    if (r.drawn) {
      node = session.extend(parent, std::span(r.thought.tokens).first(static_cast<std::size_t>(r.n_kept)));
    } else if (!r.given.empty()) {
      node = session.extend(parent, r.given);
    } else {
      node = session.extend(parent, r.thought.text);
    }
    n_tokens = static_cast<std::int64_t>(node.tokens().size());
  }
  if (n_tokens > kv_limit() - counters.kv_tokens) {
    if (stop == StopReason::none) stop = StopReason::kv_bytes;
    return {};
  }
  hold(id, node, n_tokens - n_charged);
  return node;
}

void Search::State::hold(ThoughtId id, Node node, std::int64_t n_to_compute) {
  Record& r = at(id);
  r.n_node_tokens = id == kRootThought ? node.position() : static_cast<std::int64_t>(node.tokens().size());
  r.n_to_compute = n_to_compute;
  r.node = std::move(node);
  r.wanted = true;
  counters.kv_tokens += r.n_node_tokens;
  counters.kv_tokens_max = std::max(counters.kv_tokens_max, counters.kv_tokens);
  if (id != kRootThought) ++at(r.thought.parent).n_held_below;
}

void Search::State::let_go(ThoughtId id) {
  at(id).wanted = false;
  release_if_free(id);
}

void Search::State::release_if_free(ThoughtId id) {
  for (; id != kRootThought; id = at(id).thought.parent) {
    Record& r = at(id);
    if (!r.node || r.wanted || r.n_held_below > 0) return;
    if (r.thought.state == ThoughtState::inner) r.thought.state = ThoughtState::dropped;
    r.node = Node();
    r.charged = false;
    counters.kv_tokens -= r.n_node_tokens;
    --at(r.thought.parent).n_held_below;
  }
}

Search::State::Draw Search::State::prompt_place(const Prompt& prompt, LaneId lane) {
  Draw draw;
  if (!prompt.shared.empty()) {
    Node& shared = shared_prompts[{lane.value, prompt.shared}];
    if (!shared) shared = session.insert(prompt.shared, lane, prompt.parse_special);
    draw.shared = mix(hash_stream(prompt.shared), static_cast<std::uint64_t>(lane.value));
    draw.n_shared_tokens = shared.position();
    draw.node = prompt.own.empty() ? shared : session.extend(shared, prompt.own, prompt.parse_special);
  } else {
    draw.node = session.insert(prompt.own, lane, prompt.parse_special);
  }
  draw.position = draw.node.position();
  draw.n_own_tokens = draw.position - draw.n_shared_tokens;
  return draw;
}

bool Search::State::charge(std::int64_t n_tokens) {
  if (options.budget.prefill_tokens - counters.prefill_computed < n_tokens) {
    if (stop == StopReason::none) stop = StopReason::prefill_tokens;
    return false;
  }
  counters.prefill_computed += n_tokens;
  return true;
}

bool Search::State::use(ThoughtId id) {
  std::int64_t n = 0;
  for (ThoughtId i = id; i != kNoThought && !at(i).charged; i = at(i).thought.parent) n += at(i).n_to_compute;
  if (!charge(n)) return false;
  for (ThoughtId i = id; i != kNoThought && !at(i).charged; i = at(i).thought.parent) at(i).charged = true;
  return true;
}

bool Search::State::use(const Draw& draw) {
  if (draw.thought != kNoThought) return use(draw.thought);
  const bool first = draw.n_shared_tokens > 0 && !charged_prompts.contains(draw.shared);
  const std::int64_t n = draw.n_own_tokens + (first ? draw.n_shared_tokens : 0);
  if (!charge(n)) return false;
  spent.computed += n;
  if (first) {
    charged_prompts.insert(draw.shared);
    spent.shared.push_back(draw.shared);
  }
  return true;
}

}  // namespace banyan::search
