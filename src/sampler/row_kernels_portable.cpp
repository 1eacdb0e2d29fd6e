#define BANYAN_ROW_KERNELS portable_kernels
#define BANYAN_ROW_KERNELS_NAME "portable"
#include "sampler/row_kernels.inl"
