// Scores from verdicts: pure functions. Layer 8.
//
// A number that cannot be computed (k larger than the samples of a problem, no scored problem) is absent, and null in
// JSON; it is never 0 or 1 by default, and there is no NaN anywhere. Unscored samples count nowhere but in n_unscored.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "banyan/code/evaluate.hpp"

namespace banyan::code {

// The unbiased estimate of the chance that one of k samples is right, from c right ones of n (Chen et al., arXiv
// 2107.03374). Absent unless n >= k >= 1 and n >= c >= 0. No factorial is formed, so nothing overflows.
std::optional<double> pass_at_k(std::int64_t n, std::int64_t c, std::int64_t k);

struct PassAtK {
  std::int64_t k = 0;
  std::optional<double> value;         // mean over problems; absent unless every problem has n >= k
  std::optional<double> value_strict;  // with the comparator `strict`
};

// AlphaCode's way of handing in n of k programs (Li et al., arXiv 2203.07814, §4.5-4.6): of the first k samples those
// that pass the public tests are grouped by their outputs on all test inputs; one is taken from each group in turn,
// largest group first (ties: the group whose first sample is first), until n are taken. Solved if one of them is right.
// Over the problems that have public tests and at least k samples; absent if there is none.
struct NAtK {
  std::int64_t n = 0, k = 0;
  std::optional<double> value;
  std::int64_t n_problems = 0;
};

struct ScoreGroup {
  std::string name;  // "all", "difficulty:…", "kind:…"
  std::int64_t n_problems = 0, n_samples = 0, n_unscored = 0;
  std::int64_t n_solved = 0;                // problems with at least one right sample
  std::optional<double> strict_accuracy;    // APPS: share of samples that pass every test, mean over problems
  std::optional<double> test_case_average;  // APPS: share of tests passed, mean over samples, then over problems
  std::vector<PassAtK> pass_at_k;
  std::vector<NAtK> n_at_k;
};

// Groups "all", then one for each difficulty and each kind that occurs. `ns` and `ks` as the user gave them.
std::vector<ScoreGroup> score(std::span<const SampleResult> results, std::span<const CodeProblem> problems,
                              std::span<const std::int64_t> ks, std::span<const std::int64_t> ns = {});

// A JSON object {"all": {…}, "difficulty": {NAME: {…}}, "kind": {NAME: {…}}}; keys of pass_at_k are the ks.
std::string to_json(std::span<const ScoreGroup> groups);

}  // namespace banyan::code
