#include "banyan/search/best_of_n.hpp"

#include <cmath>
#include <limits>

namespace banyan::search {
namespace {

Task<double> ready(double value) { co_return value; }

Task<double> no_value() { co_return std::numeric_limits<double>::quiet_NaN(); }

}  // namespace

Scorer likelihood_sum() {
  return [](Session&, const Thought& t) { return ready(t.cumulative_logprob); };
}

Scorer likelihood_mean() {
  return [](Session&, const Thought& t) {
    return ready(t.tokens.empty() ? 0.0 : t.cumulative_logprob / static_cast<double>(t.tokens.size()));
  };
}

Scorer callback(std::function<double(const Thought&)> value) {
  return [value = std::move(value)](Session&, const Thought& t) { return ready(value(t)); };
}

Task<BestOfNResult> best_of_n(Session& session, Node node, SampleOptions sample, Scorer scorer) {
  BestOfNResult result;
  result.thoughts = co_await session.sample(node, sample);
  std::vector<Task<double>> values;
  for (const Thought& t : result.thoughts) values.push_back(t.error ? no_value() : scorer(session, t));
  result.values = co_await all(std::move(values));
  const auto best = best_of_first(result.values);
  if (best.empty() || std::isnan(result.values[best.back()])) {
    throw Error(ErrorCode::bad_input, "best_of_n",
                "none of the " + std::to_string(result.thoughts.size()) + " samples has a value" +
                    (result.thoughts.empty() || !result.thoughts[0].error
                         ? ""
                         : std::string("; the first: ") + result.thoughts[0].error->what()));
  }
  result.best = best.back();
  co_return result;
}

std::vector<std::size_t> best_of_first(const std::vector<double>& values) {
  std::vector<std::size_t> best;
  best.reserve(values.size());
  std::size_t so_far = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[so_far]) || values[i] > values[so_far]) so_far = i;
    best.push_back(so_far);
  }
  return best;
}

}  // namespace banyan::search
