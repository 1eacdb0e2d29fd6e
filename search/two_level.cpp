#include "banyan/search/two_level.hpp"

namespace banyan::search {
namespace {

// Runs of consecutive sample numbers [first, first + n).
std::vector<std::pair<std::uint64_t, std::int64_t>> runs_of(const std::vector<std::uint64_t>& samples) {
  std::vector<std::pair<std::uint64_t, std::int64_t>> runs;
  for (const std::uint64_t s : samples) {
    if (!runs.empty() && runs.back().first + static_cast<std::uint64_t>(runs.back().second) == s) {
      ++runs.back().second;
    } else {
      runs.emplace_back(s, 1);
    }
  }
  return runs;
}

}  // namespace

Task<TwoLevelResult> two_level(Session& session, std::vector<TwoLevelProblem> problems, TwoLevelOptions options) {
  TwoLevelResult result;
  result.root = options.below;
  if (!result.root && !options.root.empty()) result.root = session.insert(options.root, {}, options.parse_special);

  std::vector<Task<std::vector<Thought>>> draws;
  std::vector<std::size_t> problem_of;  // of each draw
  for (std::size_t p = 0; p < problems.size(); ++p) {
    const TwoLevelProblem& problem = problems[p];
    const auto done = [&result, &options, p](std::size_t, const Thought& thought) {
      ++result.n_samples;
      result.n_failed += thought.error ? 1 : 0;
      if (options.on_sample) options.on_sample(p, thought);
    };
    Node node = problem.node;
    try {
      if (!node) {
        node = result.root ? session.extend(result.root, problem.text, options.parse_special)
                           : session.insert(problem.text, {}, options.parse_special);
      }
    } catch (const Error& e) {  // the text has no tokens: this problem's samples fail, the others go on
      for (const std::uint64_t sample : problem.samples) {
        Thought failed;
        failed.sample = sample;
        failed.finish = FinishReason::error;
        failed.error = e;
        done(0, failed);
      }
    }
    if (options.keep_nodes) result.problems.push_back(node);
    if (!node) continue;
    for (const auto& [first, n] : runs_of(problem.samples)) {
      SampleOptions sample = options.sample;
      sample.n = n;
      sample.first_sample = first;
      sample.stream = hash_stream(problem.id);
      sample.keep_nodes = options.keep_nodes;
      sample.on_done = done;
      draws.push_back(session.sample(node, std::move(sample)));
      problem_of.push_back(p);
    }
  }
  auto drawn = co_await all(std::move(draws));
  if (options.keep_nodes) {
    result.thoughts.resize(problems.size());
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      for (Thought& t : drawn[i]) result.thoughts[problem_of[i]].push_back(std::move(t));
    }
  }
  co_return result;
}

}  // namespace banyan::search
