// Tree of Thoughts on a task of one's own (docs/search.md): reach 24 from a number by the moves +1, *2 and -3.
// Steps come by rule and are judged by a function, so it needs no model: with propose_steps() and value_judge() in
// their place, and a lane in the session, the same search asks one.
#include <banyan/search/proposers.hpp>
#include <banyan/search/scorers.hpp>
#include <banyan/search/tot.hpp>
#include <cstdlib>
#include <iostream>
#include <sstream>

using namespace banyan;
using namespace banyan::search;

class Reach24 : public Problem {
 public:
  explicit Reach24(int start) : start_(start) {}
  std::string id() const override { return "from " + std::to_string(start_); }
  std::vector<std::string> next_steps(std::string_view) const override { return {" +1", " *2", " -3"}; }
  bool finished(std::string_view state, FinishReason) const override { return value(state) == 24; }
  std::optional<double> verify(std::string_view state) const override { return value(state) == 24 ? 1 : 0; }

  int value(std::string_view state) const {
    std::istringstream moves{std::string(state)};
    int value = start_;
    for (std::string move; moves >> move;) value = move == "+1" ? value + 1 : move == "*2" ? value * 2 : value - 3;
    return value;
  }

 private:
  int start_;
};

int main() {
  TotBfs options;
  options.n_levels = 10;
  options.width = 4;
  options.generate = rule_steps();
  options.evaluate = callback([](const Search& s, ThoughtId id) {
    return -std::abs(24 - static_cast<const Reach24&>(s.problem()).value(s.state(id)));
  });

  Session session;
  std::vector<std::unique_ptr<Search>> searches;
  for (const int start : {1, 7, 17, 40}) {
    SearchOptions search;
    search.budget.first_success = true;
    search.budget.thoughts = 100;
    searches.push_back(std::make_unique<Search>(session, std::make_shared<Reach24>(start), search));
  }
  const auto results = run_searches(session, searches, [&](Search& s) { return tot_bfs(s, options); });
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::cout << searches[i]->problem().id() << ":" << results[i].text << (results[i].complete ? " = 24" : " …") << " ("
              << results[i].counters.n_thoughts << " thoughts)\n";
  }
}
