// The CUDA backend: one device, one stream. Activations are bf16, the residual stream and logits f32, weights bf16.
// Everything is put on the stream and nothing waits, except upload(), download(), synchronize() and memory that grows.
#include "kernels/cuda/backend.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/team.hpp"
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/fill.hpp"
#include "kernels/cuda/products.hpp"
#include "kernels/cuda/rows.hpp"
#include "kernels/cuda/step_clock.hpp"
#include "kernels/cuda/step_graphs.hpp"
#include "kernels/cuda/step_upload.hpp"
#include "kernels/ops.hpp"

namespace banyan::kernels {
namespace {

using namespace cuda;

// Weights cross to the device in pieces of about this size, the next being made while one is under way.
constexpr std::int64_t kPackBytes = 16 << 20;

cudaDeviceProp properties_of(int device) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return properties;
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const BackendOptions& options)
      : device_(open_device(options.device_index)),
        deterministic_(options.deterministic),
        n_threads_(options.n_threads),
        properties_(properties_of(device_)),
        products_(
            stream_, options.deterministic,
            {options.deterministic ? "" : options.cache_folder, products_machine(properties_.name), options.notice}) {
    warpgroup_tiles_ = has_warpgroup_tiles();
    tickets_.reserve_bytes(kTicketBytes);
    check(cudaMemsetAsync(tickets_.data(), 0, kTicketBytes, stream_), "cudaMemsetAsync");
  }
  ~CudaBackend() override { cudaStreamSynchronize(stream_); }

  std::string describe() const override {
    return "cuda " + std::to_string(device_) + " " + properties_.name + ", sm_" + std::to_string(properties_.major) +
           std::to_string(properties_.minor);
  }
  DType activation_type() const override { return DType::bf16; }

  void* allocate(std::int64_t bytes) override {
    use_device(device_);
    return allocate_device(bytes);
  }
  void release(void* p) noexcept override { cudaFree(p); }
  std::int64_t free_bytes() const override {
    use_device(device_);
    std::size_t n_free = 0, n_total = 0;
    check(cudaMemGetInfo(&n_free, &n_total), "cudaMemGetInfo");
    return static_cast<std::int64_t>(n_free);
  }
  void upload(void* dst, const void* host, std::int64_t bytes) override {
    transfer(dst, host, bytes, cudaMemcpyHostToDevice);
    synchronize();
  }
  void download(void* host, const void* src, std::int64_t bytes) override {
    transfer(host, src, bytes, cudaMemcpyDeviceToHost);
    synchronize();
  }
  void copy(void* dst, const void* src, std::int64_t bytes) override {
    transfer(dst, src, bytes, cudaMemcpyDeviceToDevice);
  }
  void fill_random(void* dst, DType type, std::int64_t n, std::uint64_t seed) override {
    fill_uniform(dst, type, n, seed, 1.0F, stream_);
  }
  void synchronize() override { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

  std::unique_ptr<Matrix> pack(std::int64_t n_out, std::int64_t n_in, DType type, const RowSource& rows) override;

  void begin_step(const StepArrays& step) override;
  void run(std::uint64_t version, const std::function<void()>& operations) override {
    graphs_.run(graph_key(version), stream_, operations);
  }
  void matmul(const Matrix& w, const void* x, void* y, std::int64_t n_rows, const float* bias) override {
    products_.run(static_cast<const DeviceMatrix&>(w), x, y, DType::bf16, n_rows, false);
    if (bias != nullptr) add_bias(y, DType::bf16, bias, n_rows, w.n_out, stream_);
  }
  void matmul_f32(const Matrix& w, const void* x, float* y, std::int64_t n_rows, const float* bias,
                  bool accumulate) override {
    products_.run(static_cast<const DeviceMatrix&>(w), x, y, DType::f32, n_rows, accumulate);
    if (bias != nullptr) add_bias(y, DType::f32, bias, n_rows, w.n_out, stream_);
  }

  void embed(const Matrix& table, float* x) override;
  void rms_norm(const float* x, const float* w, void* y, std::int64_t n_rows, std::int64_t dim, float eps) override {
    cuda::rms_norm(x, w, static_cast<bf16*>(y), n_rows, dim, eps, stream_);
  }
  void rope_kv(const RopeKvArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void silu_mul(const void* gate_up, void* y, std::int64_t n_rows, std::int64_t dim) override {
    cuda::silu_mul(static_cast<const bf16*>(gate_up), static_cast<bf16*>(y), n_rows, dim, stream_);
  }
  void gather_logit_rows(const float* x, float* dst, std::int64_t dim) override {
    gather_rows(x, nullptr, upload_.at<std::int32_t>(at_.logit_rows), dst, n_logit_rows_, dim, stream_);
  }
  cudaStream_t stream() const { return stream_; }
  StepClock& clock() { return clock_; }

 private:
  void transfer(void* dst, const void* src, std::int64_t bytes, cudaMemcpyKind kind) {
    use_device(device_);
    check(cudaMemcpyAsync(dst, src, static_cast<std::size_t>(bytes), kind, stream_), "cudaMemcpyAsync");
  }
  const TileAttention& tile_attention(const TensorShape& shape);
  StepGraphs::Key graph_key(std::uint64_t version) const;

  int device_;
  bool deterministic_;
  bool warpgroup_tiles_ = false;
  int n_threads_;  // that pack weights
  Stream stream_;
  cudaDeviceProp properties_;
  Products products_;

  struct PackSlot {
    PinnedScratch memory;
    Event sent;
  };
  std::array<PackSlot, 2> pack_slots_;

  // The step: its arrays on the device, and how its attention is cut.
  struct OnDevice {
    StepUpload::Place tokens = 0, positions = 0, kv_slots = 0, logit_rows = 0, runs = 0, calls = 0, header = 0,
                      items = 0, rows = 0, merge_rows = 0;
  };
  std::int64_t n_rows_ = 0, n_logit_rows_ = 0, n_calls_ = 0;
  DrawnTokens drawn_;
  StepClock clock_;
  StepUpload upload_;
  OnDevice at_{};
  WorkItems work_;
  LaunchSet launches_;
  StepGraphs graphs_;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, DType>, TileAttention> tile_attentions_;
  DeviceScratch partial_o_, partial_state_, tickets_;
};

std::unique_ptr<Matrix> CudaBackend::pack(std::int64_t n_out, std::int64_t n_in, DType type, const RowSource& rows) {
  if (type != DType::bf16) {
    throw Error(ErrorCode::unsupported, "weights on a CUDA device",
                std::string("are bf16, not ") + std::string(to_string(type)));
  }
  use_device(device_);
  auto matrix = std::make_unique<DeviceMatrix>(n_out, n_in);
  if (const auto* uniform = dynamic_cast<const UniformRows*>(&rows)) {
    fill_uniform(matrix->data, type, n_out * n_in, uniform->seed, uniform->bound, stream_);
    return matrix;
  }
  const std::int64_t row_bytes = dtype_bytes(type, n_in);
  const std::int64_t n_block = std::clamp<std::int64_t>(kPackBytes / row_bytes, 1, n_out);
  constexpr std::int64_t n_piece = 64;  // rows of one piece of work
  Team team(n_threads_);                // for this matrix alone: once the model is loaded nothing here needs threads
  std::vector<std::vector<float>> rows_f32(static_cast<std::size_t>(team.n_threads()),
                                           std::vector<float>(static_cast<std::size_t>(n_piece * n_in)));
  std::size_t turn = 0;
  for (std::int64_t begin = 0; begin < n_out; begin += n_block) {
    const std::int64_t end = std::min(n_out, begin + n_block);
    PackSlot& slot = pack_slots_[turn++ % pack_slots_.size()];
    check(cudaEventSynchronize(slot.sent), "cudaEventSynchronize");
    slot.memory.reserve_bytes(n_block * row_bytes);
    auto* packed = static_cast<bf16*>(slot.memory.data());
    team.run((end - begin + n_piece - 1) / n_piece, [&](std::int64_t piece, int thread) {
      float* values = rows_f32[static_cast<std::size_t>(thread)].data();
      const std::int64_t first = begin + piece * n_piece, last = std::min(end, first + n_piece);
      rows.fill(first, last, values);
      bf16* dst = packed + (first - begin) * n_in;
      for (std::int64_t i = 0; i < (last - first) * n_in; ++i) dst[i] = to_bf16(values[i]);
    });
    check(cudaMemcpyAsync(static_cast<std::byte*>(matrix->data) + begin * row_bytes, packed,
                          static_cast<std::size_t>((end - begin) * row_bytes), cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
    check(cudaEventRecord(slot.sent, stream_), "cudaEventRecord");
  }
  return matrix;
}

void CudaBackend::begin_step(const StepArrays& step) {
  use_device(device_);
  n_rows_ = step.n_rows;
  n_logit_rows_ = std::ssize(step.logit_rows);
  n_calls_ = std::ssize(step.calls);
  drawn_ = step.drawn;
  upload_.begin();
  at_ = {.tokens = upload_.add(step.tokens),
         .positions = upload_.add(step.positions),
         .kv_slots = upload_.add(step.kv_slots),
         .logit_rows = upload_.add(step.logit_rows),
         .runs = upload_.add(step.runs),
         .calls = upload_.add(step.calls)};
  if (step.n_heads_q > 0) {
    work_.build(step.positions, step.runs, step.calls,
                {.n_heads_q = step.n_heads_q,
                 .n_heads_kv = step.n_heads_kv,
                 .deterministic = deterministic_,
                 .n_sms = properties_.multiProcessorCount,
                 .warpgroup_tiles = warpgroup_tiles_});
    launches_ = launches_of(work_);
    const TensorShape shape{step.n_heads_q, step.n_heads_kv, step.head_dim};
    partial_o_.reserve_bytes(partial_o_bytes(work_.n_partials(), shape));
    partial_state_.reserve_bytes(partial_state_bytes(work_.n_partials(), shape));
    at_.header = upload_.add(std::span(&work_.header(), 1));
    at_.items = upload_.add(work_.items());
    at_.rows = upload_.add(work_.rows());
    at_.merge_rows = upload_.add(work_.merge_rows());
  }
  upload_.send(stream_);
  clock_.begin(stream_);
}

void CudaBackend::embed(const Matrix& table, float* x) {
  cuda::embed(static_cast<const bf16*>(static_cast<const DeviceMatrix&>(table).data), table.n_out,
              upload_.at<TokenId>(at_.tokens), drawn_, x, n_rows_, table.n_in, stream_);
}

void CudaBackend::rope_kv(const RopeKvArgs& args) {
  cuda::rope_kv({.qkv = static_cast<const bf16*>(args.qkv),
                 .q = static_cast<bf16*>(args.q),
                 .positions = upload_.at<std::int32_t>(at_.positions),
                 .kv_slots = upload_.at<std::int64_t>(at_.kv_slots),
                 .inv_freq = args.inv_freq,
                 .n_rotary = args.kv.head_dim,
                 .magnitude = args.magnitude,
                 .q_norm = args.q_norm,
                 .k_norm = args.k_norm,
                 .norm_eps = args.norm_eps,
                 .n_rows = n_rows_,
                 .n_heads_q = args.n_heads_q,
                 .kv = args.kv},
                stream_);
}

void CudaBackend::attention(const AttentionArgs& a) {
  const TensorShape shape{a.n_heads_q, a.kv.n_heads_kv, a.kv.head_dim, a.kv.type};
  const AttentionTensors tensors{.q = static_cast<const bf16*>(a.q),
                                 .o = a.o,
                                 .o_type = DType::bf16,
                                 .lse = a.lse,
                                 .n_rows = n_rows_,
                                 .n_heads_q = a.n_heads_q,
                                 .kv = a.kv,
                                 .scale = a.scale};
  if (!supports(shape)) {
    attention_generic(tensors,
                      {.positions = upload_.at<std::int32_t>(at_.positions),
                       .runs = upload_.at<SlotRun>(at_.runs),
                       .calls = upload_.at<AttentionCall>(at_.calls),
                       .n_calls = n_calls_},
                      stream_);
    return;
  }
  tile_attention(shape).launch(tensors,
                               {.header = upload_.at<WorkHeader>(at_.header),
                                .items = upload_.at<WorkItem>(at_.items),
                                .rows = upload_.at<RowInfo>(at_.rows),
                                .merge_rows = upload_.at<MergeRow>(at_.merge_rows),
                                .runs = upload_.at<SlotRun>(at_.runs)},
                               {.o = static_cast<float*>(partial_o_.data()),
                                .state = static_cast<float*>(partial_state_.data()),
                                .tickets = static_cast<std::uint32_t*>(tickets_.data())},
                               launches_, stream_);
}

// All that this step's launches depend on, but the caller's own (`version`). How much of each array counts is read on
// the device.
StepGraphs::Key CudaBackend::graph_key(std::uint64_t version) const {
  const auto number = [](auto value) {
    if constexpr (std::is_pointer_v<decltype(value)>) {
      return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(value));
    } else {
      return static_cast<std::uint64_t>(value);
    }
  };
  // Powers of two, or 0.
  auto kinds = static_cast<std::uint64_t>(std::bit_width(launches_.n_merge_rows));
  for (const std::uint32_t n : launches_.n_items) kinds = 64 * kinds + static_cast<std::uint64_t>(std::bit_width(n));
  return {version,
          number(n_rows_),
          number(n_logit_rows_),
          number(n_calls_),
          number(launches_.n_phases),
          kinds,
          number(partial_o_.data()),
          number(partial_state_.data()),
          number(upload_.base()),
          number(at_.positions),
          number(at_.kv_slots),
          number(at_.logit_rows),
          number(at_.runs),
          number(at_.calls),
          number(at_.header),
          number(at_.items),
          number(at_.rows),
          number(at_.merge_rows)};
}

const TileAttention& CudaBackend::tile_attention(const TensorShape& s) {
  const std::tuple key(s.n_heads_q, s.n_heads_kv, s.head_dim, s.kv_type);
  const auto found = tile_attentions_.find(key);
  return found != tile_attentions_.end() ? found->second : tile_attentions_.emplace(key, s).first->second;
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

int n_cuda_devices() { return cuda::n_devices(); }

void* cuda::stream_of(const Backend& backend) { return dynamic_cast<const CudaBackend&>(backend).stream(); }

void cuda::end_step(Backend& backend) {
  auto& b = dynamic_cast<CudaBackend&>(backend);
  b.clock().end(b.stream());
}

cuda::DeviceTimes cuda::wait_for_step(Backend& backend) {
  const auto times = dynamic_cast<CudaBackend&>(backend).clock().harvest();
  return {times.busy_ms, times.idle_ms};
}

}  // namespace banyan::kernels
