// The system calls that a sandboxed program may not make, over and above what namespaces already deny.
#pragma once

#include <string>

namespace banyan::code {

// A BPF program for bubblewrap's --seccomp: no namespaces of its own, no tracing, no kernel keyrings, no BPF, no
// anonymous files beside the ones it is given. Denied calls fail with EPERM. "" on processors without a table.
std::string seccomp_filter();

}  // namespace banyan::code
