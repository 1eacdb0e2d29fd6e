#include "base/team.hpp"

#include <cassert>
#include <sched.h>

namespace banyan {
namespace {

constexpr std::uint64_t kPieceBits = 24, kPieceMask = (std::uint64_t{1} << kPieceBits) - 1;

// Some tens of microseconds: meant to be longer than the pause between two operations of a step, shorter than a step.
constexpr int kSpins = 1000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

int available_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  const unsigned n = std::thread::hardware_concurrency();  // more CPUs than a cpu_set_t holds
  return n == 0 ? 1 : static_cast<int>(n);
}

Team::Team(int n_threads) {
  assert(n_threads >= 0);
  if (n_threads == 0) n_threads = available_cpus();
  workers_.reserve(static_cast<std::size_t>(n_threads - 1));
  for (int t = 1; t < n_threads; ++t) workers_.emplace_back([this, t] { work(t); });
}

Team::~Team() {
  stopping_ = true;
  ++n_jobs_;
  n_jobs_.notify_all();
  for (std::thread& w : workers_) w.join();
}

void Team::run_pieces(std::int64_t n_pieces, Function function, const void* body) {
  assert(n_pieces <= kMostPieces);
  if (workers_.empty() || n_pieces <= 1) {
    for (std::int64_t i = 0; i < n_pieces; ++i) function(body, i, 0);
    return;
  }
  function_ = function;
  body_ = body;
  n_left_.store(n_pieces, std::memory_order_relaxed);
  const std::uint64_t job = (ticket_.load(std::memory_order_relaxed) >> (2 * kPieceBits)) + 1;
  ticket_.store(job << (2 * kPieceBits) | static_cast<std::uint64_t>(n_pieces) << kPieceBits,
                std::memory_order_release);
  n_jobs_.fetch_add(1, std::memory_order_release);
  n_jobs_.notify_all();
  while (take_piece(0)) {
  }
  for (int spins = 0; n_left_.load(std::memory_order_acquire) > 0; ++spins) {
    if (spins < kSpins) {
      pause();
    } else {
      std::this_thread::yield();  // whoever holds the last piece may need this core
    }
  }
}

bool Team::take_piece(int thread) {
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if ((ticket & kPieceMask) >= (ticket >> kPieceBits & kPieceMask)) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel, std::memory_order_acquire));
  function_(body_, static_cast<std::int64_t>(ticket & kPieceMask), thread);
  n_left_.fetch_sub(1, std::memory_order_release);
  return true;
}

void Team::work(int thread) {
  std::uint32_t seen = 0;
  while (!stopping_) {
    while (take_piece(thread)) {
    }
    for (int spins = 0; spins < kSpins && n_jobs_.load(std::memory_order_acquire) == seen; ++spins) pause();
    n_jobs_.wait(seen, std::memory_order_acquire);
    seen = n_jobs_.load(std::memory_order_acquire);
  }
}

}  // namespace banyan
