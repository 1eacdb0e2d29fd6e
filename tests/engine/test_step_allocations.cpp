// A step of decoding allocates nothing once it has seen its size: counted over the whole process.
#include <doctest/doctest.h>

#include "banyan/session.hpp"
#include "bench/count_allocations.hpp"
#include "engine/models.hpp"

using namespace banyan;

TEST_CASE("a decode step allocates nothing after warm-up") {
  for (const bool deterministic : {false, true}) {
    const auto model = Model::load(test::tiny_model(), {.n_threads = 2, .deterministic = deterministic});
    Session s;
    s.add_lane(make_runner(model, {.kv_type = DType::f32, .n_kv_slots = 1 << 14}));
    std::vector<TokenId> prompt;
    for (TokenId i = 0; i < 100; ++i) prompt.push_back(3 + i % 60);
    const Node root = s.insert(prompt);
    SampleOptions o;
    o.n = 32;
    o.max_tokens = 150;
    o.ignore_eos = true;
    o.stop = {"never to be seen"};
    o.sampler = {.temperature = 0.8, .top_k = 40, .top_p = 0.95};
    auto job = s.start(s.sample(root, o));
    for (int i = 0; i < 60; ++i) REQUIRE(s.step());
    const std::int64_t before = n_allocations;
    for (int i = 0; i < 80; ++i) REQUIRE(s.step());
    CHECK(n_allocations - before == 0);
    s.run();
    CHECK(job.result().size() == 32);
  }
}
