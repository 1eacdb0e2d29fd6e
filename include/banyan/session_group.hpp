// Several sessions side by side, each with a thread of its own: one for each device, with its own copy of the model.
// Layer 7. Knows neither devices nor models: `prepare` gives a member its lane.
//
// Work is a list of items (problems, prompts), each of so many samples. A member with room takes the next samples: a
// whole item, or a part of one that is larger than a batch, or than the member's even share of all that is left. So
// members of unlike speed end together, and fewer items than members still keep all of them busy. What a sample is must
// not depend on who draws it: `start` names random streams and sample numbers (SampleOptions), and every member has the
// same model.
//
// Threads: `prepare` and `start` run on the member's thread, as do the callbacks of what they start; several members'
// at once. Everything else is for the thread that made the group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "banyan/session.hpp"

namespace banyan {

// Samples [begin, end) of an item.
struct WorkPart {
  std::size_t item = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

struct GroupWork {
  std::vector<std::int64_t> n_samples;  // of each item; items are handed out in order
  // A batch: a member that has fewer samples, running or waiting, takes more, no more than this many at a time.
  std::int64_t n_held = 256;
  // The search that draws a part. It handles its own errors; one that escapes it ends the run.
  std::function<Task<>(std::size_t member, Session& session, WorkPart part)> start;
  // Several times a second, on the thread that called run(). False: stop after the steps under way.
  std::function<bool(const LaneStats& stats)> on_progress = {};
};

class SessionGroup {
 public:
  // Prepares all members at the same time. Throws the first member's error, after all have ended.
  SessionGroup(std::size_t n_members, const std::function<void(std::size_t member, Session& session)>& prepare);
  ~SessionGroup();
  SessionGroup(const SessionGroup&) = delete;
  SessionGroup& operator=(const SessionGroup&) = delete;

  // Draws all samples. Returns when they are done, when on_progress said to stop, or when no member is left. An error
  // that escapes a search, a callback or a step stops all members and is thrown here.
  void run(const GroupWork& work);

  // For callbacks, on the member's thread: its device has failed. The member takes no further part, the samples that it
  // has under way are not drawn, and the others go on. The first error of a member counts.
  void retire(std::size_t member, const Error& error);
  struct Retired {
    std::size_t member;
    Error error;
  };
  std::vector<Retired> retired() const;  // since the group was made

  std::size_t size() const;
  Session& session(std::size_t member);  // while no run is under way
  LaneStats stats() const;               // of the members' first lanes: sums, times too

 private:
  struct Member;
  struct Queue;
  void work(Member& member, Queue& queue, const GroupWork& what);
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace banyan
