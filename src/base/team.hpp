// A team of threads that shares out the pieces of one job at a time. Knows nothing of what the pieces are. Layer 0,
// internal.
//
// Whoever is free takes the next piece, the calling thread too, and the caller waits only for pieces that were begun:
// a worker that the machine does not run at the moment is not waited for. (With OpenMP's fork and join, each job waited
// for every thread: on two cores shared with 20 other threads, 28 ms for a product of 0.1 ms.) Which thread does which
// piece must therefore change no result.
//
// Workers spin for a short while after a job, as the next one of a step comes within microseconds, then sleep.
// run() is called by one thread at a time; pieces must not throw and must not call run().
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace banyan {

// CPUs that this process may run on.
int available_cpus();

class Team {
 public:
  explicit Team(int n_threads);  // the caller and n_threads - 1 workers; 0: a thread for each of available_cpus()
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int n_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(piece, thread) for each piece in [0, n_pieces); thread is in [0, n_threads()), 0 is the caller.
  template <class Body>
  void run(std::int64_t n_pieces, const Body& body) {
    run_pieces(
        n_pieces, [](const void* b, std::int64_t piece, int thread) { (*static_cast<const Body*>(b))(piece, thread); },
        &body);
  }

  static constexpr std::int64_t kMostPieces = (1 << 24) - 1;

 private:
  using Function = void (*)(const void* body, std::int64_t piece, int thread);
  void run_pieces(std::int64_t n_pieces, Function function, const void* body);
  void work(int thread);
  bool take_piece(int thread);

  // Job number (16 bits), its number of pieces (24), the next piece (24): one word, so that a piece can be taken only
  // of the job that the taker has seen. While a taken piece is not done, function_ and body_ stay.
  std::atomic<std::uint64_t> ticket_{0};
  std::atomic<std::int64_t> n_left_{0};  // pieces not yet done
  Function function_ = nullptr;
  const void* body_ = nullptr;
  std::atomic<std::uint32_t> n_jobs_{0};  // workers sleep on this
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace banyan
