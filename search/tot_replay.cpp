#include "banyan/search/tot_replay.hpp"

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "banyan/read_file.hpp"
#include "banyan/search/tot.hpp"

namespace banyan::search {
namespace {

struct Level {
  std::vector<std::string> parents, candidates, selected;
  std::vector<double> values;
};

struct Puzzle {
  std::string id, x;
  std::vector<Level> levels;
};

// Texts of the thoughts below each parent. A candidate is its parent's state and one thought more; the candidates of a
// level stand in the order of their parents.
Search::Proposals proposals_of(const Search& s, const Level& level, const std::vector<ThoughtId>& parents) {
  Search::Proposals proposals(parents.size());
  std::size_t p = 0;
  for (const std::string& candidate : level.candidates) {
    while (p < level.parents.size() && !candidate.starts_with(level.parents[p])) ++p;
    if (p == level.parents.size()) {
      throw Error(ErrorCode::bad_file, s.problem().id(), "candidate \"" + candidate + "\" continues no state");
    }
    if (p >= parents.size()) continue;  // ours has fewer; the selections differ already
    Search::Proposal proposal;
    proposal.text = candidate.substr(level.parents[p].size());
    proposals[p].push_back(std::move(proposal));
  }
  return proposals;
}

Task<Search::Proposals> logged_texts(Search& s, std::vector<ThoughtId> parents, const Puzzle* puzzle) {
  const auto depth = static_cast<std::size_t>(s[parents.at(0)].depth);
  co_return proposals_of(s, puzzle->levels.at(depth), parents);
}

Task<std::vector<double>> logged_values(Search& s, std::vector<ThoughtId> ids, const Puzzle* puzzle) {
  const Level& level = puzzle->levels.at(static_cast<std::size_t>(s[ids.at(0)].depth) - 1);
  std::unordered_map<std::string, double> value_of;  // of the first with that state
  for (std::size_t i = 0; i < level.candidates.size(); ++i) value_of.emplace(level.candidates[i], level.values[i]);
  std::vector<double> values;
  for (const ThoughtId id : ids) values.push_back(value_of.at(s.state(id)));
  co_return values;
}

Puzzle puzzle_of(const nlohmann::json& entry) {
  Puzzle puzzle;
  puzzle.id = "puzzle " + entry.at("idx").dump();
  for (const auto& step : entry.at("steps")) {
    Level level;
    step.at("x").get_to(puzzle.x);
    step.at("ys").get_to(level.parents);
    step.at("new_ys").get_to(level.candidates);
    step.at("values").get_to(level.values);
    step.at("select_new_ys").get_to(level.selected);
    if (level.values.size() != level.candidates.size()) {
      throw Error(ErrorCode::bad_file, puzzle.id,
                  std::to_string(level.values.size()) + " values for " + std::to_string(level.candidates.size()) +
                      " candidates");
    }
    puzzle.levels.push_back(std::move(level));
  }
  return puzzle;
}

void replay(Session& session, const Puzzle& puzzle, std::size_t width, TotReplay& report) {
  TotBfs options;
  options.n_levels = static_cast<std::int64_t>(puzzle.levels.size());
  options.width = width;
  options.generate = [&puzzle](Search& s, std::vector<ThoughtId> parents) {
    return s.propose(std::move(parents), [&puzzle](Search& inner, std::vector<ThoughtId> ids) {
      return logged_texts(inner, std::move(ids), &puzzle);
    });
  };
  options.evaluate.name = "log";
  options.evaluate.values = [&puzzle](Search& s, std::vector<ThoughtId> ids) {
    return logged_values(s, std::move(ids), &puzzle);
  };
  std::vector<std::unique_ptr<Search>> searches;
  options.on_level = [&](std::int64_t i, const std::vector<ThoughtId>& candidates, const std::vector<double>&,
                         const std::vector<ThoughtId>& selected) {
    const Level& level = puzzle.levels[static_cast<std::size_t>(i)];
    std::vector<std::string> states;
    for (const ThoughtId id : selected) states.push_back(searches[0]->state(id));
    ++report.n_selections;
    report.n_selections_equal += states == level.selected;
    report.n_candidates += static_cast<std::int64_t>(candidates.size());
    if (states != level.selected && report.first_difference.empty()) {
      report.first_difference = puzzle.id + ", level " + std::to_string(i);
    }
  };
  searches.push_back(std::make_unique<Search>(session, std::make_shared<PromptProblem>(puzzle.id, Prompt{})));
  const auto results =
      run_searches(session, searches, [&options](Search& s) { return tot_bfs(s, princeton(options)); });
  if (results[0].error) throw Error(*results[0].error);
}

}  // namespace

TotReplay replay_tot_log(const std::string& path,
                         const std::function<bool(std::string_view x, std::string_view state)>& verify) {
  TotReplay report;
  try {
    const auto log = nlohmann::json::parse(read_file(path));
    for (const auto& entry : log) {
      const Puzzle puzzle = puzzle_of(entry);
      std::size_t width = 1;  // the log does not say; every level that had enough candidates shows it
      for (const Level& level : puzzle.levels) width = std::max(width, level.selected.size());
      Session session;  // no lane: nothing is asked of a model
      replay(session, puzzle, width, report);
      ++report.n_puzzles;
      const auto& infos = entry.at("infos");
      for (std::size_t i = 0; verify && i < infos.size(); ++i) {
        const std::string state = entry.at("ys").at(i);
        const bool right = verify(puzzle.x, state);
        const bool logged = infos[i].at("r").get<int>() == 1;
        ++report.n_verdicts;
        report.n_verdicts_equal += right == logged;
        if (right != logged && report.first_difference.empty()) {
          report.first_difference = puzzle.id + ", verdict on \"" + state + "\"";
        }
      }
    }
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorCode::bad_file, path, e.what());
  }
  return report;
}

}  // namespace banyan::search
