// Two backends side by side: each operation runs on both, on the same inputs, and the first result that differs by
// more than rounding allows is an Error. Layer 4. Knows no model; it calls what ends with the second product that adds
// to the sums a layer, as in a transformer, to say where it is.
//
// All tensors are the checked backend's: what a step gives is what that backend gives. Before an operation its inputs
// are downloaded and made f32, the reference (a host backend) computes from them, and the output is downloaded and
// compared. So errors do not add up from operation to operation, and what is reported is where they begin. The price:
// every tensor crosses the bus, so this is for finding faults, not for speed. Of the KV only the slots that the step
// reads or writes are copied.
//
// Tolerances have the forms that the operations' errors have (check.cpp): the rounding of the output's type, and the
// rounding of f32 sums by the size of what is summed.
#pragma once

#include <memory>

#include "kernels/ops.hpp"

namespace banyan::kernels {

// `reference` computes on host memory, with activations in f32. An operation throws Error{device} naming the layer, the
// operation, the row and both values.
std::unique_ptr<Backend> make_check_backend(std::unique_ptr<Backend> checked, std::unique_ptr<Backend> reference);

}  // namespace banyan::kernels
