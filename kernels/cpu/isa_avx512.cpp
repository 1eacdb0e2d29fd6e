#include "kernels/cpu/isa_table.hpp"

namespace banyan::kernels {

extern const IsaOps kIsaAvx512;
constinit const IsaOps kIsaAvx512 = make_table("avx512");

}  // namespace banyan::kernels
