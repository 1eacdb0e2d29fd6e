// Search drivers on scripted models.
#include <cmath>
#include <doctest/doctest.h>
#include <map>
#include <set>
#include <string>

#include "banyan/search/best_of_n.hpp"
#include "banyan/search/two_level.hpp"
#include "engine/scripted.hpp"

using namespace banyan;

namespace {

// Letters as tokens: text "ab" is tokens of 'a' and 'b'.
class LetterTokenizer final : public Tokenizer {
 public:
  LetterTokenizer()
      : Tokenizer([] {
          TokenizerSpec spec;
          for (int i = 0; i < 128; ++i) spec.pieces.emplace_back(1, static_cast<char>(i));
          spec.kinds.assign(128, TokenKind::normal);
          return spec;
        }()) {}
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& /*options*/) const override {
    return {text.begin(), text.end()};
  }
  std::string token_bytes(TokenId id, bool /*first*/, bool /*with_special*/) const override {
    return spec_.pieces[static_cast<std::size_t>(id)];
  }
};

// Draws from "a" to "h", likelier the nearer to "a"; a path with "!" in it gives NaN.
ScriptedModel letters() {
  ScriptedModel m;
  m.vocab_size = 128;
  m.tokenizer = std::make_shared<LetterTokenizer>();
  m.logits = [](std::span<const TokenId> path, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), -INFINITY);
    for (int i = 0; i < 8; ++i) logits[static_cast<std::size_t>('a' + i)] = -0.3F * static_cast<float>(i);
    if (std::find(path.begin(), path.end(), '!') != path.end()) std::fill(logits.begin(), logits.end(), NAN);
  };
  return m;
}

}  // namespace

TEST_CASE("best-of-n keeps the highest value, the first of equals, for every n of one run") {
  Session s;
  s.add_lane(make_scripted_runner(letters()));
  const Node root = s.insert("x");
  SampleOptions o;
  o.n = 32;
  o.max_tokens = 4;
  const auto r = s.run(search::best_of_n(s, root, o, search::likelihood_sum()));
  REQUIRE(r.thoughts.size() == 32);
  for (std::size_t i = 0; i < 32; ++i) {
    CHECK(r.values[i] == r.thoughts[i].cumulative_logprob);
    CHECK(r.values[r.best] >= r.values[i]);
    if (i < r.best) CHECK(r.values[i] < r.values[r.best]);
  }
  const auto first = search::best_of_first({1, 3, 3, 2, 5, NAN});
  CHECK(first == std::vector<std::size_t>{0, 1, 1, 1, 4, 4});

  const auto by_length =
      s.run(search::best_of_n(s, root, o, search::callback([](const Thought& t) {
                                return static_cast<double>(std::count(t.text.begin(), t.text.end(), 'h'));
                              })));
  for (const double v : by_length.values) CHECK(v <= by_length.values[by_length.best]);
}

TEST_CASE("best-of-n: failed samples have no value; if all failed it says why") {
  Session s;
  s.add_lane(make_scripted_runner(letters()));
  SampleOptions o;
  o.n = 4;
  o.max_tokens = 2;
  CHECK_THROWS_WITH_AS(s.run(search::best_of_n(s, s.insert("!"), o, search::likelihood_mean())),
                       doctest::Contains("none of the 4"), Error);
}

TEST_CASE("two-level: each problem's samples by number, independent of order, company and resume") {
  const auto run = [](std::vector<search::TwoLevelProblem> problems, bool keep) {
    Session s;
    s.add_lane(make_scripted_runner(letters()), {.max_batch = 5});
    search::TwoLevelOptions o;
    o.root = "shared root ";
    o.sample.max_tokens = 6;
    o.sample.seed = 3;
    o.keep_nodes = keep;
    std::map<std::pair<std::string, std::uint64_t>, std::string> texts;
    o.on_sample = [&](std::size_t p, const Thought& t) {
      CHECK(texts.emplace(std::pair(problems[p].id, t.sample), t.text).second);
    };
    const auto result = s.run(search::two_level(s, problems, o));
    CHECK(result.n_samples == static_cast<std::int64_t>(texts.size()));
    CHECK(result.n_failed == 0);
    if (keep) {
      CHECK(s.tree().n_nodes() == 1 + static_cast<std::int64_t>(problems.size() + texts.size()));
    } else {
      CHECK(s.tree().n_nodes() == 1);  // the root alone is still held by the result
    }
    return texts;
  };
  const search::TwoLevelProblem a{"a", "problem a", {0, 1, 2, 3}}, b{"b", "problem b", {0, 1, 2, 3}};
  const auto all = run({a, b}, false);
  CHECK(all.size() == 8);
  CHECK(run({b, a}, true) == all);
  // What a resumed run draws is what is missing, the same as before.
  auto part = run({{"a", "problem a", {1, 3}}, {"b", "problem b", {}}}, false);
  CHECK(part.size() == 2);
  for (const auto& [key, text] : part) CHECK(all.at(key) == text);
  std::set<std::string> distinct;
  for (const auto& [key, text] : all) distinct.insert(text);
  CHECK(distinct.size() > 4);
}

TEST_CASE("two-level: a problem that fails does not disturb the others") {
  Session s;
  s.add_lane(make_scripted_runner(letters()));
  search::TwoLevelOptions o;
  o.sample.max_tokens = 3;
  std::int64_t n_good = 0, n_bad = 0;
  o.on_sample = [&](std::size_t p, const Thought& t) {
    (t.error ? n_bad : n_good) += 1;
    CHECK(t.error.has_value() == (p == 1));
  };
  const auto r = s.run(search::two_level(s, {{"a", "fine", {0, 1}}, {"b", "bad!", {0, 1}}, {"c", "fine", {0}}}, o));
  CHECK(n_good == 3);
  CHECK(n_bad == 2);
  CHECK(r.n_failed == 2);
}
