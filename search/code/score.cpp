#include "banyan/code/score.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>

#include "banyan/tokenizer.hpp"

namespace banyan::code {

namespace {

// All scored samples of one problem, in the order of their ids.
struct Scored {
  const CodeProblem* problem = nullptr;
  std::vector<const SampleResult*> samples;

  std::int64_t n() const { return static_cast<std::int64_t>(samples.size()); }
  std::int64_t n_accepted(Verdict SampleResult::*verdict) const {
    return std::ranges::count_if(samples, [&](const SampleResult* s) { return s->*verdict == Verdict::accepted; });
  }
};

// Mean of f over the problems; absent if there is none, or f is absent for one.
std::optional<double> mean_over(std::span<const Scored* const> problems, const auto& f) {
  if (problems.empty()) return std::nullopt;
  double sum = 0;
  for (const Scored* problem : problems) {
    const std::optional<double> value = f(*problem);
    if (!value) return std::nullopt;
    sum += *value;
  }
  return sum / static_cast<double>(problems.size());
}

double tests_share(const Scored& problem) {
  double sum = 0;
  for (const SampleResult* s : problem.samples)
    sum += static_cast<double>(s->tests_passed) / static_cast<double>(std::max<std::int64_t>(s->n_tests, 1));
  return sum / static_cast<double>(problem.n());
}

// Whether one of the n programs handed in for the first k samples is right.
bool solved_with(const Scored& problem, std::int64_t n, std::int64_t k) {
  std::vector<std::vector<const SampleResult*>> groups;
  std::unordered_map<std::string, std::size_t> group_of;
  for (std::int64_t i = 0; i < k; ++i) {
    const SampleResult* sample = problem.samples[static_cast<std::size_t>(i)];
    if (!sample->public_passed.value_or(false)) continue;
    const auto [entry, is_new] = group_of.try_emplace(sample->output_group, groups.size());
    if (is_new) groups.emplace_back();
    groups[entry->second].push_back(sample);
  }
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::int64_t n_taken = 0;
  for (std::size_t turn = 0; !groups.empty() && turn < groups.front().size(); ++turn)
    for (const auto& group : groups) {
      if (turn >= group.size()) continue;
      if (n_taken++ >= n) return false;
      if (group[turn]->verdict == Verdict::accepted) return true;
    }
  return false;
}

NAtK n_at_k(std::span<const Scored* const> problems, std::int64_t n, std::int64_t k) {
  NAtK result{n, k, std::nullopt, 0};
  std::int64_t n_solved = 0;
  for (const Scored* problem : problems) {
    const bool has_public = problem->n() > 0 && problem->samples.front()->public_passed.has_value();
    if (!has_public || problem->n() < k) continue;
    ++result.n_problems;
    n_solved += solved_with(*problem, n, k);
  }
  if (result.n_problems > 0) result.value = static_cast<double>(n_solved) / static_cast<double>(result.n_problems);
  return result;
}

ScoreGroup score_group(std::string name, std::span<const Scored* const> problems, std::span<const std::int64_t> ks,
                       std::span<const std::int64_t> ns) {
  ScoreGroup group;
  group.name = std::move(name);
  group.n_problems = static_cast<std::int64_t>(problems.size());
  for (const Scored* problem : problems) {
    group.n_samples += problem->n();
    group.n_solved += problem->n_accepted(&SampleResult::verdict) > 0;
  }
  const auto pass = [&](std::int64_t k, Verdict SampleResult::*verdict) {
    return mean_over(problems, [&](const Scored& p) { return pass_at_k(p.n(), p.n_accepted(verdict), k); });
  };
  group.strict_accuracy = pass(1, &SampleResult::verdict);
  group.test_case_average = mean_over(problems, [](const Scored& p) { return std::optional(tests_share(p)); });
  for (const std::int64_t k : ks) {
    group.pass_at_k.push_back({k, pass(k, &SampleResult::verdict), pass(k, &SampleResult::verdict_strict)});
    for (const std::int64_t n : ns)
      if (n <= k) group.n_at_k.push_back(n_at_k(problems, n, k));
  }
  return group;
}

nlohmann::ordered_json or_null(std::optional<double> value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json group_json(const ScoreGroup& group) {
  nlohmann::ordered_json object, pass = nlohmann::ordered_json::object(), pass_strict = pass;
  object["n_problems"] = group.n_problems;
  object["n_samples"] = group.n_samples;
  object["n_unscored"] = group.n_unscored;
  object["n_solved"] = group.n_solved;
  for (const PassAtK& p : group.pass_at_k) {
    pass[std::to_string(p.k)] = or_null(p.value);
    pass_strict[std::to_string(p.k)] = or_null(p.value_strict);
  }
  object["pass_at_k"] = pass;
  object["pass_at_k_strict_comparator"] = pass_strict;
  object["strict_accuracy"] = or_null(group.strict_accuracy);
  object["test_case_average"] = or_null(group.test_case_average);
  object["n_at_k"] = nlohmann::ordered_json::array();
  for (const NAtK& entry : group.n_at_k)
    object["n_at_k"].push_back(
        {{"n", entry.n}, {"k", entry.k}, {"value", or_null(entry.value)}, {"n_problems", entry.n_problems}});
  return object;
}

}  // namespace

std::optional<double> pass_at_k(std::int64_t n, std::int64_t c, std::int64_t k) {
  if (k < 1 || n < k || c < 0 || c > n) return std::nullopt;
  if (n - c < k) return 1.0;
  // C(n-c, k) / C(n, k) is a product of c factors, or of k; the shorter one.
  double none_right = 1;
  if (c <= k)
    for (std::int64_t i = n - c + 1; i <= n; ++i) none_right *= 1 - static_cast<double>(k) / static_cast<double>(i);
  else
    for (std::int64_t i = n - k + 1; i <= n; ++i) none_right *= 1 - static_cast<double>(c) / static_cast<double>(i);
  return 1 - none_right;
}

std::vector<ScoreGroup> score(std::span<const SampleResult> results, std::span<const CodeProblem> problems,
                              std::span<const std::int64_t> ks, std::span<const std::int64_t> ns) {
  std::unordered_map<std::string, std::size_t> index;
  std::vector<Scored> scored(problems.size());
  for (std::size_t i = 0; i < problems.size(); ++i) {
    index[problems[i].task_id] = i;
    scored[i].problem = &problems[i];
  }
  std::map<std::string, std::int64_t> n_unscored;
  const auto groups_of = [](const CodeProblem& problem) {
    std::vector<std::string> names = {"all", "kind:" + std::string(to_string(problem.kind))};
    if (!problem.difficulty.empty()) names.push_back("difficulty:" + problem.difficulty);
    return names;
  };
  for (const SampleResult& result : results) {
    const auto at = index.find(result.task_id);
    if (at == index.end()) continue;
    if (result.verdict != Verdict::unscored)
      scored[at->second].samples.push_back(&result);
    else
      for (const std::string& name : groups_of(problems[at->second])) ++n_unscored[name];
  }
  std::map<std::string, std::vector<const Scored*>> members;
  members["all"];
  for (const auto& [name, n] : n_unscored) members[name];
  for (Scored& problem : scored) {
    if (problem.samples.empty()) continue;
    std::ranges::sort(problem.samples, {}, &SampleResult::sample_id);
    for (const std::string& name : groups_of(*problem.problem)) members[name].push_back(&problem);
  }
  std::vector<ScoreGroup> groups;
  for (const auto& [name, list] : members) {
    groups.push_back(score_group(name, list, ks, ns));
    groups.back().n_unscored = n_unscored[name];
  }
  return groups;
}

std::string to_json(std::span<const ScoreGroup> groups) {
  nlohmann::ordered_json object;
  object["all"] = object["difficulty"] = object["kind"] = nlohmann::ordered_json::object();
  for (const ScoreGroup& group : groups) {
    const std::size_t colon = group.name.find(':');
    if (colon == std::string::npos)
      object[group.name] = group_json(group);
    else
      object[group.name.substr(0, colon)][sanitize_utf8(group.name.substr(colon + 1))] = group_json(group);
  }
  return object.dump();
}

}  // namespace banyan::code
