// A device without room: refused before loading where that can be known, an error of the step where not; and the
// process goes on.
#include <doctest/doctest.h>
#include <memory>

#include "banyan/session.hpp"
#include "engine/models.hpp"
#include "kernels/wrapped_backend.hpp"
#include "model/weights.hpp"

using namespace banyan;

namespace {

struct Memory {
  std::int64_t n_free = std::int64_t{1} << 40;
  std::int64_t largest = std::int64_t{1} << 40;  // allocation that succeeds
  std::int64_t n_packed = 0;                     // matrices
};

class LimitedBackend final : public kernels::WrappedBackend {
 public:
  LimitedBackend(std::unique_ptr<kernels::Backend> inner, std::shared_ptr<Memory> memory)
      : WrappedBackend(std::move(inner)), memory_(std::move(memory)) {}
  std::string describe() const override { return "test device"; }
  std::int64_t free_bytes() const override { return memory_->n_free; }
  void* allocate(std::int64_t bytes) override {
    if (bytes > memory_->largest) {
      throw Error(ErrorCode::out_of_memory, "test device",
                  std::to_string(bytes) + " bytes wanted, " + std::to_string(memory_->largest) + " are free");
    }
    return WrappedBackend::allocate(bytes);
  }
  std::unique_ptr<kernels::Matrix> pack(std::int64_t n_out, std::int64_t n_in, DType type,
                                        const RowSource& rows) override {
    ++memory_->n_packed;
    return WrappedBackend::pack(n_out, n_in, type, rows);
  }

 private:
  std::shared_ptr<Memory> memory_;
};

std::shared_ptr<const LoadedModel> load(const std::shared_ptr<Memory>& memory, LoadOptions options) {
  options.n_threads = 1;
  return std::make_shared<LoadedModel>(open_checkpoint(test::tiny_model()), options,
                                       [memory](const kernels::BackendOptions& o) {
                                         return std::make_unique<LimitedBackend>(kernels::make_cpu_backend(o), memory);
                                       });
}

std::vector<TokenId> prompt(TokenId n) {
  std::vector<TokenId> ids;
  for (TokenId i = 0; i < n; ++i) ids.push_back(3 + (i * 17 + i * i) % 60);
  return ids;
}

}  // namespace

TEST_CASE("a model that does not fit on a device is refused with all sizes before a matrix is made") {
  const auto memory = std::make_shared<Memory>();
  const auto whole = load(memory, {.device = Device::cuda});
  const std::int64_t n_matrices = memory->n_packed;
  CHECK(n_matrices > 0);
  memory->n_packed = 0;
  memory->n_free = whole->weight_bytes() / 2;
  CHECK_THROWS_WITH_AS(load(memory, {.device = Device::cuda}), doctest::Contains("test device: "), Error);
  CHECK_THROWS_WITH_AS(load(memory, {.device = Device::cuda}),
                       doctest::Contains((std::to_string(memory->n_free) + " bytes are free").c_str()), Error);
  // The weights alone fit, but not with what is wanted beside them.
  memory->n_free = whole->weight_bytes() + 1000;
  CHECK_THROWS_WITH_AS(load(memory, {.device = Device::cuda, .kv_bytes = 123'456}),
                       doctest::Contains("123456 of keys and values"), Error);
  CHECK(memory->n_packed == 0);
  try {
    load(memory, {.device = Device::cuda, .kv_bytes = 123'456});
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::out_of_memory);
  }
  load(memory, {.device = Device::cuda, .kv_bytes = 900});
  CHECK(memory->n_packed == n_matrices);
}

TEST_CASE("out of memory inside a step: those who took part hear of it with sizes, and the session goes on") {
  const auto memory = std::make_shared<Memory>();
  const auto model = load(memory, {.compute = Compute::f32});
  Session session;
  session.add_lane(make_runner(model, {.n_kv_slots = 1024}));
  const auto sample = [&](const std::vector<TokenId>& ids) {
    const Node node = session.insert(ids);
    return session.run(
        session.sample(node, {.n = 2, .max_tokens = 5, .ignore_eos = true, .seed = 3, .stream = 1, .first_sample = 0}));
  };
  const auto small = sample(prompt(4));
  for (const Thought& t : small) CHECK_FALSE(t.error.has_value());
  // A hundred rows need larger buffers than there is memory for; each time, wherever that is met.
  for (const std::int64_t largest : {0, 10'000, 20'000, 30'000}) {
    CAPTURE(largest);
    memory->largest = largest;
    for (const Thought& t : sample(prompt(100))) {
      REQUIRE(t.error.has_value());
      CHECK(t.error->code() == ErrorCode::out_of_memory);
      CHECK(std::string(t.error->what()).find(" bytes wanted, " + std::to_string(largest)) != std::string::npos);
    }
  }
  memory->largest = std::int64_t{1} << 40;
  const auto after = sample(prompt(100));
  Session fresh;
  fresh.add_lane(make_runner(model, {.n_kv_slots = 1024}));
  const std::vector<TokenId> ids = prompt(100);
  const Node node = fresh.insert(ids);
  const auto right = fresh.run(
      fresh.sample(node, {.n = 2, .max_tokens = 5, .ignore_eos = true, .seed = 3, .stream = 1, .first_sample = 0}));
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK_FALSE(after[i].error.has_value());
    CHECK(after[i].tokens == right[i].tokens);
  }
  CHECK(sample(prompt(4))[1].tokens == small[1].tokens);
}
