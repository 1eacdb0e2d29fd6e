// The likeliest whole texts behind prompts, without repetition: a beam over tokens inside one wish.
#include <algorithm>
#include <cmath>

#include "search_state.hpp"

namespace banyan::search {
namespace {

struct Text {
  Node node;  // behind its last token; empty once it has ended
  std::string bytes;
  double logprob = 0;
  bool ended = false;
  bool grown = false;  // its last token has no KV yet
};

// The texts behind one prompt: at most k, best first; of equals the earlier one.
class Beam {
 public:
  Beam(const Session& session, LaneId lane, const Search::LikeliestOptions& options)
      : runner_(session.runner(lane)), options_(options) {}

  std::vector<Text> texts;

  bool running() const {
    return std::any_of(texts.begin(), texts.end(), [](const Text& t) { return !t.ended; });
  }

  // The best k of what the running texts can become and of those that have ended. Takes the running ones' lists from
  // `next`; returns how many tokens were chosen. The last step's texts need no node.
  std::int64_t grow(Session& session, std::vector<std::vector<TokenLogprob>>::const_iterator& next, bool last) {
    struct Candidate {
      double logprob;
      std::size_t text;
      TokenId token;  // kNoToken: it has ended
    };
    std::vector<Candidate> candidates;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].ended) {
        candidates.push_back({texts[i].logprob, i, kNoToken});
        continue;
      }
      for (const TokenLogprob& t : *next) {
        if (std::isfinite(t.logprob)) candidates.push_back({texts[i].logprob + t.logprob, i, t.id});
      }
      ++next;
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.logprob > b.logprob; });
    if (candidates.size() > static_cast<std::size_t>(options_.k)) {
      candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(options_.k), candidates.end());
    }
    std::int64_t n_chosen = 0;
    std::vector<Text> best;
    for (const Candidate& c : candidates) {
      best.push_back(c.token == kNoToken ? texts[c.text] : with_token(texts[c.text], c.token, c.logprob));
      n_chosen += c.token == kNoToken ? 0 : 1;
      if (!best.back().ended && !last) {
        best.back().node = session.extend(texts[c.text].node, std::span(&c.token, 1));
        best.back().grown = true;
      }
    }
    texts = std::move(best);
    return n_chosen;
  }

 private:
  Text with_token(const Text& from, TokenId token, double logprob) const {
    Text t{{}, from.bytes, logprob, false, false};
    const auto& eos = runner_.eos_ids();
    if (std::find(eos.begin(), eos.end(), token) != eos.end()) {
      t.ended = true;
      return t;
    }
    t.bytes += runner_.tokenizer()->token_bytes(token, false);
    const std::size_t stop_at = options_.stop.empty() ? std::string::npos : t.bytes.find(options_.stop);
    if (stop_at == std::string::npos) return t;
    t.bytes.resize(stop_at + (options_.include_stop ? options_.stop.size() : 0));
    t.ended = true;
    return t;
  }

  const StepRunner& runner_;
  const Search::LikeliestOptions& options_;
};

}  // namespace

// The next tokens of all running texts; nothing where the budget ends, or the wait was interrupted.
Task<std::optional<std::vector<std::vector<TokenLogprob>>>> Search::State::next_of(std::vector<Node> nodes,
                                                                                   std::int64_t n_grown,
                                                                                   std::int64_t k) {
  if (!charge(n_grown)) co_return std::nullopt;
  spent.computed += n_grown;
  std::vector<Task<std::vector<TokenLogprob>>> wishes;
  for (const Node& node : nodes) {
    n_on_paths += node.position();
    spent.on_paths += node.position();
    wishes.push_back(session.next(node, k));
  }
  Wait wait(*this, all(std::move(wishes)));
  co_return co_await wait;
}

Task<std::vector<std::vector<Search::LikelyText>>> Search::likeliest(std::vector<Prompt> prompts,
                                                                     std::vector<ThoughtId> charged,
                                                                     LikeliestOptions options, LaneId lane) {
  State& s = *state_;
  if (options.k < 1 || options.max_tokens < 1) {
    throw Error(ErrorCode::usage, options.k < 1 ? "k" : "max_tokens",
                std::to_string(std::min(options.k, options.max_tokens)) + " must be at least 1");
  }
  std::vector<Beam> beams(prompts.size(), Beam(session(), lane, options));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const State::Draw place = s.prompt_place(prompts[i], lane);
    if (!s.use(place)) break;
    beams[i].texts.push_back({place.node, "", 0, false, false});
  }
  for (std::int64_t step = 0; step < options.max_tokens; ++step) {
    std::vector<Node> nodes;
    std::int64_t n_grown = 0;
    for (const Beam& beam : beams) {
      for (const Text& t : beam.texts) {
        if (t.ended) continue;
        nodes.push_back(t.node);
        n_grown += t.grown ? 1 : 0;
      }
    }
    if (nodes.empty()) break;
    const auto lists = co_await s.next_of(std::move(nodes), n_grown, options.k);
    if (!lists) break;
    auto next = lists->begin();
    for (std::size_t i = 0; i < beams.size(); ++i) {
      if (!beams[i].running()) continue;
      Beam grown = beams[i];
      const std::int64_t n = grown.grow(session(), next, step + 1 == options.max_tokens);
      if (!s.charge_chosen(charged[i], n)) break;
      beams[i].texts = std::move(grown.texts);
    }
    if (s.stop != StopReason::none) break;
  }
  std::vector<std::vector<LikelyText>> texts(prompts.size());
  for (std::size_t i = 0; i < beams.size(); ++i) {
    for (const Text& t : beams[i].texts) {
      if (t.ended) texts[i].push_back({sanitize_utf8(t.bytes), t.logprob});
    }
  }
  co_return texts;
}

bool Search::State::charge_chosen(ThoughtId id, std::int64_t n) {
  if (options.budget.tokens - counters.tokens_generated < n) {
    if (stop == StopReason::none) stop = StopReason::tokens;
    return false;
  }
  counters.tokens_generated += n;
  counters.tokens_chosen += n;
  counters.tokens_spent += n;
  spent.generated += n;
  spent.chosen += n;
  spent.by.emplace_back(id, n);
  at(id).thought.n_spent += n;
  return true;
}

}  // namespace banyan::search
