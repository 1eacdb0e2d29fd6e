// Published logs of the Tree of Thoughts program, run again: tot_bfs with the rules of princeton(), whose proposals and
// values come from the log, must select what the log says was selected. Layer 8.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace banyan::search {

struct TotReplay {
  std::int64_t n_puzzles = 0;
  std::int64_t n_selections = 0, n_selections_equal = 0;  // one a level
  std::int64_t n_candidates = 0;
  std::int64_t n_verdicts = 0, n_verdicts_equal = 0;  // of the final states
  std::string first_difference;                       // empty: none
};

// `path`: JSON as the program writes it: a list of {idx, ys, infos: [{r}], steps: [{step, x, ys, new_ys, values,
// select_new_ys}]}. `verify` (may be empty): whether a final state of the input x is right, to be compared with the
// log's verdicts. Throws Error{bad_file} naming the file and the puzzle.
TotReplay replay_tot_log(const std::string& path,
                         const std::function<bool(std::string_view x, std::string_view state)>& verify = {});

}  // namespace banyan::search
