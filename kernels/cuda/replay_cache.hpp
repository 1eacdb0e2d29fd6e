// Which steps are worth recording, and the records that there are. Plain C++, tested without a device.
//
// A step is named by a key: all that its launches depend on. A key that comes kLikeSteps times in a row is recorded,
// and replayed from then on. A record costs about as much as a few steps' launches, so steps that change all the time
// (rows that come and go) are launched as ever. Records are at most kMostRecords with kMostNodes in all; those unused
// for the longest time go first.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace banyan::kernels::cuda {

template <class Record>
class ReplayCache {
 public:
  using Key = std::array<std::uint64_t, 24>;

  static constexpr int kLikeSteps = 3;
  static constexpr std::size_t kMostRecords = 16;
  // A node holds at most 4 KB of arguments, and a driver's record of it about as much again: 64 MB.
  static constexpr std::int64_t kMostNodes = 16'384;

  // The record to replay; null: launch, and record it if should_record() says so.
  Record* find(const Key& key) {
    n_alike_ = key == last_ ? n_alike_ + 1 : 1;
    last_ = key;
    ++clock_;
    for (Entry& entry : entries_) {
      if (entry.key != key) continue;
      entry.last_use = clock_;
      return &entry.record;
    }
    return nullptr;
  }
  // Of the key that find() was asked for last.
  bool should_record() const { return n_alike_ >= kLikeSteps; }
  // Whether add() has to drop others.
  bool is_full_for(std::int64_t n_nodes) const {
    return !entries_.empty() && (entries_.size() == kMostRecords || n_nodes_ + n_nodes > kMostNodes);
  }
  Record* add(Record record, std::int64_t n_nodes) {
    while (is_full_for(n_nodes)) {
      const auto oldest = std::min_element(entries_.begin(), entries_.end(),
                                           [](const Entry& a, const Entry& b) { return a.last_use < b.last_use; });
      n_nodes_ -= oldest->n_nodes;
      entries_.erase(oldest);
    }
    n_nodes_ += n_nodes;
    entries_.push_back({last_, std::move(record), n_nodes, clock_});
    return &entries_.back().record;
  }

  std::size_t n_records() const { return entries_.size(); }
  std::int64_t n_nodes() const { return n_nodes_; }

 private:
  struct Entry {
    Key key;
    Record record;
    std::int64_t n_nodes = 0;
    std::uint64_t last_use = 0;
  };
  std::vector<Entry> entries_;
  Key last_{};
  int n_alike_ = 0;
  std::int64_t n_nodes_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace banyan::kernels::cuda
