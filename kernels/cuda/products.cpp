#include "kernels/cuda/products.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "banyan/error.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/few_rows.hpp"

namespace banyan::kernels::cuda {
namespace {

// NVIDIA recommends 32 MiB for Hopper (cuBLAS documentation, cublasSetWorkspace).
constexpr std::int64_t kWorkspaceBytes = 32 << 20;
// Candidates that are timed, and how often each; the first run of each is a warm-up.
constexpr int kCandidates = 8, kTrials = 4;
// Rows of the one algorithm that deterministic products use: what decoding of a large batch likes.
constexpr std::int64_t kDeterministicRows = 256;

cudaDataType_t cuda_type(DType type) { return type == DType::f32 ? CUDA_R_32F : CUDA_R_16BF; }

// The number of rows that an algorithm is picked for: one to eight, then steps of an eighth to a quarter.
std::int64_t bucket_of(std::int64_t n_rows) {
  if (n_rows <= 8) return n_rows;
  const std::int64_t step = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n_rows))) / 8;
  return (n_rows + step - 1) / step * step;
}

}  // namespace

DeviceMatrix::DeviceMatrix(std::int64_t out, std::int64_t in) {
  n_out = out;
  n_in = in;
  type = DType::bf16;
  bytes = dtype_bytes(type, n_out * n_in);
  data = allocate_device(bytes);
}

// The descriptors of one product. cuBLASLt is column-major: it sees Y^T [n_out, n_rows] = W^T^T X^T.
struct Products::Call {
  explicit Call(const Shape& s) {
    const auto n_out = static_cast<std::uint64_t>(s.n_out), n_in = static_cast<std::uint64_t>(s.n_in),
               n_rows = static_cast<std::uint64_t>(s.n_rows);
    check(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
          "CUBLASLT_MATMUL_DESC_TRANSA");
    check(cublasLtMatrixLayoutInit(&w, CUDA_R_16BF, n_in, n_out, s.n_in), "cublasLtMatrixLayoutInit");
    check(cublasLtMatrixLayoutInit(&x, CUDA_R_16BF, n_in, n_rows, s.n_in), "cublasLtMatrixLayoutInit");
    check(cublasLtMatrixLayoutInit(&y, cuda_type(s.y_type), n_out, n_rows, s.n_out), "cublasLtMatrixLayoutInit");
    beta = s.accumulate ? 1.0F : 0.0F;
  }

  cublasStatus_t run(cublasLtHandle_t handle, const void* w_data, const void* x_data, void* y_data,
                     const cublasLtMatmulAlgo_t& algorithm, const DeviceScratch& workspace, cudaStream_t stream) {
    const float alpha = 1.0F;
    return cublasLtMatmul(handle, &operation, &alpha, w_data, &w, x_data, &x, &beta, y_data, &y, y_data, &y, &algorithm,
                          workspace.data(), static_cast<std::size_t>(kWorkspaceBytes), stream);
  }

  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t w, x, y;
  float beta;
};

std::string products_machine(const char* gpu_name) {
  int driver = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  return std::string(gpu_name) + ", cuBLASLt " + std::to_string(cublasLtGetVersion()) + ", driver " +
         std::to_string(driver);
}

Products::Products(cudaStream_t stream, bool deterministic, AlgorithmCache kept)
    : stream_(stream), deterministic_(deterministic), kept_(std::move(kept)) {
  check(cublasLtCreate(&handle_), "cublasLtCreate");
  workspace_.reserve_bytes(kWorkspaceBytes);
}

Products::~Products() { cublasLtDestroy(handle_); }

void Products::run(const DeviceMatrix& w, const void* x, void* y, DType y_type, std::int64_t n_rows, bool accumulate) {
  if (n_rows <= 0) return;
  if (!deterministic_ && is_few_rows_product(n_rows, w.n_in)) {
    few_rows_product(static_cast<const bf16*>(w.data), static_cast<const bf16*>(x), y, y_type, n_rows, w.n_out, w.n_in,
                     accumulate, stream_);
    return;
  }
  const std::int64_t bucket = deterministic_ ? kDeterministicRows : bucket_of(n_rows);
  const cublasLtMatmulAlgo_t& picked = algorithm({w.n_out, w.n_in, bucket, y_type, accumulate});
  Call call({w.n_out, w.n_in, n_rows, y_type, accumulate});
  check(call.run(handle_, w.data, x, y, picked, workspace_, stream_), "cublasLtMatmul");
}

const cublasLtMatmulAlgo_t& Products::algorithm(const Shape& bucket) {
  if (const auto found = algorithms_.find(bucket); found != algorithms_.end()) return found->second;
  cublasLtMatmulAlgo_t algorithm;
  if (!recall(bucket, algorithm)) {
    algorithm = pick(bucket);
    AlgorithmCache::Algorithm words;
    static_assert(sizeof words == sizeof algorithm);
    std::memcpy(words.data(), &algorithm, sizeof algorithm);
    kept_.remember(bucket, words);
  }
  return algorithms_.emplace(bucket, algorithm).first->second;
}

// From another run, if the library takes it and its workspace is not larger than ours.
bool Products::recall(const Shape& s, cublasLtMatmulAlgo_t& algorithm) {
  const auto words = kept_.find(s);
  if (!words) return false;
  std::memcpy(&algorithm, words->data(), sizeof algorithm);
  Call call(s);
  cublasLtMatmulHeuristicResult_t result;
  return cublasLtMatmulAlgoCheck(handle_, &call.operation, &call.w, &call.x, &call.y, &call.y, &algorithm, &result) ==
             CUBLAS_STATUS_SUCCESS &&
         static_cast<std::int64_t>(result.workspaceSize) <= kWorkspaceBytes;
}

cublasLtMatmulAlgo_t Products::pick(const Shape& s) {
  Call call(s);
  cublasLtMatmulPreferenceOpaque_t preference;
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  const auto workspace_bytes = static_cast<std::uint64_t>(kWorkspaceBytes);
  check(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                             sizeof workspace_bytes),
        "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES");
  if (deterministic_) {
    const auto no_reduction = static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE);
    check(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &no_reduction,
                                               sizeof no_reduction),
          "CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK");
  }
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> candidates;
  int n = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle_, &call.operation, &call.w, &call.x, &call.y, &call.y, &preference,
                                       kCandidates, candidates.data(), &n),
        "cublasLtMatmulAlgoGetHeuristic");
  if (n == 0) {
    throw Error(ErrorCode::unsupported, "cublasLtMatmul",
                "has no algorithm for " + std::to_string(s.n_rows) + " rows of a [" + std::to_string(s.n_out) + ", " +
                    std::to_string(s.n_in) + "] matrix");
  }
  if (n == 1 || deterministic_) return candidates[0].algo;

  // Trials read and write scratch: what is in it does not matter, as long as it is not all zeros, which are faster.
  const std::int64_t w_bytes = dtype_bytes(DType::bf16, s.n_out * s.n_in),
                     x_bytes = (dtype_bytes(DType::bf16, s.n_rows * s.n_in) + 255) / 256 * 256,
                     y_bytes = dtype_bytes(s.y_type, s.n_rows * s.n_out);
  const std::int64_t x_begin = (w_bytes + 255) / 256 * 256, y_begin = x_begin + x_bytes;
  trial_.reserve_bytes(y_begin + y_bytes);
  auto* trial = static_cast<std::byte*>(trial_.data());
  check(cudaMemsetAsync(trial, 0x3c, static_cast<std::size_t>(y_begin + y_bytes), stream_), "cudaMemsetAsync");
  const Event begin(cudaEventDefault), end(cudaEventDefault);
  float fastest_ms = std::numeric_limits<float>::infinity();
  int best = 0;
  for (int i = 0; i < n; ++i) {
    const auto& algorithm = candidates[static_cast<std::size_t>(i)].algo;
    for (int trial_number = 0; trial_number < kTrials; ++trial_number) {
      check(cudaEventRecord(begin, stream_), "cudaEventRecord");
      const cublasStatus_t status =
          call.run(handle_, trial, trial + x_begin, trial + y_begin, algorithm, workspace_, stream_);
      if (status != CUBLAS_STATUS_SUCCESS) break;
      check(cudaEventRecord(end, stream_), "cudaEventRecord");
      check(cudaEventSynchronize(end), "cudaEventSynchronize");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
      if (trial_number > 0 && ms < fastest_ms) {
        fastest_ms = ms;
        best = i;
      }
    }
  }
  return candidates[static_cast<std::size_t>(best)].algo;
}

}  // namespace banyan::kernels::cuda
