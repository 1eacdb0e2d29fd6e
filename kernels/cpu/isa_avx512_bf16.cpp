#include "kernels/cpu/isa_table.hpp"

namespace banyan::kernels {

extern const IsaOps kIsaAvx512Bf16;
constinit const IsaOps kIsaAvx512Bf16 = make_table("avx512-bf16");

}  // namespace banyan::kernels
