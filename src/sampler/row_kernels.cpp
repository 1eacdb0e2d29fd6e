#include "sampler/row_kernels.hpp"

namespace banyan::sampling {

#ifdef BANYAN_SAMPLER_AVX2
const RowKernels& avx2_kernels();

const RowKernels& best_kernels() { return __builtin_cpu_supports("avx2") ? avx2_kernels() : portable_kernels(); }
#else
const RowKernels& best_kernels() { return portable_kernels(); }
#endif

}  // namespace banyan::sampling
