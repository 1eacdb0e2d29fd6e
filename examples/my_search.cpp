// Write your own search (docs/tutorial-search.md): a beam search, run over several problems at once.
#include <banyan/session.hpp>
#include <cmath>
#include <iostream>
#include <map>
using namespace banyan;

// The game: make the target from a start by these moves. A path is: target, start, move, move, …
constexpr const char* kMoves[] = {"+1", "*2", "-3"};
constexpr TokenId kNumber = 3;  // tokens 0, 1, 2 are the moves, kNumber + v is the number v

int distance(std::span<const TokenId> path) {
  int value = path[1] - kNumber;
  for (const TokenId move : path.subspan(2)) value = move == 0 ? value + 1 : move == 1 ? value * 2 : value - 3;
  return std::abs(value - (path[0] - kNumber));
}

ScriptedModel game() {
  ScriptedModel model;
  model.vocab_size = kNumber + 100;
  model.logits = [](std::span<const TokenId>, std::span<float> logits) {  // each move is as likely as any other
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = i < kNumber ? 0.0F : -INFINITY;
  };
  model.reward = [](std::span<const TokenId> path) { return -distance(path); };
  return model;
}

Task<Node> beam_search(Session& session, Node problem, std::size_t width, int depth) {
  std::vector<Node> frontier{problem};
  while (depth-- > 0 && distance(frontier[0].path()) > 0) {
    const auto thoughts = co_await session.sample(frontier, {.n = 6, .max_tokens = 1});
    std::vector<Task<double>> rewards;
    for (const Thought& thought : thoughts) rewards.push_back(session.reward(thought.node));
    const auto values = co_await all(std::move(rewards));
    // By value, and each path once: two samples of one node may be the same move.
    std::map<std::pair<double, std::vector<TokenId>>, Node, std::greater<>> ranked;
    for (std::size_t i = 0; i < values.size(); ++i) ranked[{values[i], thoughts[i].node.path()}] = thoughts[i].node;
    frontier.clear();
    for (const auto& [key, node] : ranked) {
      if (frontier.size() < width) frontier.push_back(node);
    }
  }  // here the last handles of all other thoughts go, and with them their nodes and KV
  co_return frontier[0];
}

int main() {
  Session session;
  session.add_lane(make_scripted_runner(game()));
  const Node target = session.insert(std::vector{kNumber + 24});
  std::vector<Task<Node>> searches;
  for (const TokenId start : {1, 7, 17, 40}) {
    const Node problem = session.extend(target, std::vector{kNumber + start});
    searches.push_back(beam_search(session, problem, /*width=*/4, /*depth=*/12));
  }
  for (const Node& found : session.run(all(std::move(searches)))) {
    const auto path = found.path();
    std::cout << path[1] - kNumber;
    for (const TokenId move : std::span(path).subspan(2)) std::cout << " " << kMoves[move];
    std::cout << (distance(path) == 0 ? " = 24\n" : ": not found\n");
  }
  std::cout << session.stats().n_generated << " moves drawn in " << session.stats().n_steps << " steps\n";
}
