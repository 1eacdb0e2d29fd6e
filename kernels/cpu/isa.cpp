#include "kernels/cpu/isa.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/ops.hpp"

namespace banyan::kernels {

extern const IsaOps kIsaPortable;

#if defined(__x86_64__)
extern const IsaOps kIsaAvx512Bf16, kIsaAvx512, kIsaAvx2;

namespace {

// clang 14 does not know this name in __builtin_cpu_supports.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }

}  // namespace
#endif

bool cpu_multiplies_bf16() {
#if defined(__x86_64__)
  return has_avx512_bf16();
#else
  return false;
#endif
}

std::vector<const IsaOps*> supported_isas() {
  std::vector<const IsaOps*> isas;
#if defined(__x86_64__)
  if (has_avx512_bf16()) isas.push_back(&kIsaAvx512Bf16);
  if (has_avx512()) isas.push_back(&kIsaAvx512);
  if (has_avx2()) isas.push_back(&kIsaAvx2);
#endif
  isas.push_back(&kIsaPortable);
  return isas;
}

// Must match what begin_unit of isa_attention.hpp takes: q, o, maximum, sum, K tile, V tile, scores, p.
std::int64_t attention_scratch_bytes(std::int64_t n_packed_rows, std::int64_t head_dim) {
  const auto round_up = [](std::int64_t n, std::int64_t m) { return (n + m - 1) / m * m; };
  const std::int64_t n = round_up(n_packed_rows, 16), stride = round_up(head_dim, 16);
  const std::int64_t tiles = stride * kTilePositions + round_up(stride, kPanelColumns) * kTilePositions;
  constexpr std::int64_t kScores = 12 * kTilePositions * 3 / 2;
  return static_cast<std::int64_t>(sizeof(float)) * (2 * n * stride + 2 * n + tiles + kScores);
}

}  // namespace banyan::kernels
