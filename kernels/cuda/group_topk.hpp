// The k best continuations over all rows of one beam, by one group of threads (sample_row.hpp says what a Group is).
// Layer 4, free of CUDA.
//
// Each row's own k likeliest tokens are there already (queries of kind top). Their scores go through a list that holds
// the best so far in front; it is filled up with as many rows as fit and sorted, until no row is left. Order: larger
// score, lower row, lower token.
#pragma once

#include "kernels/cuda/sample_row.hpp"

namespace banyan::kernels::cuda {

// One of the best continuations over all rows of a beam.
struct BeamStep {
  double score = 0;       // cumulative of the row + logprob
  std::int32_t row = -1;  // counted from the group's first
  std::int32_t token = -1;
  float logprob = 0;
  std::int32_t padding = 0;
};

constexpr std::int32_t kMaxBeamK = 1024;
constexpr std::int32_t kBeamList = 4096;

BANYAN_ROW_CODE bool better(const BeamStep& a, const BeamStep& b) {
  if (a.score != b.score) return a.score > b.score;
  return a.row != b.row ? a.row < b.row : a.token < b.token;
}

// A beam's rows, as answered: choices and queries [n_rows], cumulative [n_rows], tops flat as the queries say.
struct BeamRows {
  const RowQuery* queries = nullptr;
  const RowChoice* choices = nullptr;
  const RowTop* tops = nullptr;
  const double* cumulative = nullptr;
  std::int32_t n_rows = 0;
};

// list: [kBeamList] that the group shares. Writes steps [k], best first, and n_steps: how many of them there are (fewer
// than k where fewer tokens are unmasked), or -1 - i if row i is the first bad one (its choice says how).
template <class Group>
BANYAN_ROW_CODE void group_topk(Group g, BeamStep* list, const BeamRows& rows, std::int32_t k, BeamStep* steps,
                                std::int32_t* n_steps) {
  const auto min = [](std::int32_t a, std::int32_t b) { return a < b ? a : b; };
  constexpr double kMasked = -sampling::kInfinity;
  constexpr std::int32_t kLastRow = 0x7fffffff;
  const BeamStep none{kMasked, kLastRow, -1, 0, 0};
  std::int32_t bad = rows.n_rows;
  for (std::int32_t r = g.rank(); r < rows.n_rows; r += g.size()) {
    if (rows.choices[r].status != RowStatus::good) bad = min(bad, r);
  }
  bad = g.reduce(bad, min);
  if (bad < rows.n_rows || rows.n_rows == 0) {
    if (g.rank() == 0) *n_steps = bad < rows.n_rows ? -1 - bad : 0;
    return;
  }

  for (std::int32_t i = g.rank(); i < k; i += g.size()) list[i] = none;
  const std::int32_t per_row = rows.choices[0].n_top;
  for (std::int32_t first = 0; first < rows.n_rows;) {
    const std::int32_t n_rows = min(rows.n_rows - first, (kBeamList - k) / per_row), n_new = n_rows * per_row;
    std::int32_t padded = 2;
    while (padded < k + n_new) padded *= 2;
    for (std::int32_t i = g.rank(); i < padded - k; i += g.size()) {
      const std::int32_t r = first + i / per_row;
      BeamStep step = none;
      if (i < n_new) {
        const RowTop top = rows.tops[rows.queries[r].top_begin + i % per_row];
        const double score = rows.cumulative[r] + static_cast<double>(top.logprob);
        if (score > kMasked) step = {score, r, top.id, top.logprob, 0};
      }
      list[k + i] = step;
    }
    g.sync();
    bitonic_sort(g, list, padded, [](const BeamStep& a, const BeamStep& b) { return better(a, b); });
    first += n_rows;
  }

  std::int32_t n = 0;
  for (std::int32_t i = g.rank(); i < k; i += g.size()) {
    steps[i] = list[i];
    n += list[i].token >= 0;
  }
  n = g.reduce(n, [](std::int32_t a, std::int32_t b) { return a + b; });
  if (g.rank() == 0) *n_steps = n;
}

}  // namespace banyan::kernels::cuda
