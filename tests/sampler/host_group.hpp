// Groups of threads on the host, for the algorithm of kernels/cuda/sample_row.hpp.
#pragma once

#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/cuda/sample_types.hpp"
#include "kernels/sample_random.hpp"

namespace banyan::test {

// n threads in warps of kLanesOfWarp. Slow, but it has the barriers of a block, so a thread sanitizer sees its races.
template <int kLanesOfWarp>
class HostGroup {
 public:
  static constexpr int kLanes = kLanesOfWarp;
  using Weight = sampling::Weight;

  struct Team {
    explicit Team(int n) : n_threads(n), all(n), slots(static_cast<std::size_t>(n)) {
      for (int w = 0; w < n / kLanes; ++w) warps.push_back(std::make_unique<std::barrier<>>(kLanes));
    }
    int n_threads;
    std::barrier<> all;
    std::vector<std::unique_ptr<std::barrier<>>> warps;
    std::vector<std::uint64_t> slots;
  };

  HostGroup(Team& team, int rank) : team_(&team), rank_(rank) {}

  // Runs body(group) on all threads of a group.
  template <class Body>
  static void run(int n_threads, const Body& body) {
    Team team(n_threads);
    std::vector<std::thread> others;
    for (int r = 1; r < n_threads; ++r) others.emplace_back([&, r] { body(HostGroup(team, r)); });
    body(HostGroup(team, 0));
    for (auto& t : others) t.join();
  }

  int rank() const { return rank_; }
  int size() const { return team_->n_threads; }
  int lane() const { return rank_ % kLanes; }
  int warp() const { return rank_ / kLanes; }
  int n_warps() const { return size() / kLanes; }
  void sync() const {
    if (size() > 1) team_->all.arrive_and_wait();
  }

  template <class T, class Op>
  T reduce(T v, Op op) const {
    if (size() == 1) return v;
    put(v);
    sync();
    T r = get<T>(0);
    for (int i = 1; i < size(); ++i) r = op(r, get<T>(i));
    sync();
    return r;
  }
  template <class T>
  T sum(T v) const {
    return reduce(v, [](T a, T b) { return a + b; });
  }
  Weight exclusive_sum(Weight v) const {
    put(v);
    sync();
    Weight before = 0;
    for (int i = 0; i < rank_; ++i) before += get<Weight>(i);
    sync();
    return before;
  }
  Weight warp_sum(Weight v) const { return warp_sums(v, kLanes); }
  Weight warp_exclusive_sum(Weight v) const { return warp_sums(v, lane()); }

  std::uint32_t fetch_add(std::uint32_t* p, std::uint32_t v) const { return std::atomic_ref(*p).fetch_add(v); }
  std::uint32_t fetch_or(std::uint32_t* p, std::uint32_t v) const { return std::atomic_ref(*p).fetch_or(v); }
  std::uint32_t exchange(std::uint32_t* p, std::uint32_t v) const { return std::atomic_ref(*p).exchange(v); }

  void load4(const float* row, std::int32_t i, std::int32_t n, float (&x)[4]) const {
    for (int j = 0; j < 4; ++j) x[j] = i + j < n ? row[i + j] : -std::numeric_limits<float>::infinity();
  }
  float fast_exp2(float x) const { return std::exp2(x); }
  std::uint64_t random_bits(const kernels::cuda::RowQuery& q) const {
    return sampling::philox_bits(q.seed, q.prompt, q.sample, q.position);
  }

 private:
  template <class T>
  void put(T v) const {
    std::memcpy(&team_->slots[static_cast<std::size_t>(rank_)], &v, sizeof v);
  }
  template <class T>
  T get(int rank) const {
    T v;
    std::memcpy(&v, &team_->slots[static_cast<std::size_t>(rank)], sizeof v);
    return v;
  }
  // The sum of the first n lanes' values.
  Weight warp_sums(Weight v, int n) const {
    if (kLanes == 1) return n == 0 ? 0 : v;
    put(v);
    team_->warps[static_cast<std::size_t>(warp())]->arrive_and_wait();
    Weight sum = 0;
    for (int l = 0; l < n; ++l) sum += get<Weight>(warp() * kLanes + l);
    team_->warps[static_cast<std::size_t>(warp())]->arrive_and_wait();
    return sum;
  }

  Team* team_;
  int rank_;
};

}  // namespace banyan::test
