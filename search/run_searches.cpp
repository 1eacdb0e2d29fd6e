#include "banyan/search/search.hpp"

namespace banyan::search {
namespace {

// A coroutine of its own holds the driver's, so that the caller's function object may go.
Task<bool> drive(Search& search, Driver driver) {
  co_await driver(search);
  co_return true;
}

}  // namespace

std::vector<SearchResult> run_searches(Session& session, std::span<const std::unique_ptr<Search>> searches,
                                       const Driver& driver) {
  std::vector<std::optional<Job<bool>>> jobs;
  for (const auto& search : searches) jobs.emplace_back(session.start(drive(*search, driver)));
  std::size_t n_open = jobs.size();
  const auto end = [&](std::size_t i) {
    const std::int64_t n_drawn = jobs[i]->n_tokens();
    std::optional<Error> error;
    try {
      if (jobs[i]->done() || searches[i]->result().stop == StopReason::none) jobs[i]->result();
    } catch (const Error& e) {
      error = e;
    } catch (const std::exception& e) {  // a scorer or a problem of the caller's
      error = Error(ErrorCode::bad_input, searches[i]->problem().id(), e.what());
    }
    jobs[i].reset();  // an open wish is withdrawn
    --n_open;
    searches[i]->end(std::move(error), n_drawn);
  };
  bool more = true;
  while (n_open > 0) {
    if (more) more = session.step();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      if (!jobs[i]) continue;
      const bool out_of_time = !jobs[i]->done() && searches[i]->out_of_time();
      // Its open wish ends, and the driver comes to its end; if it waits for something else, it is cancelled.
      if (out_of_time) searches[i]->stop(StopReason::wall_time);
      if (jobs[i]->done() || out_of_time || !more) end(i);
    }
  }
  std::vector<SearchResult> results;
  for (const auto& search : searches) results.push_back(search->result());
  return results;
}

}  // namespace banyan::search
