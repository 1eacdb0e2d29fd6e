#include "banyan/session_group.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace banyan {
namespace {

// How often progress is reported; an interruption is seen as late as that.
constexpr std::chrono::milliseconds kProgressInterval{50};

void add(LaneStats& sum, const LaneStats& s) {
  for (const auto count :
       {&LaneStats::n_steps, &LaneStats::n_rows, &LaneStats::n_generated, &LaneStats::n_prefill_computed,
        &LaneStats::n_prefill_saved, &LaneStats::n_recomputed, &LaneStats::n_preempted, &LaneStats::n_surplus_rows,
        &LaneStats::n_evicted_slots, &LaneStats::n_active, &LaneStats::n_waiting, &LaneStats::kv_slots_used,
        &LaneStats::kv_slots_total}) {
    sum.*count += s.*count;
  }
  for (const auto amount : {&LaneStats::attention_bytes_shared, &LaneStats::attention_bytes_unshared,
                            &LaneStats::gather_ms, &LaneStats::plan_ms, &LaneStats::forward_ms, &LaneStats::sample_ms,
                            &LaneStats::grow_ms, &LaneStats::device_ms, &LaneStats::device_idle_ms}) {
    sum.*amount += s.*amount;
  }
}

}  // namespace

struct SessionGroup::Member {
  std::size_t index = 0;
  Session session;
  mutable std::mutex mutex;  // guards what follows
  LaneStats stats;           // after the last step
  std::optional<Error> error;

  bool is_retired() const {
    const std::lock_guard lock(mutex);
    return error.has_value();
  }
  LaneStats publish() {
    const LaneStats now = session.stats();
    const std::lock_guard lock(mutex);
    return stats = now;
  }
};

// What is left of the work, and what every member holds of it.
struct SessionGroup::Queue {
  Queue(const std::vector<std::int64_t>& n_samples, std::int64_t n_held_most, const std::vector<bool>& takes_part)
      : sizes(n_samples), most(n_held_most), held(takes_part.size(), 0), present(takes_part) {
    for (const std::int64_t n : sizes) left += n;
    n_running = std::count(present.begin(), present.end(), true);
  }

  // The next part for a member that holds `n` samples now.
  std::optional<WorkPart> take(std::size_t member, std::int64_t n) {
    const std::lock_guard lock(mutex);
    held[member] = n;
    if (stopping || left == 0 || n >= most) return std::nullopt;
    std::int64_t all = left;
    for (const std::int64_t h : held) all += h;
    const std::int64_t n_present = std::count(present.begin(), present.end(), true);
    const std::int64_t share = (all + n_present - 1) / n_present - n;
    if (share < 1) return std::nullopt;
    while (next_sample == sizes[next_item]) {
      ++next_item;
      next_sample = 0;
    }
    const std::int64_t size = std::min({sizes[next_item] - next_sample, share, most});
    const WorkPart part{next_item, next_sample, next_sample + size};
    next_sample = part.end;
    left -= size;
    held[member] += size;
    return part;
  }
  // The member takes no more: it is done, has failed, or was stopped.
  void leave(std::size_t member, std::exception_ptr thrown) {
    {
      const std::lock_guard lock(mutex);
      present[member] = false;
      held[member] = 0;
      --n_running;
      if (thrown && !first_error) first_error = thrown;
      stopping = stopping || thrown != nullptr;
    }
    changed.notify_all();
  }
  bool is_stopping() {
    const std::lock_guard lock(mutex);
    return stopping;
  }

  const std::vector<std::int64_t>& sizes;
  const std::int64_t most;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::size_t next_item = 0;
  std::int64_t next_sample = 0;  // of that item
  std::int64_t left = 0;         // samples that nobody has taken
  std::vector<std::int64_t> held;
  std::vector<bool> present;
  std::int64_t n_running = 0;
  bool stopping = false;
  std::exception_ptr first_error;
};

SessionGroup::SessionGroup(std::size_t n_members, const std::function<void(std::size_t, Session&)>& prepare) {
  if (n_members == 0) throw Error(ErrorCode::usage, "session group", "has no member");
  std::vector<std::exception_ptr> errors(n_members);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < n_members; ++i) {
      members_.push_back(std::make_unique<Member>());
      members_[i]->index = i;
      threads.emplace_back([&prepare, &error = errors[i], &member = *members_[i]] {
        try {
          prepare(member.index, member.session);
        } catch (...) {
          error = std::current_exception();
        }
      });
    }
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

SessionGroup::~SessionGroup() = default;

std::size_t SessionGroup::size() const { return members_.size(); }
Session& SessionGroup::session(std::size_t member) { return members_.at(member)->session; }

LaneStats SessionGroup::stats() const {
  LaneStats sum;
  for (const auto& member : members_) {
    const std::lock_guard lock(member->mutex);
    add(sum, member->stats);
  }
  return sum;
}

void SessionGroup::retire(std::size_t member, const Error& error) {
  Member& m = *members_.at(member);
  const std::lock_guard lock(m.mutex);
  if (!m.error) m.error = error;
}

std::vector<SessionGroup::Retired> SessionGroup::retired() const {
  std::vector<Retired> list;
  for (const auto& member : members_) {
    const std::lock_guard lock(member->mutex);
    if (member->error) list.push_back({member->index, *member->error});
  }
  return list;
}

// A member's turns: take what there is room for, one step, forget the searches that have ended.
void SessionGroup::work(Member& m, Queue& queue, const GroupWork& what) {
  std::vector<Job<void>> running;
  std::int64_t n_held = 0;
  while (!queue.is_stopping() && !m.is_retired()) {
    while (const auto part = queue.take(m.index, n_held)) {
      running.push_back(m.session.start(what.start(m.index, m.session, *part)));
      n_held += part->size();
    }
    if (running.empty()) return;  // whoever holds nothing has a share, so nothing is left
    const bool more = m.session.step();
    std::erase_if(running, [more](Job<void>& job) {
      if (job.done() || !more) job.result();  // throws what escaped the search, or that it waits for nothing
      return job.done();
    });
    const LaneStats now = m.publish();
    n_held = now.n_active + now.n_waiting;
  }
}

void SessionGroup::run(const GroupWork& what) {
  if (what.n_held < 1) throw Error(ErrorCode::usage, "n_held", std::to_string(what.n_held) + " must be at least 1");
  std::vector<bool> takes_part;
  for (const auto& member : members_) takes_part.push_back(!member->is_retired());
  Queue queue(what.n_samples, what.n_held, takes_part);
  std::vector<std::jthread> threads;
  for (const auto& member : members_) {
    if (!takes_part[member->index]) continue;
    threads.emplace_back([this, &queue, &what, &m = *member] {
      std::exception_ptr thrown;
      try {
        work(m, queue, what);
      } catch (...) {
        thrown = std::current_exception();
      }
      queue.leave(m.index, thrown);
    });
  }
  std::unique_lock lock(queue.mutex);
  while (!queue.changed.wait_for(lock, kProgressInterval, [&queue] { return queue.n_running == 0; })) {
    lock.unlock();
    bool go_on = true;
    std::exception_ptr thrown;
    try {
      if (what.on_progress) go_on = what.on_progress(stats());
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    queue.stopping = queue.stopping || !go_on || thrown;
    if (thrown && !queue.first_error) queue.first_error = thrown;
  }
  lock.unlock();
  threads.clear();
  if (queue.first_error) std::rethrow_exception(queue.first_error);
}

}  // namespace banyan
