// The session with a scripted model: verbs, stop strings, budgets, pools, errors, cancellation. No weights.
#include <cmath>
#include <doctest/doctest.h>
#include <limits>
#include <memory>
#include <set>
#include <string>

#include "banyan/session.hpp"
#include "engine/scripted.hpp"

using namespace banyan;
using banyan::test::emit;
using banyan::test::hashed_logits;
using banyan::test::PieceTokenizer;

namespace {

ScriptedModel hashed(std::int64_t vocab_size = 16) {
  ScriptedModel m;
  m.vocab_size = vocab_size;
  m.logits = hashed_logits;
  return m;
}

std::vector<TokenId> range(TokenId n, TokenId modulus = 16) {
  std::vector<TokenId> t(static_cast<std::size_t>(n));
  for (TokenId i = 0; i < n; ++i) t[static_cast<std::size_t>(i)] = (i * 7 + 3) % modulus;
  return t;
}

// What a greedy run gives without any of the machinery.
std::vector<TokenId> greedy_flat(std::vector<TokenId> path, int n, std::int64_t vocab_size = 16) {
  std::vector<TokenId> out;
  std::vector<float> logits(static_cast<std::size_t>(vocab_size));
  for (int i = 0; i < n; ++i) {
    hashed_logits(path, logits);
    TokenId best = 0;
    for (TokenId t = 1; t < vocab_size; ++t) {
      if (logits[static_cast<std::size_t>(t)] > logits[static_cast<std::size_t>(best)]) best = t;
    }
    out.push_back(best);
    path.push_back(best);
  }
  return out;
}

SampleOptions greedy(std::int64_t n_tokens) {
  SampleOptions o;
  o.max_tokens = n_tokens;
  o.sampler.temperature = 0;
  return o;
}

}  // namespace

TEST_CASE("greedy samples follow the path, wherever it is cut into nodes") {
  const auto prompt = range(48);
  const auto expected = greedy_flat(prompt, 8);
  for (std::int64_t cut = 1; cut <= 48; ++cut) {
    Session s;
    s.add_lane(make_scripted_runner(hashed()), {.max_rows = 16});
    const Node top = s.insert(std::span(prompt).first(static_cast<std::size_t>(cut)));
    const Node leaf = s.extend(top, std::span(prompt).subspan(static_cast<std::size_t>(cut)));
    for (int again = 0; again < 2; ++again) {
      const auto thoughts = s.run(s.sample(leaf, greedy(8)));
      REQUIRE(thoughts.size() == 1);
      CHECK(thoughts[0].tokens == expected);
      CHECK(thoughts[0].finish == FinishReason::length);
      CHECK(thoughts[0].node.path().size() == 56);
    }
  }
}

TEST_CASE("BL-05: children of one parent do not see each other") {
  Session s;
  s.add_lane(make_scripted_runner(hashed()));
  const std::vector<TokenId> root{1, 2, 3}, x{4, 5}, y{6, 7};
  const Node parent = s.insert(root);
  const Node child_x = s.extend(parent, x), child_y = s.extend(parent, y);
  const auto first_x = s.run(s.sample(child_x, greedy(4)));
  const auto first_y = s.run(s.sample(child_y, greedy(4)));
  const auto again_x = s.run(s.sample(child_x, greedy(4)));
  CHECK(first_x[0].tokens == greedy_flat({1, 2, 3, 4, 5}, 4));
  CHECK(first_y[0].tokens == greedy_flat({1, 2, 3, 6, 7}, 4));
  CHECK(again_x[0].tokens == first_x[0].tokens);
  CHECK(std::vector<TokenId>(parent.tokens().begin(), parent.tokens().end()) == root);
}

TEST_CASE("BL-19: samples of one node differ, keep their number's stream, and a seed replays them") {
  ScriptedModel uniform;
  uniform.vocab_size = 16;
  uniform.logits = [](auto, std::span<float> logits) { std::fill(logits.begin(), logits.end(), 0.0F); };
  const std::vector<TokenId> prompt{1, 2};
  const auto draw = [&](std::int64_t n, std::uint64_t seed) {
    Session s;
    s.add_lane(make_scripted_runner(uniform));
    SampleOptions o;
    o.n = n;
    o.max_tokens = 8;
    o.seed = seed;
    std::vector<std::vector<TokenId>> out;
    for (auto& t : s.run(s.sample(s.insert(prompt), o))) out.push_back(t.tokens);
    return out;
  };
  const auto sixteen = draw(16, 42), four = draw(4, 42);
  CHECK(std::set(sixteen.begin(), sixteen.end()).size() >= 15);
  for (std::size_t i = 0; i < 4; ++i) CHECK(four[i] == sixteen[i]);
  CHECK(draw(16, 42) == sixteen);
  CHECK(draw(16, 43) != sixteen);

  Session s;
  s.add_lane(make_scripted_runner(uniform));
  const Node root = s.insert(prompt);
  SampleOptions o;
  o.max_tokens = 8;
  const auto a = s.run(s.sample(root, o)), b = s.run(s.sample(root, o));
  CHECK(a[0].tokens != b[0].tokens);  // asking twice gives new samples
  CHECK(b[0].sample == 1);
}

TEST_CASE("BL-23: a stop string that spans tokens is found, and nothing of it is shown") {
  const auto pieces = std::make_shared<PieceTokenizer>(std::vector<std::string>{"<s>", " N", " O", " P", " Q", " R"});
  for (const bool include : {false, true}) {
    Session s;
    s.add_lane(make_scripted_runner(emit(pieces, {1, 2, 3, 4, 5})));
    SampleOptions o = greedy(20);
    o.stop = {"O P Q", "zzz"};
    o.include_stop = include;
    std::string shown;
    o.on_text = [&](std::size_t, std::uint64_t, std::string_view t) { shown += t; };
    const std::vector<TokenId> root{0};
    const auto t = s.run(s.sample(s.insert(root), o));
    CHECK(t[0].finish == FinishReason::stop);
    CHECK(t[0].text == (include ? " N O P Q" : " N "));
    CHECK(shown == t[0].text);
    CHECK(t[0].tokens == std::vector<TokenId>{1, 2, 3, 4});
    CHECK(t[0].node.tokens().size() == (include ? 4 : 1));
  }
}

TEST_CASE("BL-24: a character split over tokens comes out whole; a cut one is U+FFFD, ids are kept") {
  const auto pieces =
      std::make_shared<PieceTokenizer>(std::vector<std::string>{"<s>", "Hi ", "\xf0\x9f", "\xa6\x99", "!", "\xff"});
  const std::vector<TokenId> root{0};
  const auto run = [&](std::vector<TokenId> script, std::int64_t n_tokens) {
    Session s;
    s.add_lane(make_scripted_runner(emit(pieces, std::move(script))));
    SampleOptions o = greedy(n_tokens);
    std::vector<std::string> chunks;
    o.on_text = [&](std::size_t, std::uint64_t, std::string_view t) { chunks.emplace_back(t); };
    auto t = s.run(s.sample(s.insert(root), o));
    return std::pair(std::move(t[0]), chunks);
  };
  const auto [whole, chunks] = run({1, 2, 3, 4}, 4);
  CHECK(whole.text == "Hi \xf0\x9f\xa6\x99!");
  for (const auto& c : chunks) CHECK(c.find("\xef\xbf\xbd") == std::string::npos);
  const auto [cut, cut_chunks] = run({1, 2, 3, 4}, 2);
  CHECK(cut.text == "Hi \xef\xbf\xbd");
  CHECK(cut.tokens == std::vector<TokenId>{1, 2});
  const auto [lone, lone_chunks] = run({1, 5, 4}, 3);
  CHECK(lone.text == "Hi \xef\xbf\xbd!");
}

TEST_CASE("end of text ends a sample, is drawn and counted, and is not in the node") {
  const auto pieces = std::make_shared<PieceTokenizer>(std::vector<std::string>{"<s>", "a", "b", "</s>"});
  auto model = emit(pieces, {1, 2, 3, 1});
  model.eos_ids = {3};
  const std::vector<TokenId> root{0};
  Session s;
  s.add_lane(make_scripted_runner(model));
  const auto t = s.run(s.sample(s.insert(root), greedy(10)));
  CHECK(t[0].finish == FinishReason::eos);
  CHECK(t[0].tokens == std::vector<TokenId>{1, 2, 3});
  CHECK(t[0].node.tokens().size() == 2);
  auto o = greedy(4);
  o.ignore_eos = true;
  CHECK(s.run(s.sample(s.insert(root), o))[0].tokens == std::vector<TokenId>{1, 2, 3, 1});
}

TEST_CASE("BL-38: what never fits fails at once with both sizes; the rest goes on") {
  auto model = hashed();
  model.n_kv_slots = 64;
  Session s;
  s.add_lane(make_scripted_runner(model));
  auto long_run = s.start(s.sample(s.insert(range(100)), greedy(5)));
  auto short_run = s.start(s.sample(s.insert(range(10)), greedy(5)));
  s.run();
  const auto a = long_run.result();
  REQUIRE(a[0].error);
  CHECK(a[0].error->code() == ErrorCode::never_fits);
  CHECK(std::string(a[0].error->what()).find("105") != std::string::npos);
  CHECK(std::string(a[0].error->what()).find("64") != std::string::npos);
  CHECK(short_run.result()[0].tokens == greedy_flat(range(10), 5));
}

TEST_CASE("BL-39: the end of the context is a finish reason, a longer prompt an error with both numbers") {
  for (const TokenId n : {60, 63, 64, 65}) {
    auto model = hashed();
    model.max_positions = 64;
    Session s;
    s.add_lane(make_scripted_runner(model), {.max_rows = 64});
    const auto t = s.run(s.sample(s.insert(range(n)), greedy(-1)));
    if (n <= 64) {
      CHECK(t[0].finish == FinishReason::context);
      CHECK(t[0].tokens.size() == static_cast<std::size_t>(64 - n));
      CHECK(t[0].tokens == greedy_flat(range(n), 64 - n));
    } else {
      REQUIRE(t[0].error);
      CHECK(t[0].error->code() == ErrorCode::context_full);
      CHECK(std::string(t[0].error->what()).find("65") != std::string::npos);
      CHECK(std::string(t[0].error->what()).find("64") != std::string::npos);
    }
  }
  for (const TokenId n : {127, 128, 129}) {  // prompts at the border of a step's rows
    Session s;
    s.add_lane(make_scripted_runner(hashed()), {.max_rows = 128});
    CHECK(s.run(s.sample(s.insert(range(n)), greedy(6)))[0].tokens == greedy_flat(range(n), 6));
  }
  Session s;
  s.add_lane(make_scripted_runner(hashed()));
  CHECK_THROWS_AS(s.run(s.sample(s.insert(range(3)), greedy(-5))), Error);
}

TEST_CASE("BL-40: an empty prompt is an error of its own; the others finish and the session goes on") {
  Session s;
  s.add_lane(make_scripted_runner(hashed()));
  const std::vector<TokenId> none;
  std::vector<Node> nodes{s.insert(range(5)), s.insert(none), s.insert(range(9))};
  const auto t = s.run(s.sample(nodes, greedy(3)));
  CHECK(t[0].tokens == greedy_flat(range(5), 3));
  REQUIRE(t[1].error);
  CHECK(t[1].error->code() == ErrorCode::bad_input);
  CHECK(t[2].tokens == greedy_flat(range(9), 3));
  CHECK(s.run(s.sample(nodes[0], greedy(3)))[0].tokens == t[0].tokens);
}

TEST_CASE("BL-16: rows without a candidate are errors with their row; the others are as without them") {
  auto model = hashed();
  model.logits = [](std::span<const TokenId> path, std::span<float> logits) {
    hashed_logits(path, logits);
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    if (path[0] == 12) std::fill(logits.begin(), logits.end(), nan);
    if (path[0] == 13) std::fill(logits.begin(), logits.end(), -inf);
  };
  Session s;
  s.add_lane(make_scripted_runner(model));
  std::vector<Node> nodes;
  for (const TokenId first : {1, 2, 12, 13}) nodes.push_back(s.insert(std::vector<TokenId>{first, 5}));
  const auto t = s.run(s.sample(nodes, greedy(4)));
  CHECK(t[0].tokens == greedy_flat({1, 5}, 4));
  CHECK(t[1].tokens == greedy_flat({2, 5}, 4));
  for (const std::size_t i : {2, 3}) {
    REQUIRE(t[i].error);
    CHECK(t[i].error->code() == ErrorCode::bad_logits);
  }
}

TEST_CASE("a pool too small for all: samples wait, are preempted and recomputed, and come out the same") {
  const auto prompt = range(40);
  for (const std::int64_t slots : {1000, 200, 120, 75}) {
    auto model = hashed();
    model.n_kv_slots = slots;
    Session s;
    s.add_lane(make_scripted_runner(model), {.max_rows = 64});
    SampleOptions o = greedy(30);
    o.sampler.temperature = 1;
    o.n = 12;
    const auto t = s.run(s.sample(s.insert(prompt), o));
    static std::vector<std::vector<TokenId>> first;
    std::vector<std::vector<TokenId>> tokens;
    for (const auto& x : t) {
      CAPTURE(slots);
      if (x.error) FAIL(std::string(x.error->what()));
      tokens.push_back(x.tokens);
    }
    if (first.empty()) first = tokens;
    CHECK(tokens == first);
    CHECK(s.stats().kv_slots_used <= slots);
  }
}

TEST_CASE("score gives the log-probability of each token, next the likeliest ones") {
  Session s;
  s.add_lane(make_scripted_runner(hashed()), {.max_rows = 8});
  const auto prompt = range(20);
  const Node root = s.insert(prompt);
  auto rest = range(100);
  std::reverse(rest.begin(), rest.end());
  const Score score = s.run(s.score(root, rest));
  std::vector<TokenId> path = prompt;
  std::vector<float> logits(16);
  double sum = 0;
  REQUIRE(score.logprobs.size() == rest.size());
  for (std::size_t i = 0; i < rest.size(); ++i) {
    hashed_logits(path, logits);
    double z = 0;
    for (const float x : logits) z += std::exp(static_cast<double>(x));
    const double lp = logits[static_cast<std::size_t>(rest[i])] - std::log(z);
    CHECK(score.logprobs[i] == doctest::Approx(lp).epsilon(1e-4));
    sum += lp;
    path.push_back(rest[i]);
  }
  CHECK(score.sum == doctest::Approx(sum).epsilon(1e-4));
  CHECK(s.run(s.score(root, {})).sum == 0);

  const auto top = s.run(s.next(root, 3));
  REQUIRE(top.size() == 3);
  CHECK(top[0].id == greedy_flat(prompt, 1)[0]);
  CHECK(top[0].logprob >= top[1].logprob);
  CHECK(s.tree().n_nodes() == 1);  // what was only scored is gone
}

TEST_CASE("reward: the runner's scalar, or an error that names the model") {
  auto model = hashed();
  const std::vector<TokenId> path{3, 1, 4};
  {
    Session s;
    s.add_lane(make_scripted_runner(model));
    CHECK_THROWS_WITH_AS(s.run(s.reward(s.insert(path))), doctest::Contains("scripted"), Error);
  }
  model.reward = [](std::span<const TokenId> p) { return static_cast<double>(p.size()) + 0.5; };
  Session s;
  s.add_lane(make_scripted_runner(model));
  CHECK(s.run(s.reward(s.insert(path))) == 3.5);
}

TEST_CASE("destroying a job cancels it and frees its nodes; others go on") {
  Session s;
  s.add_lane(make_scripted_runner(hashed()));
  const Node root = s.insert(range(10));
  auto kept = s.start(s.sample(root, greedy(20)));
  {
    auto dropped = s.start(s.sample(root, greedy(1000)));
    for (int i = 0; i < 5; ++i) s.step();
    CHECK_FALSE(dropped.done());
    CHECK(s.tree().n_nodes() == 3);
  }
  CHECK(s.tree().n_nodes() == 2);
  s.run();
  CHECK(kept.result()[0].tokens == greedy_flat(range(10), 20));
  CHECK(s.stats().n_active == 0);
}

TEST_CASE("an error in one search reaches that search alone") {
  Session s;
  s.add_lane(make_scripted_runner(hashed()));
  const auto search = [](Session& session, Node root, bool fail) -> Task<int> {
    auto t = co_await session.sample(root, greedy(2));
    if (fail) throw Error(ErrorCode::bad_input, "search", "this one fails");
    t = co_await session.sample(t[0].node, greedy(2));
    co_return static_cast<int>(t[0].tokens.size());
  };
  const Node root = s.insert(range(4));
  auto good = s.start(search(s, root, false)), bad = s.start(search(s, root, true));
  s.run();
  CHECK(good.result() == 2);
  CHECK_THROWS_AS(bad.result(), Error);
}

TEST_CASE("all: tasks side by side share steps; a failing one throws after all have ended") {
  Session s;
  s.add_lane(make_scripted_runner(hashed()));
  const Node root = s.insert(range(4));
  const auto many = [](Session& session, Node r) -> Task<std::size_t> {
    std::vector<Task<std::vector<Thought>>> tasks;
    for (int i = 0; i < 10; ++i) tasks.push_back(session.sample(r, greedy(5)));
    const auto results = co_await all(std::move(tasks));
    co_return results.size();
  };
  CHECK(s.run(many(s, root)) == 10);
  CHECK(s.stats().n_steps == 5);
}

TEST_CASE("job budgets: tokens and steps end the samples of that job with `length`") {
  Session s;
  s.add_lane(make_scripted_runner(hashed()));
  const Node root = s.insert(range(4));
  SampleOptions o = greedy(50);
  o.n = 4;
  auto few = s.start(s.sample(root, o), {.max_tokens = 20});
  auto free = s.start(s.sample(root, greedy(30)));
  s.run();
  std::int64_t n = 0;
  for (const auto& t : few.result()) {
    CHECK(t.finish == FinishReason::length);
    n += static_cast<std::int64_t>(t.tokens.size());
  }
  CHECK(n == 20);
  CHECK(free.result()[0].tokens.size() == 30);
}

TEST_CASE("a logit hook masks tokens of its own samples") {
  Session s;
  s.add_lane(make_scripted_runner(hashed()));
  const Node root = s.insert(range(4));
  SampleOptions o = greedy(10);
  o.hook = [](std::span<const TokenId> path, std::span<float> logits) {
    CHECK(path.size() >= 4);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (i != 7) logits[i] = -std::numeric_limits<float>::infinity();
    }
  };
  CHECK(s.run(s.sample(root, o))[0].tokens == std::vector<TokenId>(10, 7));
  CHECK(s.run(s.sample(root, greedy(3)))[0].tokens == greedy_flat(range(4), 3));
}

TEST_CASE("continuous batching: a finished sample's place is refilled") {
  Session s;
  s.add_lane(make_scripted_runner(hashed()), {.max_batch = 4});
  SampleOptions o = greedy(10);
  o.n = 10;
  const auto t = s.run(s.sample(s.insert(range(4)), o));
  for (const auto& x : t) CHECK(x.tokens == greedy_flat(range(4), 10));
  CHECK(s.stats().n_steps == 30);  // 4 + 4 + 2 samples of 10 tokens
}

TEST_CASE("what can never be done fails at once, also while the batch is full") {
  auto model = hashed();
  model.n_kv_slots = 200;
  Session s;
  s.add_lane(make_scripted_runner(model), {.max_batch = 1});
  auto running = s.start(s.sample(s.insert(range(10)), greedy(100)));
  s.step();
  auto impossible = s.start(s.sample(s.insert(range(150)), greedy(100)));
  s.step();
  s.step();
  CHECK(impossible.done());
  CHECK_FALSE(running.done());
  CHECK(impossible.result()[0].error->code() == ErrorCode::never_fits);
}

TEST_CASE("a tight pool does not thrash: what is recomputed stays in proportion") {
  auto model = hashed();
  model.n_kv_slots = 400;
  Session s;
  s.add_lane(make_scripted_runner(model));
  SampleOptions o = greedy(200);
  o.n = 16;
  o.sampler.temperature = 1;
  const auto t = s.run(s.sample(s.insert(range(40)), o));
  for (const auto& x : t) CHECK(x.tokens.size() == 200);
  const auto stats = s.stats();
  CHECK(stats.n_preempted > 0);
  CHECK(stats.n_recomputed < stats.n_generated);
}
