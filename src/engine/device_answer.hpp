// A step's queries and answers as the device sampler says them. Layer 7, internal; built with CUDA alone.
#pragma once

#include "banyan/runner.hpp"
#include "kernels/cuda/device_sampler.hpp"

namespace banyan::detail {

// Whether the device sampler can answer it: it has no hooks, no rewards, and shorter lists than a vocabulary may want.
bool for_device(const StepQuery& query);

// row: of the logits on the device; row_number: of the plan, for messages. Throws Error{usage} for options out of
// range.
kernels::cuda::SampleQuery to_sample_query(const StepQuery& query, std::int32_t row, std::int64_t row_number);

void to_step_answer(kernels::cuda::SampleResult&& result, StepAnswer& answer);

}  // namespace banyan::detail
