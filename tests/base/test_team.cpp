#include <array>
#include <atomic>
#include <doctest/doctest.h>
#include <vector>

#include "base/team.hpp"

using banyan::Team;

TEST_CASE("a team does each piece of each job exactly once before run returns, whatever its size") {
  for (const int n_threads : {1, 2, 5}) {
    Team team(n_threads);
    CHECK(team.n_threads() == n_threads);
    std::array<std::atomic<int>, 300> n_done{};
    std::atomic<int> n_bad_threads{0};
    std::int64_t n_wrong = 0;
    for (int job = 1; job <= 3000; ++job) {
      const std::int64_t n_pieces = job * 7 % 300;
      for (auto& n : n_done) n = 0;
      team.run(n_pieces, [&](std::int64_t piece, int thread) {
        ++n_done[static_cast<std::size_t>(piece)];
        if (thread < 0 || thread >= n_threads) ++n_bad_threads;
      });
      for (std::int64_t i = 0; i < 300; ++i)
        n_wrong += n_done[static_cast<std::size_t>(i)] != (i < n_pieces ? 1 : 0) ? 1 : 0;
    }
    CHECK(n_wrong == 0);
    CHECK(n_bad_threads == 0);
  }
}

TEST_CASE("what pieces wrote is there when run returns, and job numbers may wrap") {
  Team team(3);
  std::vector<std::int64_t> values(64);
  std::int64_t n_wrong = 0;
  for (std::int64_t job = 0; job < 70'000; ++job) {
    team.run(4, [&](std::int64_t piece, int) { values[static_cast<std::size_t>(piece)] = job + piece; });
    for (std::int64_t i = 0; i < 4; ++i) n_wrong += values[static_cast<std::size_t>(i)] != job + i ? 1 : 0;
  }
  CHECK(n_wrong == 0);
}
