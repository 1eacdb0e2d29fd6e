#include "kernels/cpu/isa_table.hpp"

namespace banyan::kernels {

extern const IsaOps kIsaAvx2;
constinit const IsaOps kIsaAvx2 = make_table("avx2");

}  // namespace banyan::kernels
