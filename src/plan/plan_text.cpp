#include <fmt/format.h>
#include <iterator>

#include "banyan/plan.hpp"

namespace banyan {

std::string to_text(const Plan& plan) {
  fmt::memory_buffer out;
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "plan: {} rows, {} calls, {} runs, {} logit rows, epoch {}\n", plan.n_rows(), plan.calls.size(),
                 plan.runs.size(), plan.logit_rows.size(), plan.epoch);
  std::size_t next_logit = 0;
  for (std::size_t row = 0; row < plan.tokens.size(); ++row) {
    fmt::format_to(to, "row {}: node {} position {} token {}", row, plan.nodes[row].value, plan.positions[row],
                   plan.tokens[row]);
    if (plan.kv_slots[row] >= 0) fmt::format_to(to, " -> slot {}", plan.kv_slots[row]);
    if (next_logit < plan.logit_rows.size() && plan.logit_rows[next_logit] == static_cast<std::int32_t>(row)) {
      fmt::format_to(to, " logits");
      ++next_logit;
    }
    fmt::format_to(to, "\n");
  }
  for (std::size_t c = 0; c < plan.calls.size(); ++c) {
    const AttentionCall& call = plan.calls[c];
    fmt::format_to(to, "call {}: rows [{}, {}) x positions [{}, {}) in slots", c, call.row_begin, call.row_end,
                   call.kv_position, call.kv_position + call.n_keys);
    for (std::int64_t r = call.run_begin; r < call.run_end; ++r) {
      const SlotRun& run = plan.runs[static_cast<std::size_t>(r)];
      fmt::format_to(to, " [{}, {})", run.first, run.first + run.n);
    }
    fmt::format_to(to, "\n");
  }
  return fmt::to_string(out);
}

}  // namespace banyan
