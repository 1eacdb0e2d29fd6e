// The plain CPU backend: every operation as its definition reads, f32, one thread, no vector code. It is the oracle of
// the fast one, and what to read first to know what an operation means.
#pragma once

#include <memory>

#include "kernels/ops.hpp"

namespace banyan::kernels {

std::unique_ptr<Backend> make_reference_backend();

}  // namespace banyan::kernels
