// The check backend over whole models: silent where two backends agree, and exact about where one value is wrong.
#include <doctest/doctest.h>

#include "banyan/session.hpp"
#include "kernels/check.hpp"
#include "kernels/wrapped_backend.hpp"
#include "made_model.hpp"
#include "model_test.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

// Which value of which operation's output is made wrong: of the n-th call (from 0) of that kind in a step.
struct Spoil {
  std::string operation;
  int call = 0;
  std::int64_t element = 0;  // of the output
  float by = 0.01F;          // added, relative to the value and absolutely
};

class SpoiledBackend final : public kernels::WrappedBackend {
 public:
  SpoiledBackend(std::unique_ptr<kernels::Backend> inner, Spoil spoil)
      : WrappedBackend(std::move(inner)), spoil_(std::move(spoil)) {}

  void begin_step(const kernels::StepArrays& step) override {
    n_calls_ = 0;
    WrappedBackend::begin_step(step);
  }
  void matmul(const kernels::Matrix& w, const void* x, void* y, std::int64_t n_rows, const float* bias) override {
    WrappedBackend::matmul(w, x, y, n_rows, bias);
    after("matmul", y);
  }
  void matmul_f32(const kernels::Matrix& w, const void* x, float* y, std::int64_t n_rows, const float* bias,
                  bool accumulate) override {
    WrappedBackend::matmul_f32(w, x, y, n_rows, bias, accumulate);
    after("matmul_f32", y);
  }
  void embed(const kernels::Matrix& table, float* x) override {
    WrappedBackend::embed(table, x);
    after("embed", x);
  }
  void rms_norm(const float* x, const float* w, void* y, std::int64_t n_rows, std::int64_t dim, float eps) override {
    WrappedBackend::rms_norm(x, w, y, n_rows, dim, eps);
    after("rms_norm", y);
  }
  void rope_kv(const RopeKvArgs& args) override {
    WrappedBackend::rope_kv(args);
    after("rope_kv q", args.q);
    after("rope_kv kv", args.kv.base);
  }
  void attention(const kernels::AttentionArgs& args) override {
    WrappedBackend::attention(args);
    after("attention", args.o);
  }
  void silu_mul(const void* gate_up, void* y, std::int64_t n_rows, std::int64_t dim) override {
    WrappedBackend::silu_mul(gate_up, y, n_rows, dim);
    after("silu_mul", y);
  }
  void gather_logit_rows(const float* x, float* dst, std::int64_t dim) override {
    WrappedBackend::gather_logit_rows(x, dst, dim);
    after("gather", dst);
  }

 private:
  void after(const std::string& operation, void* output) {
    if (operation != spoil_.operation || n_calls_++ != spoil_.call) return;
    float& value = static_cast<float*>(output)[spoil_.element];  // host memory, f32
    value += spoil_.by * (1.0F + std::fabs(value));
  }
  Spoil spoil_;
  int n_calls_ = 0;
};

// The tiny model, its fast kernels (spoiled) checked against the plain ones.
std::shared_ptr<const LoadedModel> checked_model(const Spoil& spoil, Compute compute = Compute::f32) {
  return std::make_shared<LoadedModel>(
      open_checkpoint(kTinyGguf), LoadOptions{.compute = compute, .n_threads = 1},
      [spoil](const kernels::BackendOptions& options) {
        return kernels::make_check_backend(std::make_unique<SpoiledBackend>(kernels::make_cpu_backend(options), spoil),
                                           kernels::make_cpu_backend({.n_threads = 1, .reference = true}));
      });
}

std::vector<TokenId> prompt() {
  std::vector<TokenId> ids;
  for (TokenId i = 0; i < 70; ++i) ids.push_back(3 + (i * 17 + i * i) % 60);
  return ids;
}

std::string found(const Spoil& spoil) {
  return error_of([&] { flat_logits(checked_model(spoil), prompt()); });
}

}  // namespace

TEST_CASE("check: backends that agree give the checked one's bits, in every type") {
  for (const Compute compute : {Compute::f32, Compute::bf16}) {
    const auto plain = Model::load(kTinyGguf, {.compute = compute, .n_threads = 1});
    const auto checked = checked_model({}, compute);
    CHECK(contains(checked->backend_name(), "check of cpu"));
    for (const DType kv_type : {DType::f32, DType::bf16, DType::f16}) {
      CHECK(flat_logits(checked, prompt(), kv_type) == flat_logits(plain, prompt(), kv_type));
    }
  }
}

TEST_CASE("check: one wrong value is found where it is: layer, operation, row, element, both values") {
  const ModelConfig& c = Model::load(kTinyGguf)->config();
  REQUIRE(c.n_layers == 2);
  const std::int64_t q_dim = c.n_heads_q * c.head_dim, row = 33;
  const auto expect = [](const Spoil& spoil, const std::vector<std::string>& parts) {
    const std::string error = found(spoil);
    CAPTURE(spoil.operation);
    CAPTURE(error);
    for (const std::string& part : parts) {
      CAPTURE(part);
      CHECK(contains(error, part));
    }
  };
  expect({"embed", 0, row * c.hidden_size + 7}, {"device: layer 0, embed, row 33 (position 33)", "element 7 "});
  expect({"rms_norm", 3, row * c.hidden_size + 5}, {"layer 1, rms_norm, row 33", "element 5 "});
  expect({"matmul", 2, row * (q_dim + 2 * c.n_heads_kv * c.head_dim) + 1}, {"layer 1, product with [", "row 33"});
  expect({"matmul_f32", 1, row * c.hidden_size + 2}, {"layer 0, product with [", "row 33", "element 2 "});
  expect({"rope_kv q", 1, row * q_dim + 3}, {"layer 1, rope_kv, q, row 33", "element 3 "});
  // Slots are the rows here; head 0 of K begins the store, V lies behind all of K.
  expect({"rope_kv kv", 0, row * c.head_dim + 4}, {"layer 0, rope_kv, k, row 33", "element 4 "});
  expect({"rope_kv kv", 0, c.n_heads_kv * 70 * c.head_dim + row * c.head_dim + 6},
         {"layer 0, rope_kv, v, row 33", "element 6 "});
  expect({"attention", 1, row * q_dim + 8}, {"layer 1, attention, row 33", "element 8 ", "is rounding"});
  expect({"silu_mul", 0, row * c.intermediate_size}, {"layer 0, silu_mul, row 33", "element 0 "});
  expect({"gather", 0, row * c.hidden_size + 9}, {"head, gather_logit_rows, row 33", "element 9 "});
  expect({"matmul_f32", 4, row * c.vocab_size + 10}, {"head, product with [", "row 33", "element 10 "});
  // What is not a number is wrong, too; what is next to nothing is not.
  expect({"attention", 0, 0, NAN}, {"layer 0, attention, row 0", "nan"});
  CHECK(found({"attention", 0, 0, 1e-7F}).empty());
}

TEST_CASE("check: a session's samples have the error, and the process goes on") {
  const std::vector<TokenId> ids = prompt();
  const auto sample = [&](const Spoil& spoil) {
    Session session;
    session.add_lane(make_runner(checked_model(spoil), {.n_kv_slots = 1024}));
    const Node node = session.insert(ids);
    return session.run(session.sample(node, {.n = 3, .max_tokens = 4, .ignore_eos = true}));
  };
  for (const Thought& t : sample({})) CHECK_FALSE(t.error.has_value());
  for (const Thought& t : sample({"silu_mul", 1, 3})) {
    REQUIRE(t.error.has_value());
    CHECK(t.error->code() == ErrorCode::device);
    CHECK(contains(t.error->what(), "layer 1, silu_mul"));
  }
}
