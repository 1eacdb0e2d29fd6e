// Several sessions side by side: every sample once, the same whoever draws it; work goes to whoever has room; failures
// of one, of all, of callbacks; stopping.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <doctest/doctest.h>
#include <map>
#include <mutex>
#include <thread>

#include "banyan/session_group.hpp"

using namespace banyan;

namespace {

constexpr std::int64_t kMaxTokens = 6;

// Logits of a hash of the path: a wrong path gives other tokens.
ScriptedModel hashed() {
  ScriptedModel m;
  m.vocab_size = 32;
  m.logits = [](std::span<const TokenId> path, std::span<float> logits) {
    std::uint64_t h = 1469598103934665603ULL;
    for (const TokenId t : path) h = (h ^ static_cast<std::uint64_t>(t)) * 1099511628211ULL;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      logits[i] = static_cast<float>(((h ^ (i * 0x9e3779b97f4a7c15ULL)) >> 40) % 1000) / 200.0F;
    }
  };
  return m;
}

// Passes everything on, but its device fails at one step.
class FailingRunner final : public StepRunner {
 public:
  FailingRunner(std::unique_ptr<StepRunner> inner, std::int64_t n_good_steps)
      : inner_(std::move(inner)), n_left_(n_good_steps) {}
  std::int64_t vocab_size() const override { return inner_->vocab_size(); }
  std::int64_t max_positions() const override { return inner_->max_positions(); }
  std::int64_t n_kv_slots() const override { return inner_->n_kv_slots(); }
  std::int64_t kv_bytes_per_token() const override { return inner_->kv_bytes_per_token(); }
  bool deterministic() const override { return inner_->deterministic(); }
  const Tokenizer* tokenizer() const override { return inner_->tokenizer(); }
  const std::vector<TokenId>& eos_ids() const override { return inner_->eos_ids(); }
  std::string name() const override { return inner_->name(); }
  Ticket submit(const SequenceTree& tree, const Plan& plan, std::span<const StepQuery> queries) override {
    if (n_left_-- <= 0) throw Error(ErrorCode::device, "cudaStreamSynchronize", "an illegal instruction");
    return inner_->submit(tree, plan, queries);
  }
  StepTimes harvest(Ticket ticket, std::span<StepAnswer> answers) override { return inner_->harvest(ticket, answers); }

 private:
  std::unique_ptr<StepRunner> inner_;
  std::int64_t n_left_;
};

// A group that draws samples of prompts {item + 1, 2} and notes who drew what.
struct Draw {
  std::vector<std::int64_t> n_samples;
  std::int64_t max_batch = 8;
  std::map<std::size_t, std::int64_t> n_good_steps = {};           // of members whose device fails
  std::function<void(std::size_t member)> on_token = [](auto) {};  // before each
  std::function<void(std::size_t, const WorkPart&)> on_part = [](auto, const auto&) {};
  std::function<bool(const LaneStats&)> on_progress = {};

  std::mutex mutex{};
  std::map<std::pair<std::size_t, std::uint64_t>, std::vector<TokenId>> tokens = {};  // of (item, sample)
  std::map<std::size_t, std::int64_t> n_drawn = {};                                   // by member
  bool twice = false;

  std::unique_ptr<SessionGroup> make(std::size_t n_members) {
    return std::make_unique<SessionGroup>(n_members, [&](std::size_t member, Session& session) {
      ScriptedModel model = hashed();
      model.logits = [this, member, plain = model.logits](std::span<const TokenId> path, std::span<float> logits) {
        on_token(member);
        plain(path, logits);
      };
      auto runner = make_scripted_runner(model);
      if (n_good_steps.contains(member)) {
        runner = std::make_unique<FailingRunner>(std::move(runner), n_good_steps[member]);
      }
      session.add_lane(std::move(runner), {.max_batch = max_batch});
    });
  }
  void run(SessionGroup& group) {
    GroupWork work;
    work.n_samples = n_samples;
    work.n_held = max_batch;
    work.on_progress = on_progress;
    work.start = [&](std::size_t member, Session& session, WorkPart part) {
      on_part(member, part);
      return draw(group, member, session, part);
    };
    group.run(work);
  }
  Task<> draw(SessionGroup& group, std::size_t member, Session& session, WorkPart part) {
    SampleOptions o;
    o.max_tokens = kMaxTokens;
    o.n = part.size();
    o.first_sample = static_cast<std::uint64_t>(part.begin);
    o.stream = part.item;
    o.on_done = [&, member, item = part.item](std::size_t, const Thought& t) {
      if (t.error) return group.retire(member, *t.error);
      const std::lock_guard lock(mutex);
      twice = !tokens.try_emplace({item, t.sample}, t.tokens).second || twice;
      ++n_drawn[member];
    };
    const std::vector<TokenId> prompt{static_cast<TokenId>(part.item % 30) + 1, 2};
    const Node node = session.insert(prompt);
    co_await session.sample(node, o);
  }
};

}  // namespace

TEST_CASE("session group: any number of members draws every sample once, the same ones") {
  const std::vector<std::int64_t> sizes{5, 0, 17, 1, 1, 40, 3, 0};
  Draw one{.n_samples = sizes};
  one.run(*one.make(1));
  CHECK(one.tokens.size() == 67);
  for (const std::size_t n : {2, 3, 7}) {
    Draw many{.n_samples = sizes};
    const auto group = many.make(n);
    many.run(*group);
    CHECK_FALSE(many.twice);
    CHECK(many.tokens == one.tokens);
    CHECK(group->stats().n_generated == 67 * kMaxTokens);
    CHECK(group->retired().empty());
    many.tokens.clear();  // the members are still good
    many.run(*group);
    CHECK(many.tokens == one.tokens);
  }
}

TEST_CASE("session group: one item is shared out evenly, and no part is larger than a batch") {
  Draw d{.n_samples = {64}, .max_batch = 100};
  std::condition_variable changed;
  std::map<std::size_t, std::int64_t> first;  // size of each member's first part
  d.on_part = [&](std::size_t member, const WorkPart& part) {
    std::unique_lock lock(d.mutex);
    first.try_emplace(member, part.size());
    changed.notify_all();
    // Nobody goes on before all have their part.
    CHECK(changed.wait_for(lock, std::chrono::seconds(30), [&] { return first.size() == 4; }));
  };
  d.run(*d.make(4));
  CHECK(d.tokens.size() == 64);
  CHECK(first == std::map<std::size_t, std::int64_t>{{0, 16}, {1, 16}, {2, 16}, {3, 16}});

  Draw large{.n_samples = {1000}, .max_batch = 8};
  std::atomic<std::int64_t> largest = 0;
  large.on_part = [&](std::size_t, const WorkPart& part) { largest = std::max<std::int64_t>(largest, part.size()); };
  large.run(*large.make(1));
  CHECK(large.tokens.size() == 1000);
  CHECK(largest == 8);
}

TEST_CASE("session group: a slow member gets less, and the fast one does not wait for it") {
  Draw d{.n_samples = std::vector<std::int64_t>(60, 4)};
  d.on_token = [](std::size_t member) {
    if (member == 0) std::this_thread::sleep_for(std::chrono::microseconds(500));
  };
  d.run(*d.make(2));
  CHECK(d.tokens.size() == 240);
  CHECK(d.n_drawn[0] * 2 < d.n_drawn[1]);
}

TEST_CASE("session group: a device that fails takes no more; the others draw the rest") {
  Draw d{.n_samples = std::vector<std::int64_t>(40, 5), .n_good_steps = {{1, 8}}};
  const auto group = d.make(2);
  // Member 0 goes on when member 1 has failed.
  d.on_part = [&](std::size_t member, const WorkPart&) {
    for (int i = 0; member == 0 && i < 30000 && group->retired().empty(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  d.run(*group);
  REQUIRE(group->retired().size() == 1);
  CHECK(group->retired()[0].member == 1);
  CHECK(group->retired()[0].error.code() == ErrorCode::device);
  CHECK_FALSE(d.twice);
  CHECK(d.tokens.size() < 200);
  CHECK(d.tokens.size() >= 200 - 2 * 8);  // what it held is lost: less than a batch, and one part
  CHECK(d.n_drawn[1] > 0);                // what it drew before stays

  Draw all{.n_samples = {20}, .n_good_steps = {{0, 1}, {1, 2}}};
  const auto none_left = all.make(2);
  all.run(*none_left);
  CHECK(none_left->retired().size() == 2);
  CHECK(all.tokens.empty());
}

TEST_CASE("session group: stops when it is told to") {
  Draw d{.n_samples = {1'000'000}};
  d.on_progress = [](const LaneStats& stats) { return stats.n_generated < 100; };
  d.run(*d.make(2));
  CHECK(d.tokens.size() > 0);
  CHECK(d.tokens.size() < 1'000'000);
}

TEST_CASE("session group: an error of on_progress ends the run and is thrown") {
  Draw d{.n_samples = {1'000'000}};
  d.on_progress = [](const LaneStats&) -> bool { throw Error(ErrorCode::device, "stderr", "is closed"); };
  CHECK_THROWS_WITH_AS(d.run(*d.make(2)), "stderr: is closed", Error);
  CHECK(d.tokens.size() < 1'000'000);
}

TEST_CASE("session group: an error that escapes a search or a callback ends the run and is thrown") {
  for (const bool in_callback : {false, true}) {
    Draw d{.n_samples = {1'000'000}};
    const auto group = d.make(2);
    GroupWork work;
    work.n_samples = d.n_samples;
    work.n_held = 8;
    work.start = [&](std::size_t member, Session& session, WorkPart part) -> Task<> {
      if (member == 1 && !in_callback) throw Error(ErrorCode::bad_input, "part", "cannot be read");
      return d.draw(*group, member, session, part);
    };
    if (in_callback) {
      work.start = [](std::size_t, Session& session, WorkPart part) -> Task<> {
        SampleOptions o;
        o.n = part.size();
        o.max_tokens = 2;
        o.on_done = [](std::size_t, const Thought&) { throw Error(ErrorCode::bad_input, "part", "cannot be read"); };
        const std::vector<TokenId> prompt{1, 2};
        const Node node = session.insert(prompt);
        co_await session.sample(node, o);
      };
    }
    CHECK_THROWS_WITH_AS(group->run(work), "part: cannot be read", Error);
  }
}

TEST_CASE("session group: a member that cannot be prepared is an error, and so are sizes of zero") {
  CHECK_THROWS_WITH_AS(SessionGroup(3,
                                    [](std::size_t member, Session&) {
                                      if (member > 0) throw Error(ErrorCode::usage, "", std::to_string(member));
                                    }),
                       "1", Error);
  CHECK_THROWS_AS(SessionGroup(0, [](std::size_t, Session&) {}), Error);
  Draw d{.n_samples = {1}, .max_batch = 1};
  const auto group = d.make(1);
  d.max_batch = 0;
  CHECK_THROWS_WITH_AS(d.run(*group), doctest::Contains("n_held"), Error);
}
