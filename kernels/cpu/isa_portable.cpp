#include "kernels/cpu/isa_table.hpp"

namespace banyan::kernels {

extern const IsaOps kIsaPortable;
constinit const IsaOps kIsaPortable = make_table("portable");

}  // namespace banyan::kernels
