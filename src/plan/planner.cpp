#include <algorithm>
#include <cassert>
#include <string>

#include "banyan/error.hpp"
#include "banyan/plan.hpp"
#include "plan/active_tree.hpp"

namespace banyan {

namespace {

using Sharing = PlanOptions::Sharing;
using Storage = SequenceTree::Storage;

[[noreturn]] void throw_no_slots(const ActiveNode& node, std::int64_t n) {
  throw Error(ErrorCode::usage, "node " + std::to_string(node.id.value),
              "has KV slots for " + std::to_string(node.n_slots()) + " of the " + std::to_string(n) +
                  " tokens that the step reads or writes; allocate_kv comes before planning");
}

// Walks the slots of a node, token by token or run by run, from any token on. The last run stands in the page; what
// begins there, as most does, need not follow the pointers of the segment.
class SlotCursor {
 public:
  SlotCursor(const ActiveNode& node, std::int64_t from)
      : run_(&node.page->last_run[node.page_row()]), offset_(from - (node.n_slots() - run_->n)) {
    if (offset_ >= 0) return;
    run_ = node.page->segment[node.page_row()].runs.data();
    offset_ = from;
    while (offset_ >= run_->n) offset_ -= (run_++)->n;
  }
  // The next slots, at most n and all of one run.
  SlotRun next(std::int64_t n) {
    if (offset_ == run_->n) {
      ++run_;
      offset_ = 0;
    }
    const SlotRun out{run_->first + offset_, std::min(n, run_->n - offset_)};
    offset_ += out.n;
    return out;
  }

 private:
  const SlotRun* run_;
  std::int64_t offset_;
};

}  // namespace

// Builds one plan. What it keeps from one build to the next is memory, and the tails that update() needs.
struct Planner::Scratch {
  // A span of one row whose last call has no other row: to go on by one token is to make that call one key longer.
  struct Tail {
    NodeId node;
    std::int32_t next = 0;  // token of the continuation
    std::int32_t call = 0;
    std::uint8_t n_logits = 0;
    bool write_kv = true;
  };
  // A call that goes on in another run, which begins at this slot.
  struct NewRun {
    std::int32_t call;
    std::int64_t slot;
  };
  // Tokens [begin, end) of a node.
  struct Piece {
    std::int32_t node;
    std::int64_t begin, end;
  };

  PlanOptions options;
  ActiveTree active;
  std::vector<std::int32_t> order;     // active nodes, depth first
  std::vector<std::int32_t> children;  // of one node, in order
  std::vector<Piece> pieces;
  std::vector<Tail> tails;      // [n_spans]
  std::int64_t n_growable = 0;  // tails that have a call
  std::vector<NewRun> new_runs;
  bool complete = false;  // the last build came to its end
  const Storage* storage = nullptr;
  std::span<const StepSpan> spans;
  Plan* plan = nullptr;

  ActiveNode& node(std::int32_t i) { return active.nodes[static_cast<std::size_t>(i)]; }
  std::int32_t n_rows() const { return static_cast<std::int32_t>(plan->tokens.size()); }
  bool has_slots() const { return storage->pool != nullptr; }
  std::int32_t tile_floor(std::int32_t position) const {
    constexpr auto kTile = static_cast<std::int32_t>(kTilePositions);
    return options.deterministic ? position / kTile * kTile : position;
  }

  void build();
  void number_rows();
  void add_rows(ActiveNode& n);
  void add_span_rows(const ActiveNode& n, std::int32_t span);
  void add_shared_calls(std::int32_t n, bool hand_over);
  void add_lone_calls(std::int32_t n, std::int32_t from);
  void add_call(std::int32_t n, std::int64_t begin, std::int64_t end, std::int32_t row_begin, std::int32_t row_end);
  void add_runs(const Piece& piece, std::size_t run_begin);
  void note_tail(const ActiveNode& n);
  bool is_computed(const Piece& piece);
  bool continue_by_one();
  void insert_new_runs();
};

void Planner::Scratch::build() {
  complete = false;
  active.build(*storage, spans);
  plan->tokens.clear();
  plan->positions.clear();
  plan->nodes.clear();
  plan->kv_slots.clear();
  plan->runs.clear();
  plan->calls.clear();
  plan->logit_rows.clear();
  plan->span_rows.resize(spans.size());
  plan->epoch = storage->epoch;
  tails.clear();
  tails.resize(spans.size());
  n_growable = 0;

  number_rows();
  for (const std::int32_t n : order) {
    const bool is_root = node(n).parent == 0;
    switch (options.sharing) {
      case Sharing::tree:
      case Sharing::decomposed: add_shared_calls(n, true); break;
      case Sharing::one_level:
        if (is_root) {
          add_shared_calls(n, false);
        } else {
          add_lone_calls(n, node(n).cover);
        }
        break;
      case Sharing::unshared: add_lone_calls(n, 0); break;
    }
  }
  // Room for a new run of each span, so that the updates that follow allocate nothing for long.
  const std::size_t n_runs = plan->runs.size() + spans.size();
  if (plan->runs.capacity() < n_runs) plan->runs.reserve(2 * n_runs);
  complete = true;
}

void Planner::Scratch::number_rows() {
  order.clear();
  for (std::int32_t i = node(0).first_child; i > 0;) {
    ActiveNode& n = node(i);
    order.push_back(i);
    n.row_begin = n_rows();
    add_rows(n);
    if (n.first_child >= 0) {
      i = n.first_child;
      continue;
    }
    n.row_end = n.own_end;
    while (i > 0 && node(i).next_sibling < 0) {
      i = node(i).parent;
      if (i > 0) node(i).row_end = n_rows();
    }
    if (i > 0) i = node(i).next_sibling;
  }
}

void Planner::Scratch::add_rows(ActiveNode& n) {
  for (std::int32_t s = n.span_begin; s < n.span_end; ++s) add_span_rows(n, s);
  n.own_end = n_rows();
}

void Planner::Scratch::add_span_rows(const ActiveNode& n, std::int32_t s) {
  const StepSpan& span = spans[static_cast<std::size_t>(s)];
  if (has_slots() && span.end > n.n_slots()) throw_no_slots(n, span.end);
  plan->span_rows[static_cast<std::size_t>(s)] = n_rows();
  for (std::int64_t i = span.end - span.n_logits; i < span.end; ++i) {
    plan->logit_rows.push_back(n_rows() + static_cast<std::int32_t>(i - span.begin));
  }
  const bool is_newest = span.begin + 1 == n.page->n_tokens[n.page_row()];
  const TokenId* tokens =
      is_newest ? &n.page->last_token[n.page_row()] : n.page->tokens[n.page_row()].data() + span.begin;
  for (std::int64_t i = span.begin; i < span.end; ++i) {
    plan->tokens.push_back(*tokens++);
    plan->positions.push_back(static_cast<std::int32_t>(n.begin + i));
    plan->nodes.push_back(n.id);
  }
  if (!span.write_kv || !has_slots()) {
    plan->kv_slots.resize(plan->tokens.size(), -1);
  } else {
    SlotCursor cursor(n, span.begin);
    for (std::int64_t i = span.begin; i < span.end; ++i) plan->kv_slots.push_back(cursor.next(1).first);
  }
}

// The calls of one node's keys, one per piece that the same rows see. `begin` below is a path position; it starts where
// the ancestors' calls end, and each child's cut moves it on. A node without rows of its own that leads to one child
// only hands its keys down: they become the first ones of the child's call.
void Planner::Scratch::add_shared_calls(std::int32_t index, bool hand_over) {
  const ActiveNode& n = node(index);
  children.clear();
  for (std::int32_t c = n.first_child; c >= 0; c = node(c).next_sibling) children.push_back(c);

  std::int32_t begin = n.cover;
  std::int32_t own = n.row_begin;  // first own row that sees anything from `begin` on
  std::size_t n_left = children.size();
  while (n_left > 0) {
    if (n_left == 1 && own == n.own_end && hand_over) {
      node(children[0]).cover = begin;
      return;
    }
    const ActiveNode& nearest = node(children[n_left - 1]);
    const std::int32_t cut = tile_floor(nearest.begin);
    if (cut > begin) {
      add_call(index, begin, cut, own, nearest.row_end);
      begin = cut;
      while (own < n.own_end && plan->positions[static_cast<std::size_t>(own)] < begin) ++own;
    }
    for (; n_left > 0 && tile_floor(node(children[n_left - 1]).begin) == begin; --n_left) {
      node(children[n_left - 1]).cover = begin;
    }
  }
  if (own == n.own_end) return;
  add_call(index, begin, plan->positions[static_cast<std::size_t>(n.own_end) - 1] + 1, own, n.own_end);
  note_tail(n);
}

// Each of the node's rows reads its path from `from` on alone.
void Planner::Scratch::add_lone_calls(std::int32_t index, std::int32_t from) {
  const ActiveNode& n = node(index);
  for (std::int32_t row = n.row_begin; row < n.own_end; ++row) {
    add_call(index, from, plan->positions[static_cast<std::size_t>(row)] + 1, row, row + 1);
  }
  if (n.own_end > n.row_begin) note_tail(n);
  for (std::int32_t c = n.first_child; c >= 0; c = node(c).next_sibling) node(c).cover = from;
}

// Rows [row_begin, row_end) against path positions [begin, end) of the path that ends in node n.
void Planner::Scratch::add_call(std::int32_t n, std::int64_t begin, std::int64_t end, std::int32_t row_begin,
                                std::int32_t row_end) {
  assert(begin < end && row_begin < row_end);
  pieces.clear();
  for (std::int64_t rest = end; rest > begin; n = node(n).parent) {
    const std::int64_t origin = node(n).begin;
    if (rest <= origin) continue;
    const std::int64_t first = std::max(begin, origin);
    pieces.push_back({n, first - origin, rest - origin});
    rest = first;
  }
  const std::size_t run_begin = plan->runs.size();
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) add_runs(*piece, run_begin);

  AttentionCall call{static_cast<std::int64_t>(run_begin),
                     static_cast<std::int64_t>(plan->runs.size()),
                     end - begin,
                     begin,
                     row_begin,
                     row_end};
  if (options.sharing != Sharing::decomposed) {
    plan->calls.push_back(call);
    return;
  }
  for (std::int32_t row = row_begin; row < row_end; ++row) {
    call.row_begin = row;
    call.row_end = row + 1;
    plan->calls.push_back(call);
  }
}

void Planner::Scratch::add_runs(const Piece& piece, std::size_t run_begin) {
  const ActiveNode& n = node(piece.node);
  assert(is_computed(piece));
  if (!has_slots()) return;
  if (piece.end > n.n_slots()) throw_no_slots(n, piece.end);
  SlotCursor cursor(n, piece.begin);
  auto& runs = plan->runs;
  for (std::int64_t rest = piece.end - piece.begin; rest > 0;) {
    const SlotRun run = cursor.next(rest);
    rest -= run.n;
    if (runs.size() > run_begin && runs.back().first + runs.back().n == run.first) {
      runs.back().n += run.n;
    } else {
      runs.push_back(run);
    }
  }
}

// Called behind the call that reads the end of a node's own rows.
void Planner::Scratch::note_tail(const ActiveNode& n) {
  if (n.own_end - n.row_begin != 1) return;
  const StepSpan& span = spans[static_cast<std::size_t>(n.span_begin)];
  Tail& tail = tails[static_cast<std::size_t>(n.span_begin)];
  tail.node = n.id;
  tail.next = static_cast<std::int32_t>(span.end);
  tail.call = static_cast<std::int32_t>(plan->calls.size()) - 1;
  tail.n_logits = static_cast<std::uint8_t>(span.n_logits);
  tail.write_kv = span.write_kv;
  ++n_growable;
}

// Every key that a row sees is stored already, or written in this step.
[[maybe_unused]] bool Planner::Scratch::is_computed(const Piece& piece) {
  const ActiveNode& n = node(piece.node);
  std::int64_t end = n.page->n_kv[n.page_row()];
  for (std::int32_t s = n.span_begin; s < n.span_end; ++s) {
    const StepSpan& span = spans[static_cast<std::size_t>(s)];
    if (span.write_kv && span.begin <= end) end = std::max(end, span.end);
  }
  return piece.end <= end;
}

// The short way of update(). On false the plan may be half changed: build() comes next.
bool Planner::Scratch::continue_by_one() {
  const auto n_spans = static_cast<std::int64_t>(spans.size());
  if (!complete || storage->epoch != plan->epoch || n_growable != n_spans ||
      static_cast<std::int64_t>(tails.size()) != n_spans || plan->n_rows() != n_spans) {
    return false;
  }
  new_runs.clear();
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const StepSpan& span = spans[i];
    Tail& tail = tails[i];
    if (span.node != tail.node || span.begin != tail.next || span.end != tail.next + 1 ||
        span.n_logits != tail.n_logits || span.write_kv != tail.write_kv) {
      return false;
    }
    const Storage::Page& page = storage->page(span.node);
    const std::size_t page_row = Storage::row(span.node);
    if (page.n_tokens[page_row] != span.end) return false;
    AttentionCall& call = plan->calls[static_cast<std::size_t>(tail.call)];
    const auto row = static_cast<std::size_t>(plan->span_rows[i]);
    if (has_slots()) {
      if (page.n_slots[page_row] != span.end) return false;
      const std::int64_t slot = page.last_run[page_row].first + page.last_run[page_row].n - 1;
      SlotRun& run = plan->runs[static_cast<std::size_t>(call.run_end) - 1];
      if (run.first + run.n == slot) {
        ++run.n;
      } else {
        new_runs.push_back({tail.call, slot});
      }
      plan->kv_slots[row] = span.write_kv ? slot : -1;
    }
    ++call.n_keys;
    ++tail.next;
    plan->tokens[row] = page.last_token[page_row];
  }
  for (std::int32_t& position : plan->positions) ++position;
  if (!new_runs.empty()) insert_new_runs();
  return true;
}

// Gives each call in new_runs its run, at the end of its own, and moves all runs behind: from the back, once each.
void Planner::Scratch::insert_new_runs() {
  std::sort(new_runs.begin(), new_runs.end(), [](const NewRun& a, const NewRun& b) { return a.call < b.call; });
  auto& runs = plan->runs;
  auto& calls = plan->calls;
  auto shift = static_cast<std::int64_t>(new_runs.size());
  runs.resize(runs.size() + new_runs.size());
  for (std::size_t c = calls.size(); shift > 0;) {
    AttentionCall& call = calls[--c];
    const NewRun& next = new_runs[static_cast<std::size_t>(shift) - 1];
    const bool grows = next.call == static_cast<std::int32_t>(c);
    if (grows) {
      runs[static_cast<std::size_t>(call.run_end + shift - 1)] = {next.slot, 1};
      --shift;
    }
    // Decomposed calls that differ in their row alone have their runs in common.
    const bool is_moved = c + 1 < calls.size() && calls[c + 1].run_begin == call.run_begin + shift;
    if (!is_moved) {
      std::move_backward(runs.begin() + call.run_begin, runs.begin() + call.run_end,
                         runs.begin() + call.run_end + shift);
    }
    call.run_begin += shift;
    call.run_end += shift + (grows ? 1 : 0);
  }
}

Planner::Planner(PlanOptions options) : options_(options), scratch_(std::make_unique<Scratch>()) {
  scratch_->options = options;
}
Planner::~Planner() = default;
Planner::Planner(Planner&&) noexcept = default;

void Planner::build(const SequenceTree& tree, std::span<const StepSpan> spans, Plan& plan) {
  scratch_->storage = &tree.storage();
  scratch_->spans = spans;
  scratch_->plan = &plan;
  scratch_->build();
}

void Planner::update(const SequenceTree& tree, std::span<const StepSpan> spans, Plan& plan) {
  if (scratch_->storage == &tree.storage()) {
    scratch_->spans = spans;
    scratch_->plan = &plan;
    if (scratch_->continue_by_one()) return;
  }
  build(tree, spans, plan);
}

}  // namespace banyan
