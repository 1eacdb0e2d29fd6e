#define BANYAN_ROW_KERNELS avx2_kernels
#define BANYAN_ROW_KERNELS_NAME "avx2"
#include "sampler/row_kernels.inl"
