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

void Lane::forward_and_sample() {
  answers_.resize(queries_.size());
  for (StepAnswer& answer : answers_) answer.error.reset();
  try {
    const auto ticket = runner->submit(tree, plan_, queries_);
    for (const StepSpan& span : spans_) {
      if (span.write_kv) tree.commit_kv(span.node, span.end);
    }
    const StepTimes times = runner->harvest(ticket, answers_);
    stats.forward_ms += times.forward_ms;
    stats.sample_ms += times.sample_ms;
  } catch (const Error& error) {
    // The step is lost (no memory, a device failure), not the session: KV that it was to write is invalid, and those
    // who took part hear of it.
    for (const StepSpan& span : spans_) {
      if (span.write_kv) tree.evict_kv(span.node);
    }
    for (const auto& item : active) {
      if (item->wish != nullptr) fail(*item, error);
    }
  }
}

void Lane::grow() {
  // Rows by what they were for: given tokens, drawn tokens, tokens whose KV had been evicted.
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

  for (std::size_t i = 0; i < queries_.size(); ++i) {
    Item& item = *query_items_[i];
    if (item.wish != nullptr && item.wish->job &&
        std::exchange(item.wish->job->last_step, stats.n_steps) != stats.n_steps) {
      ++item.wish->job->n_steps;
    }
  }
  for (std::size_t i = 0; i < queries_.size(); ++i) {
    Item& item = *query_items_[i];
    if (item.wish == nullptr) continue;  // withdrawn by a callback, or failed on an earlier answer
    const StepAnswer& answer = answers_[i];
    if (answer.error) {
      fail(item, *answer.error);
      continue;
    }
    switch (item.kind) {
      case Item::Kind::sample: grow_sample(item, answer); break;
      case Item::Kind::score: grow_score(item, answer); break;
      case Item::Kind::top:
        item.wish->top = answer.choice.top;
        close(item);
        break;
      case Item::Kind::reward:
        item.wish->reward = answer.reward;
        close(item);
        break;
    }
  }
  std::erase_if(active, [](const auto& item) { return item->wish == nullptr; });
}

void Lane::grow_sample(Item& item, const StepAnswer& answer) {
  const SampleOptions& options_of = item.wish->sample;
  Thought& thought = item.wish->thoughts[item.result];
  const TokenId token = answer.choice.token;
  thought.tokens.push_back(token);
  thought.cumulative_logprob += answer.choice.logprob;
  if (options_of.n_logprobs >= 0) thought.logprobs.push_back(answer.choice.logprob);
  if (options_of.n_logprobs > 0) thought.top.push_back(answer.choice.top);
  ++stats.n_generated;
  if (item.wish->job) ++item.wish->job->n_tokens;

  const auto among = [token](const std::vector<TokenId>& ids) {
    return std::find(ids.begin(), ids.end(), token) != ids.end();
  };
  if (!options_of.ignore_eos && (among(runner->eos_ids()) || among(options_of.eos_ids))) {
    finish_sample(item, FinishReason::eos);
    return;
  }
  const NodeId leaf = item.leaf.id();
  tree.append(leaf, token);
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
    tree.truncate(leaf, item.text.n_kept_tokens());
    finish_sample(item, FinishReason::stop);
  } else if (static_cast<std::int64_t>(thought.tokens.size()) == options_of.max_tokens) {
    finish_sample(item, FinishReason::length);
  } else if (tree.end_position(leaf) >= runner->max_positions()) {
    finish_sample(item, FinishReason::context);
  }
}

void Lane::grow_score(Item& item, const StepAnswer& answer) {
  Score& score = item.wish->score;
  score.logprobs.push_back(answer.choice.logprob);
  score.sum += answer.choice.logprob;
  if (++item.n_scored == static_cast<std::int64_t>(item.wish->targets.size())) close(item);
}

void Lane::finish_sample(Item& item, FinishReason reason) {
  Thought& thought = item.wish->thoughts[item.result];
  thought.finish = reason;
  Node leaf = std::move(item.leaf);
  item.leaf = Node();
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
