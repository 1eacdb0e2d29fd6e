// Lane: the plan, forward, sample and grow of a step.
#include <algorithm>
#include <utility>

#include "engine/lane.hpp"
#include "plan/keys_read.hpp"

namespace banyan::detail {

void Lane::make_plan() {
  planner.update(tree, spans_, plan_);
  // Span of (node, pos) -> row -> place among the logit rows.
  auto span = spans_.begin();
  for (const LogitRow& wanted : logit_rows_) {  // sorted as the spans are
    while (span->node != wanted.at.node || wanted.at.pos >= span->end) ++span;
    const auto row = plan_.span_rows[static_cast<std::size_t>(span - spans_.begin())] +
                     static_cast<std::int32_t>(wanted.at.pos - span->begin);
    const auto found = std::lower_bound(plan_.logit_rows.begin(), plan_.logit_rows.end(), row);
    queries_[wanted.query].logit_index = static_cast<std::int32_t>(found - plan_.logit_rows.begin());
  }
  ++stats.n_steps;
  stats.n_rows += plan_.n_rows();
  const KeysRead keys = keys_read(tree, plan_);
  const auto bytes = static_cast<double>(runner->kv_bytes_per_token());
  stats.attention_bytes_shared += static_cast<double>(keys.shared) * bytes;
  stats.attention_bytes_unshared += static_cast<double>(keys.unshared) * bytes;
}

void Lane::submit() {
  Flight& flight = flights_[static_cast<std::size_t>(n_flights_)];
  try {
    flight.ticket = runner->submit(tree, plan_, queries_);
  } catch (const Error& error) {
    // The step is lost (no memory, a device failure), not the session: those who took part hear of it, when what was in
    // flight before has come.
    const Error lost = error;
    while (harvest()) grow();
    lose(spans_);
    fail_active(lost);
    return;
  }
  for (const StepSpan& span : spans_) {
    if (span.write_kv) tree.commit_kv(span.node, span.end);
  }
  count_rows();
  flight.spans.swap(spans_);
  flight.items.swap(query_items_);
  ++n_flights_;
  take_off(flight);
}

// Those who take part, and the places of the tokens that it will draw.
void Lane::take_off(Flight& flight) {
  flight.jobs.clear();
  const std::pair step(id.value, stats.n_steps);
  for (std::size_t i = 0; i < flight.items.size(); ++i) {
    Item& item = *flight.items[i];
    ++item.n_in_flight;
    if (item.job && std::exchange(item.job->last_step, step) != step) {
      ++item.job->n_steps_in_flight;
      flight.jobs.push_back(item.job);
    }
    if (item.kind != Item::Kind::sample) continue;
    tree.append(item.leaf.id(), drawn_token(static_cast<std::int64_t>(i)));
    if (item.job) ++item.job->n_tokens_in_flight;
  }
}

// Rows by what they were for: given tokens, drawn tokens, tokens whose KV had been evicted.
void Lane::count_rows() {
  std::int64_t n_computed = 0, n_drawn = 0, n_again = 0;
  for (const StepSpan& span : spans_) n_computed += span.write_kv ? span.end - span.begin : 0;
  for (const auto& item : active) {
    if (item->kind == Item::Kind::sample && item->leaf) {
      const auto it = std::lower_bound(spans_.begin(), spans_.end(), item->leaf.id(),
                                       [](const StepSpan& s, NodeId n) { return s.node < n; });
      if (it != spans_.end() && it->node == item->leaf.id() && it->write_kv) n_drawn += it->end - it->begin;
    }
  }
  if (!evicted_.empty()) {
    for (const StepSpan& span : spans_) {
      const auto it = evicted_.find(span.node.value);
      if (it == evicted_.end() || !span.write_kv) continue;
      n_again += std::max<std::int64_t>(0, std::min(span.end, it->second) - span.begin);
      if (span.end >= it->second) evicted_.erase(it);
    }
  }
  stats.n_recomputed += n_again;
  const std::int64_t n_given = std::max<std::int64_t>(0, n_computed - n_drawn - n_again);
  stats.n_prefill_computed += n_given;
  stats.n_prefill_saved -= n_given;
}

bool Lane::harvest() {
  if (n_flights_ == 0) return false;
  const Flight& flight = flights_[0];
  answers_.resize(flight.items.size());
  for (StepAnswer& answer : answers_) answer.error.reset();
  try {
    const StepTimes times = runner->harvest(flight.ticket, answers_);
    stats.forward_ms += times.forward_ms;
    stats.sample_ms += times.sample_ms;
    stats.device_ms += times.device_ms;
    stats.device_idle_ms += times.device_idle_ms;
    return true;
  } catch (const Error& error) {
    // As in submit(); and lost is what was computed from it.
    const Error lost = error;
    for (int i = 0; i < n_flights_; ++i) {
      Flight& gone = flights_[static_cast<std::size_t>(i)];
      if (i > 0) {
        answers_.resize(gone.items.size());
        try {
          runner->harvest(gone.ticket, answers_);
        } catch (const Error&) {  // says the same
        }
      }
      for (const auto& item : gone.items) {
        if (item) count_landing(*item);
      }
      for (const auto& job : gone.jobs) --job->n_steps_in_flight;
      gone.items.clear();
      lose(gone.spans);
    }
    n_flights_ = 0;
    fail_active(lost);
    return false;
  }
}

// KV that a lost step was to write is invalid.
void Lane::lose(std::span<const StepSpan> spans) {
  for (const StepSpan& span : spans) {
    if (span.write_kv && tree.alive(span.node)) tree.evict_kv(span.node);
  }
}

void Lane::fail_active(const Error& error) {
  for (const auto& item : active) {
    if (item->wish != nullptr) fail(*item, error);
  }
  std::erase_if(active, [](const auto& item) { return item->wish == nullptr; });
}

void Lane::count_landing(Item& item) const {
  --item.n_in_flight;
  if (item.kind == Item::Kind::sample && item.job) --item.job->n_tokens_in_flight;
}

// Answers that are in flight for the item, or have come and were not looked at, come to nothing.
void Lane::ask_again(Item& item) {
  for (int i = 0; i < n_flights_ && item.n_in_flight > 0; ++i) {
    for (auto& asked : flights_[static_cast<std::size_t>(i)].items) {
      if (asked.get() != &item) continue;
      count_landing(item);
      asked.reset();
    }
  }
  if (item.kind == Item::Kind::sample) {
    tree.truncate(item.leaf.id(), static_cast<std::int64_t>(item.wish->thoughts[item.result].tokens.size()));
  } else if (item.kind == Item::Kind::score) {
    item.n_asked = 0;
    item.wish->score = {};
  }
}

void Lane::grow() {
  land();
  std::size_t i = 0;
  try {
    for (; i < landed_.size(); ++i) {
      if (landed_[i] && landed_[i]->wish != nullptr) {
        grow_item(*landed_[i], answers_[i]);
      } else {
        ++stats.n_surplus_rows;  // it had ended, or was withdrawn or preempted
      }
    }
  } catch (...) {  // from a callback: its sample ends here, the others ask again
    if (Item& item = *landed_[i]; item.wish != nullptr) {
      Thought& thought = item.wish->thoughts[item.result];
      thought.finish = FinishReason::error;
      thought.error = Error(ErrorCode::bad_input, "callback", "has thrown");
      close(item);
    }
    for (++i; i < landed_.size(); ++i) {
      if (!landed_[i] || landed_[i]->wish == nullptr) continue;
      Item& item = *landed_[i];
      ask_again(item);
      if (item.kind == Item::Kind::score) tree.evict_kv(item.leaf.id());
    }
    throw;
  }
  landed_.clear();
  std::erase_if(active, [](const auto& item) { return item->wish == nullptr; });
}

// The oldest flight is one no more.
void Lane::land() {
  Flight& flight = flights_[0];
  for (const auto& job : flight.jobs) job->took_part = false;
  for (const auto& item : flight.items) {
    if (!item) continue;
    count_landing(*item);
    if (item->wish != nullptr && item->job) item->job->took_part = true;
  }
  for (const auto& job : flight.jobs) {
    --job->n_steps_in_flight;
    if (job->took_part) ++job->n_steps;
  }
  landed_.clear();
  landed_.swap(flight.items);
  std::rotate(flights_.begin(), flights_.begin() + 1, flights_.end());
  --n_flights_;
}

void Lane::grow_item(Item& item, const StepAnswer& answer) {
  if (answer.error) return fail(item, *answer.error);
  switch (item.kind) {
    case Item::Kind::sample: return grow_sample(item, answer);
    case Item::Kind::score: return grow_score(item, answer);
    case Item::Kind::top: item.wish->top = answer.choice.top; return close(item);
    case Item::Kind::reward: item.wish->reward = answer.reward; return close(item);
  }
}

void Lane::grow_sample(Item& item, const StepAnswer& answer) {
  const SampleOptions& options_of = item.wish->sample;
  Thought& thought = item.wish->thoughts[item.result];
  const TokenId token = answer.choice.token;
  thought.tokens.push_back(token);
  const auto n_drawn = static_cast<std::int64_t>(thought.tokens.size());
  thought.cumulative_logprob += answer.choice.logprob;
  if (options_of.n_logprobs >= 0) thought.logprobs.push_back(answer.choice.logprob);
  if (options_of.n_logprobs > 0) thought.top.push_back(answer.choice.top);
  ++stats.n_generated;
  if (item.job) ++item.job->n_tokens;

  const auto among = [token](const std::vector<TokenId>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  if (!options_of.ignore_eos && (among(runner->eos_ids()) || among(options_of.eos_ids))) {
    finish_sample(item, FinishReason::eos, 1);
    return;
  }
  const NodeId leaf = item.leaf.id();
  tree.set_token(leaf, n_drawn - 1, token);
  bool stopped = false;
  if (const Tokenizer* tokenizer = runner->tokenizer()) {
    stopped = item.text.push(tokenizer->token_bytes(token, false));
    if (options_of.on_text) {
      if (const auto shown = item.text.take_shown(); !shown.empty()) {
        options_of.on_text(thought.parent_index, thought.sample, shown);
        if (item.wish == nullptr) return;  // the callback cancelled the search
      }
    }
  }
  if (stopped) {
    finish_sample(item, FinishReason::stop, n_drawn - item.text.n_kept_tokens());
  } else if (n_drawn == options_of.max_tokens) {
    finish_sample(item, FinishReason::length);
  } else if (tree.begin_position(leaf) + n_drawn >= runner->max_positions()) {
    finish_sample(item, FinishReason::context);
  }
}

void Lane::grow_score(Item& item, const StepAnswer& answer) {
  Score& score = item.wish->score;
  score.logprobs.push_back(answer.choice.logprob);
  score.sum += answer.choice.logprob;
  if (score.logprobs.size() == item.wish->targets.size()) close(item);
}

// The node keeps all drawn tokens but the last n_dropped; none that is in flight.
void Lane::finish_sample(Item& item, FinishReason reason, std::int64_t n_dropped) {
  Thought& thought = item.wish->thoughts[item.result];
  thought.finish = reason;
  Node leaf = std::move(item.leaf);
  item.leaf = Node();
  if (leaf) {
    const auto n_drawn = static_cast<std::int64_t>(thought.tokens.size());
    tree.truncate(leaf.id(), n_drawn - n_dropped);
    tree.evict_kv(leaf.id(), std::max<std::int64_t>(0, n_drawn - 1));  // of the last token, from a surplus row
  }
  if (leaf && pool != nullptr) tree.trim_kv(leaf.id());
  if (item.wish->sample.keep_nodes) thought.node = std::move(leaf);
  item.text.finish();
  if (const auto& on_text = item.wish->sample.on_text) {
    if (const auto shown = item.text.take_shown(); !shown.empty()) on_text(thought.parent_index, thought.sample, shown);
    if (item.wish == nullptr) return;
  }
  thought.text = item.text.text();
  if (const auto& on_done = item.wish->sample.on_done) {
    on_done(thought.parent_index, thought);
    if (item.wish == nullptr) return;
  }
  close(item);
}

// The item alone has failed: a sample says so in its thought, other verbs throw.
void Lane::fail(Item& item, const Error& error) {
  if (item.kind == Item::Kind::sample) {
    item.wish->thoughts[item.result].error = error;
    finish_sample(item, FinishReason::error);
  } else {
    item.wish->error = error;
    close(item);
  }
}

void Lane::withdraw(const Wish& wish) {
  const auto drop = [&wish](Item& item) {
    if (item.wish != &wish) return;
    item.wish = nullptr;
    item.leaf = Node();
    item.base = Node();
  };
  pool_is_tight_ = false;
  sweep_waiting_ = true;
  for (auto& item : arrived) {
    if (item) drop(*item);
  }
  for (auto& entry : waiting) drop(*entry.second);
  for (auto& item : active) drop(*item);
}

void Lane::close(Item& item) {
  Wish& wish = *std::exchange(item.wish, nullptr);
  pool_is_tight_ = false;
  item.leaf = Node();
  item.base = Node();
  if (--wish.n_open == 0) wish.session->ready.push_back(&wish);
}

}  // namespace banyan::detail
