// Deterministic mode, bit for bit: the log-probabilities of a sample do not depend on its company, on how its path is
// cut into nodes, on eviction, on threads or on order. Built twice: for the CPU and, with BANYAN_TEST_CUDA, for a CUDA
// device.
#include <algorithm>
#include <cstring>
#include <doctest/doctest.h>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "banyan/session.hpp"
#include "engine/models.hpp"

using namespace banyan;

namespace {

// Everything of a sample that comes from logits.
struct Bits {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<TokenLogprob>> top;
  friend bool operator==(const Bits& a, const Bits& b) {
    return a.tokens == b.tokens && a.top == b.top && a.logprobs.size() == b.logprobs.size() &&
           std::memcmp(a.logprobs.data(), b.logprobs.data(), a.logprobs.size() * sizeof(float)) == 0;
  }
};

#ifdef BANYAN_TEST_CUDA
constexpr Device kDevice = Device::cuda;
const std::vector<std::pair<Compute, DType>> kTypes{
    {Compute::bf16, DType::bf16}, {Compute::bf16, DType::f16}, {Compute::bf16, DType::f8_e4m3}};
#else
constexpr Device kDevice = Device::cpu;
const std::vector<std::pair<Compute, DType>> kTypes{
    {Compute::f32, DType::f32}, {Compute::bf16, DType::bf16}, {Compute::f32, DType::f8_e4m3}};
#endif

struct Setting {
  Compute compute = Compute::f32;
  DType kv_type = DType::f32;
  int n_threads = 1;
  std::int64_t n_slots = 1 << 14;
  std::vector<std::int64_t> cuts = {};  // of the watched prompt, into nodes
  std::int64_t n_company = 0;           // other samples beside it, of other prompts
  std::int64_t n_same = 1;              // samples of the watched prompt itself
  std::int64_t max_rows = 1024;
  bool reverse = false;  // the company goes first
};

std::vector<TokenId> prompt_of(std::uint64_t which, std::int64_t n, std::int64_t vocab) {
  std::vector<TokenId> t(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < t.size(); ++i) {
    // The first third is common to all prompts, so that prefixes are shared inside a run too.
    const std::uint64_t who = i < t.size() / 3 ? 0 : which;
    t[i] = static_cast<TokenId>((i * 2654435761U + who * 40503U + (i * who) % 13) %
                                static_cast<std::uint64_t>(vocab - 3)) +
           3;
  }
  return t;
}

class Models {
 public:
  explicit Models(std::string path) : path_(std::move(path)) {}
  std::shared_ptr<const Model> get(Compute compute, int n_threads) {
    auto& m = loaded_[{compute, n_threads}];
    if (!m) {
      m = Model::load(path_, {.compute = compute, .device = kDevice, .n_threads = n_threads, .deterministic = true});
    }
    return m;
  }

 private:
  std::string path_;
  std::map<std::pair<Compute, int>, std::shared_ptr<const Model>> loaded_;
};

// Bits of sample 0 of prompt 1 of `n_prompt` tokens, `n_new` tokens long.
Bits watched(Models& models, const Setting& s, std::int64_t n_prompt, std::int64_t n_new) {
  const auto model = models.get(s.compute, s.n_threads);
  const std::int64_t vocab = model->config().vocab_size;
  Session session;
  session.add_lane(make_runner(model, {.kv_type = s.kv_type, .n_kv_slots = s.n_slots}), {.max_rows = s.max_rows});
  SampleOptions o;
  o.max_tokens = n_new;
  o.ignore_eos = true;
  o.n_logprobs = 3;
  o.seed = 7;

  std::vector<Job<std::vector<Thought>>> others;
  const auto start_company = [&] {
    for (std::int64_t i = 0; i < s.n_company; ++i) {
      const auto tokens = prompt_of(static_cast<std::uint64_t>(2 + i), n_prompt - i % 5, vocab);
      others.push_back(session.start(session.sample(session.insert(tokens), o)));
    }
  };
  if (s.reverse) start_company();
  const auto tokens = prompt_of(1, n_prompt, vocab);
  Node node = session.insert(std::span(tokens).first(static_cast<std::size_t>(s.cuts.empty() ? n_prompt : s.cuts[0])));
  for (std::size_t i = 0; i < s.cuts.size(); ++i) {
    const std::int64_t end = i + 1 < s.cuts.size() ? s.cuts[i + 1] : n_prompt;
    node = session.extend(node, std::span(tokens).subspan(static_cast<std::size_t>(s.cuts[i]),
                                                          static_cast<std::size_t>(end - s.cuts[i])));
  }
  o.n = s.n_same;
  auto job = session.start(session.sample(node, o));
  if (!s.reverse) start_company();
  session.run();
  for (auto& other : others) {
    for (const auto& t : other.result()) {
      if (t.error) FAIL(std::string(t.error->what()));
    }
  }
  const auto thoughts = job.result();
  if (thoughts[0].error) FAIL(std::string(thoughts[0].error->what()));
  return {thoughts[0].tokens, thoughts[0].logprobs, thoughts[0].top};
}

void check_all(const std::string& path, std::int64_t n_prompt, std::int64_t n_new,
               std::vector<std::int64_t> companies) {
  Models models(path);
  for (const auto& [compute, kv_type] : kTypes) {
    Setting base{.compute = compute, .kv_type = kv_type};
    const Bits alone = watched(models, base, n_prompt, n_new);
    REQUIRE(alone.tokens.size() == static_cast<std::size_t>(n_new));
    const auto same_as_alone = [&](const char* what, auto change) {
      CAPTURE(std::string(what));
      Setting s = base;
      change(s);
      CHECK(watched(models, s, n_prompt, n_new) == alone);
    };
    for (const std::int64_t n : companies) {
      CAPTURE(n);
      same_as_alone("among others", [&](Setting& s) { s.n_company = n; });
    }
    same_as_alone("among samples of its own prompt", [](Setting& s) { s.n_same = 9; });
    same_as_alone("two threads, company", [](Setting& s) { s.n_threads = 2, s.n_company = 5; });
    same_as_alone("cut in the middle", [&](Setting& s) { s.cuts = {n_prompt / 2}; });
    same_as_alone("cut near tile borders", [&](Setting& s) {
      s.cuts = {1, 2, 3};
      for (const std::int64_t c : {63, 64, 65, 127}) {
        if (c < n_prompt) s.cuts.push_back(c);
      }
      s.n_company = 3;
    });
    same_as_alone("steps of few rows", [](Setting& s) { s.max_rows = 64, s.n_company = 4; });
    same_as_alone("a pool so small that it is evicted", [&](Setting& s) {
      s.n_slots = n_prompt + n_new + 40;
      s.n_company = 6;
      s.reverse = true;
    });
    same_as_alone("others first", [](Setting& s) { s.n_company = 6, s.reverse = true; });
  }
}

}  // namespace

TEST_CASE("deterministic mode on the tiny model") { check_all(test::tiny_model(), 150, 40, {1, 7, 63}); }

TEST_CASE("deterministic mode on SmolLM2" * doctest::may_fail(false)) {
  if (test::smollm2().empty()) {
    MESSAGE("skipped: no SmolLM2 file");
    return;
  }
  check_all(test::smollm2(), 130, 10, {3, 63});
}
