// The fast CPU backend: the kernels of one instruction set (isa.hpp) over a team of threads (base/team.hpp).
//
// It is deterministic always: products, norms and attention give a row the same bits whatever its company and the
// number of threads, because work is only ever cut between elements, never inside one. Hence `deterministic` changes
// nothing here. One backend belongs to one thread; scratch grows to the largest step and stays.
#pragma once

#include <memory>

#include "kernels/cpu/isa.hpp"
#include "kernels/ops.hpp"

namespace banyan::kernels {

// n_threads 0: all that the process may use. make_cpu_backend passes the best table; tests pass each.
std::unique_ptr<Backend> make_fast_backend(const IsaOps& isa, int n_threads);

}  // namespace banyan::kernels
