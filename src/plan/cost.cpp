#include <algorithm>

#include "banyan/plan.hpp"

namespace banyan {

namespace {

// What one call moves and computes. A row's first call is charged with its Q and O, any other with a partial.
struct CallCost {
  double bytes = 0;
  double flops = 0;
};

CallCost cost_of(const Plan& plan, const AttentionCall& call, const AttentionShape& shape) {
  std::int64_t n_read = 0;     // keys that some row sees
  std::int64_t n_visible = 0;  // (row, key) pairs
  for (std::int64_t row = call.row_begin; row < call.row_end; ++row) {
    const std::int64_t position = plan.positions[static_cast<std::size_t>(row)];
    const std::int64_t n = std::clamp<std::int64_t>(position + 1 - call.kv_position, 0, call.n_keys);
    n_read = std::max(n_read, n);
    n_visible += n;
  }
  const auto head_dim = static_cast<double>(shape.head_dim);
  const auto n_heads_q = static_cast<double>(shape.n_heads_q);
  const auto n_rows = static_cast<double>(call.row_end - call.row_begin);
  constexpr double kFloatBytes = 4;
  const double kv = 2 * static_cast<double>(n_read) * static_cast<double>(shape.n_heads_kv) * head_dim *
                    static_cast<double>(shape.kv_bytes);
  const double q_and_o = 2 * n_heads_q * head_dim * kFloatBytes;
  const double partial = 2 * n_heads_q * (head_dim + 1) * kFloatBytes;
  const bool is_first = call.kv_position == 0;
  return {kv + n_rows * (is_first ? q_and_o : partial), 4 * head_dim * n_heads_q * static_cast<double>(n_visible)};
}

}  // namespace

PlanCost cost(const Plan& plan, const AttentionShape& shape) {
  PlanCost sum;
  for (const AttentionCall& call : plan.calls) {
    const CallCost c = cost_of(plan, call, shape);
    sum.bytes += c.bytes;
    sum.flops += c.flops;
  }
  sum.n_calls = static_cast<std::int64_t>(plan.calls.size());
  return sum;
}

double predict_us(const Plan& plan, const AttentionShape& shape, const CostModel& model) {
  double us = 0;
  for (const AttentionCall& call : plan.calls) {
    const CallCost c = cost_of(plan, call, shape);
    us += model.call_us + std::max(c.bytes / model.bytes_per_us, c.flops / model.flops_per_us);
  }
  return us;
}

}  // namespace banyan
