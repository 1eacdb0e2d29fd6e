// The instructions of the tile kernels (sm_80 and newer) and the arithmetic of softmax, each in one place. All
// floating-point operations are named ones, so that a row has the same bits in every kernel that computes it.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace banyan::kernels::cuda {

constexpr unsigned kAllLanes = 0xffffffffU;
constexpr float kLn2 = 0.6931471805599453F;

__device__ __forceinline__ float negative_infinity() { return __int_as_float(0xff800000); }

// 2^x to 2 ulp; exactly 1 at 0, exactly 0 at -inf.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// --- shared memory ---------------------------------------------------------------------------------------------------

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// 16 bytes, past the L1 cache; zeros where `valid` is false (src is not read then).
__device__ __forceinline__ void copy_async(std::uint32_t dst, const void* src, bool valid) {
  const int n_bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(n_bytes));
}
// The same of 4 bytes.
__device__ __forceinline__ void copy_async_4(std::uint32_t dst, const void* src, bool valid) {
  const int n_bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src), "r"(n_bytes));
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most kPending of the groups committed by this thread are under way.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// --- matrix product, and what its 16-bit type can do
// -------------------------------------------------------------------

// c [16, 8] f32 += a [16, 16] b [16, 8]. Lane l has of c: rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next.
template <class T>
struct Element;

template <>
struct Element<__nv_bfloat16> {
  static __device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                                      std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ std::uint32_t pack(float low, float high) {
    std::uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
  // A pair of queries, stored in bf16.
  static __device__ __forceinline__ std::uint32_t from_bf16(std::uint32_t pair) { return pair; }
};

template <>
struct Element<__half> {
  static __device__ __forceinline__ void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                                      std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  static __device__ __forceinline__ std::uint32_t pack(float low, float high) {
    std::uint32_t r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
  }
  static __device__ __forceinline__ std::uint32_t from_bf16(std::uint32_t pair) {
    return pack(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000U));
  }
};

// --- fp8
// -----------------------------------------------------------------------------------------------------------

// A code of e4m3.hpp: how keys and values are stored, never multiplied.
struct E4m3 {
  std::uint8_t code;
};

// x y of pairs of bf16, rounded to nearest; subnormal numbers are kept.
__device__ __forceinline__ std::uint32_t multiply_pairs(std::uint32_t x, std::uint32_t y) {
  std::uint32_t r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(0x80008000U));  // minus zero changes nothing
  return r;
}

// Eight codes times the scale of their row, a power of two, as pairs of bf16: exact. A code's bits in the place of a
// bf16's give an exponent that is 120 too small, for subnormals too. (Codes of NaN count as 480: their scale is NaN.)
__device__ __forceinline__ uint4 widen_codes(uint2 codes, float scale) {
  const std::uint32_t scales = __byte_perm(__float_as_uint(scale), 0, 0x3232);
  std::uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t high_bytes = __byte_perm(i < 2 ? codes.x : codes.y, 0, i % 2 == 0 ? 0x1404 : 0x3424);
    const std::uint32_t shifted = (high_bytes & 0x7f007f00U) >> 4 | (high_bytes & 0x80008000U);
    constexpr std::uint32_t kTwoTo120 = 0x7b807b80U;
    pairs[i] = multiply_pairs(multiply_pairs(shifted, kTwoTo120), scales);
  }
  return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// --- results
// -----------------------------------------------------------------------------------------------------------

// A row's output is its weighted sum times this; nothing visible gives 0.
__device__ __forceinline__ float reciprocal_sum(float sum) { return sum == 0.0F ? 0.0F : __frcp_rn(sum); }

__device__ __forceinline__ float natural_lse(float maximum, float sum) {
  return sum == 0.0F ? negative_infinity() : __fmul_rn(__fadd_rn(maximum, log2f(sum)), kLn2);
}

__device__ __forceinline__ void store_pair(void* o, bool is_f32, std::int64_t i, float a, float b) {
  if (is_f32) {
    *reinterpret_cast<float2*>(static_cast<float*>(o) + i) = make_float2(a, b);
  } else {
    *reinterpret_cast<std::uint32_t*>(static_cast<__nv_bfloat16*>(o) + i) = Element<__nv_bfloat16>::pack(a, b);
  }
}

}  // namespace banyan::kernels::cuda
