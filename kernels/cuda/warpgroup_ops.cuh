// The instructions of a Hopper kernel whose warps have roles (sm_90a): mbarriers, named barriers, register counts, and
// wgmma, the matrix product of a *warpgroup* of four warps. Each in one place; knows nothing of attention.
#pragma once

#include "kernels/cuda/tile_ops.cuh"

namespace banyan::kernels::cuda {

// --- shared memory, by address ---------------------------------------------------------------------------------------

__device__ __forceinline__ void store_shared(std::uint32_t address, std::uint32_t x) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}
__device__ __forceinline__ std::uint32_t load_shared(std::uint32_t address) {
  std::uint32_t x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}

// --- barriers in shared memory ---------------------------------------------------------------------------------------

// A barrier at a shared address: it completes a phase when as many arrivals as it was made for have come, and starts
// the next. Phases are told apart by their parity; the first has 0.
__device__ __forceinline__ void make_barrier(std::uint32_t barrier, int n_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(n_arrivals) : "memory");
}
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives when the copies that this thread has started so far are done.
__device__ __forceinline__ void arrive_after_copies(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
// Returns once the phase of that parity is complete.
__device__ __forceinline__ void wait(std::uint32_t barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred complete;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\n"
      "@!complete bra again;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// --- named barriers --------------------------------------------------------------------------------------------------

// Barrier `id` of 1 to 15 (0 is __syncthreads): complete when `n_threads` have arrived, of which some also wait.
__device__ __forceinline__ void named_wait(int id, int n_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int n_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

// Of a warpgroup: from what __launch_bounds__ gave each thread, down or up to this.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// --- wgmma -----------------------------------------------------------------------------------------------------------

// What ordinary stores and copies wrote into shared memory, and this thread knows of, is there for wgmma to read.
__device__ __forceinline__ void fence_for_matrices() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Products are asynchronous. begin; products; commit: a group. Accumulators and left operands in registers are not to
// be touched until wait_products has returned for their group, and pin() tells the compiler so: it orders the uses of
// its registers with the statements around it.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
template <int kN>
__device__ __forceinline__ void pin(float (&x)[kN][4]) {
#pragma unroll
  for (int n = 0; n < kN; ++n) asm volatile("" : "+f"(x[n][0]), "+f"(x[n][1]), "+f"(x[n][2]), "+f"(x[n][3])::"memory");
}
template <int kN>
__device__ __forceinline__ void pin(std::uint32_t (&x)[kN][4]) {
#pragma unroll
  for (int n = 0; n < kN; ++n) asm volatile("" : "+r"(x[n][0]), "+r"(x[n][1]), "+r"(x[n][2]), "+r"(x[n][3])::"memory");
}

// A matrix of 16-bit elements in shared memory, in panels of 64 columns: rows of 128 bytes, eight of which are a block
// of 1,024 bytes (aligned so), their 16-byte vectors swizzled: vector v of row r stands at v ^ (r % 8).
constexpr int kPanelRowBytes = 128;
__device__ __forceinline__ int panel_place(int row, int vector) {
  return row * kPanelRowBytes + (vector ^ (row % 8)) * 16;
}

// The place of the same vector n_rows below, where adding n_rows to the row carries into no set bit of row % 8.
__device__ __forceinline__ std::uint32_t panel_place_below(std::uint32_t place, int n_rows) {
  return (place ^ n_rows % 8 * 16) + n_rows * kPanelRowBytes;
}

// The descriptor of such a matrix. Its low word is an address / 16, to which bytes / 16 may be added.
//   panel_bytes  from one panel to the next; matters where the columns are the operand's M or N, and not its K.
__device__ __forceinline__ std::uint64_t describe_matrix(std::uint32_t address, int panel_bytes) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kBlockStride = std::uint64_t{1024 / 16} << 32;
  return kSwizzle128 | kBlockStride | static_cast<std::uint64_t>(panel_bytes / 16) << 16 | (address & 0x3ffff) / 16;
}

// d [64, 8 kN] f32 (+)= a [64, 16] b [16, 8 kN], all of a warpgroup. Each warp has 16 rows of d, laid out as mma.sync
// lays them out.
//   multiply      a and b in shared memory, both with K along their columns; d counts as 0 where `add` is 0
//   multiply_add  a in registers as mma.sync has it, b with K along its rows
template <class T, int kN>
struct WarpgroupProduct;

#define BANYAN_REGISTERS_64                                                 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define BANYAN_ACCUMULATORS_64                                                                             \
  BANYAN_FLOATS(d, 0), BANYAN_FLOATS(d, 1), BANYAN_FLOATS(d, 2), BANYAN_FLOATS(d, 3), BANYAN_FLOATS(d, 4), \
      BANYAN_FLOATS(d, 5), BANYAN_FLOATS(d, 6), BANYAN_FLOATS(d, 7)
#define BANYAN_REGISTERS_128                                                         \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "          \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define BANYAN_ACCUMULATORS_128                                                                                     \
  BANYAN_FLOATS(d, 0), BANYAN_FLOATS(d, 1), BANYAN_FLOATS(d, 2), BANYAN_FLOATS(d, 3), BANYAN_FLOATS(d, 4),          \
      BANYAN_FLOATS(d, 5), BANYAN_FLOATS(d, 6), BANYAN_FLOATS(d, 7), BANYAN_FLOATS(d, 8), BANYAN_FLOATS(d, 9),      \
      BANYAN_FLOATS(d, 10), BANYAN_FLOATS(d, 11), BANYAN_FLOATS(d, 12), BANYAN_FLOATS(d, 13), BANYAN_FLOATS(d, 14), \
      BANYAN_FLOATS(d, 15)
#define BANYAN_REGISTERS_256                                                                     \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                      \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}"
#define BANYAN_ACCUMULATORS_256                                                                                     \
  BANYAN_FLOATS(d, 0), BANYAN_FLOATS(d, 1), BANYAN_FLOATS(d, 2), BANYAN_FLOATS(d, 3), BANYAN_FLOATS(d, 4),          \
      BANYAN_FLOATS(d, 5), BANYAN_FLOATS(d, 6), BANYAN_FLOATS(d, 7), BANYAN_FLOATS(d, 8), BANYAN_FLOATS(d, 9),      \
      BANYAN_FLOATS(d, 10), BANYAN_FLOATS(d, 11), BANYAN_FLOATS(d, 12), BANYAN_FLOATS(d, 13), BANYAN_FLOATS(d, 14), \
      BANYAN_FLOATS(d, 15), BANYAN_FLOATS(d, 16), BANYAN_FLOATS(d, 17), BANYAN_FLOATS(d, 18), BANYAN_FLOATS(d, 19), \
      BANYAN_FLOATS(d, 20), BANYAN_FLOATS(d, 21), BANYAN_FLOATS(d, 22), BANYAN_FLOATS(d, 23), BANYAN_FLOATS(d, 24), \
      BANYAN_FLOATS(d, 25), BANYAN_FLOATS(d, 26), BANYAN_FLOATS(d, 27), BANYAN_FLOATS(d, 28), BANYAN_FLOATS(d, 29), \
      BANYAN_FLOATS(d, 30), BANYAN_FLOATS(d, 31)
#define BANYAN_FLOATS(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define BANYAN_PRODUCT(T, type, N, a0, a1, a2, a3, a4)                                                                 \
  template <>                                                                                                          \
  struct WarpgroupProduct<T, N / 8> {                                                                                  \
    static __device__ __forceinline__ void multiply(float (&d)[N / 8][4], std::uint64_t a, std::uint64_t b, int add) { \
      asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " a2                                                          \
                   ", 0;\n"                                                                                            \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " " BANYAN_REGISTERS_##N            \
                   ", " a0 ", " a1 ", add, 1, 1, 0, 0;\n}"                                                             \
                   : BANYAN_ACCUMULATORS_##N                                                                           \
                   : "l"(a), "l"(b), "r"(add));                                                                        \
    }                                                                                                                  \
    static __device__ __forceinline__ void multiply_add(float (&d)[N / 8][4], const std::uint32_t (&a)[4],             \
                                                        std::uint64_t b) {                                             \
      asm volatile(                                                                                                    \
          "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"                                                               \
          "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " " BANYAN_REGISTERS_##N                     \
          ", {" a0 ", " a1 ", " a2 ", " a3 "}, " a4 ", add, 1, 1, 1;\n}"                                               \
          : BANYAN_ACCUMULATORS_##N                                                                                    \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                       \
    }                                                                                                                  \
  };

BANYAN_PRODUCT(__nv_bfloat16, "bf16", 64, "%32", "%33", "%34", "%35", "%36")
BANYAN_PRODUCT(__half, "f16", 64, "%32", "%33", "%34", "%35", "%36")
BANYAN_PRODUCT(__nv_bfloat16, "bf16", 128, "%64", "%65", "%66", "%67", "%68")
BANYAN_PRODUCT(__half, "f16", 128, "%64", "%65", "%66", "%67", "%68")
BANYAN_PRODUCT(__nv_bfloat16, "bf16", 256, "%128", "%129", "%130", "%131", "%132")
BANYAN_PRODUCT(__half, "f16", 256, "%128", "%129", "%130", "%131", "%132")

#undef BANYAN_PRODUCT
#undef BANYAN_FLOATS
#undef BANYAN_REGISTERS_64
#undef BANYAN_ACCUMULATORS_64
#undef BANYAN_REGISTERS_128
#undef BANYAN_ACCUMULATORS_128
#undef BANYAN_REGISTERS_256
#undef BANYAN_ACCUMULATORS_256

}  // namespace banyan::kernels::cuda
