// A scripted world for tests of drivers: letters are tokens, and a model of hashes instead of weights.
//
// An answer is four steps of two letters a … d, each ended by ';' ("ab;cc;da;bb;"), behind the prompt "P<id>:". Behind
// "G…?" the model proposes steps ("ab;,cd;,…."), behind "V…=" it judges with a digit, behind "W…=" it names a number.
// Everything it says is a function of seed and path.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "banyan/runner.hpp"
#include "banyan/search/search.hpp"

namespace banyan::test {

// Text "ab" is the tokens of 'a' and 'b'.
class LetterTokenizer final : public Tokenizer {
 public:
  LetterTokenizer()
      : Tokenizer([] {
          TokenizerSpec spec;
          for (int i = 0; i < 128; ++i) spec.pieces.emplace_back(1, static_cast<char>(i));
          spec.kinds.assign(128, TokenKind::normal);
          return spec;
        }()) {}
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& /*options*/) const override {
    return {text.begin(), text.end()};
  }
  std::string token_bytes(TokenId id, bool /*first*/, bool /*with_special*/) const override {
    return spec_.pieces[static_cast<std::size_t>(id)];
  }
};

constexpr TokenId kToyEos = 3;
constexpr int kToySteps = 4;

inline std::uint64_t toy_hash(std::string_view text) { return hash_stream(text) * 0x9e3779b97f4a7c15u >> 20; }

inline void toy_logits(std::span<const TokenId> path, std::span<float> logits) {
  std::fill(logits.begin(), logits.end(), -INFINITY);
  const std::string text(path.begin(), path.end());
  const auto one = [&](int c) { logits[static_cast<std::size_t>(c)] = 0; };
  const auto among = [&](char first, int n) {  // skewed by the path
    for (int i = 0; i < n; ++i) {
      logits[static_cast<std::size_t>(first + i)] = static_cast<float>(toy_hash(text + static_cast<char>(i)) % 64) / 32;
    }
  };
  const std::size_t mode = text.find_last_of("PGVW");
  const std::size_t start = text.find_last_of(":?=");
  const std::string said = text.substr(start + 1);
  switch (text[mode]) {
    case 'P': {
      const auto n_steps = std::count(said.begin(), said.end(), ';');
      const std::size_t n_letters = said.size() - (said.rfind(';') == std::string::npos ? 0 : said.rfind(';') + 1);
      n_steps == kToySteps ? one(kToyEos) : n_letters == 2 ? one(';') : among('a', 4);
      break;
    }
    case 'G': {  // "ab;" three times, then '.'
      const std::size_t n = said.size();
      n == 9 ? one('.') : n % 3 == 2 ? one(';') : among('a', 4);
      break;
    }
    default: said.empty() ? among('0', 10) : one('.');
  }
}

inline double toy_reward(std::string_view state) { return static_cast<double>(toy_hash(state) % 1000) / 1000; }

inline ScriptedModel toy_model(std::int64_t n_kv_slots = 1 << 20) {
  ScriptedModel m;
  m.vocab_size = 128;
  m.tokenizer = std::make_shared<LetterTokenizer>();
  m.logits = toy_logits;
  m.reward = [](std::span<const TokenId> path) { return toy_reward(std::string(path.begin(), path.end())); };
  m.eos_ids = {kToyEos};
  m.n_kv_slots = n_kv_slots;
  return m;
}

class ToyProblem : public search::Problem {
 public:
  explicit ToyProblem(std::string name) : name_(std::move(name)) {}
  std::string id() const override { return "toy/" + name_; }
  search::Prompt prompt() const override { return {"answer in steps ", "P" + name_ + ":"}; }
  search::Prompt propose_prompt(std::string_view state) const override {
    return {"next steps ", "G" + name_ + ":" + std::string(state) + "?"};
  }
  std::vector<std::string> parse_proposals(std::string_view, std::string_view output) const override {
    std::vector<std::string> steps;
    for (std::size_t i = 0; i + 3 <= output.size(); i += 3) steps.emplace_back(output.substr(i, 3));
    return steps;
  }
  std::vector<std::string> next_steps(std::string_view) const override { return {"aa;", "bc;", "dd;"}; }
  search::Prompt value_prompt(std::string_view state) const override {
    return {"how good ", "V" + name_ + ":" + std::string(state) + "="};
  }
  double parse_value(std::string_view, std::string_view output) const override {
    return output.empty() ? 0 : output[0] - '0';
  }
  std::vector<Choice> value_choices() const override { return {{"0", 0}, {"9", 1}}; }
  search::Prompt vote_prompt(std::span<const std::string> states) const override {
    std::string all;
    for (const std::string& s : states) all += s + "|";
    return {"which one ", "W" + name_ + ":" + all + "="};
  }
  std::optional<std::size_t> parse_vote(std::string_view output, std::size_t n) const override {
    if (output.empty()) return std::nullopt;
    return static_cast<std::size_t>(output[0] - '0') % n;
  }
  search::Prompt revise_prompt(std::span<const std::string> answers) const override {
    std::string all;
    for (const std::string& a : answers) all += a + "/";
    return {"better than ", "P" + name_ + "/" + all + ":"};
  }
  bool finished(std::string_view state, FinishReason) const override {
    return std::count(state.begin(), state.end(), ';') >= kToySteps;
  }
  std::optional<std::string> answer(std::string_view state) const override {
    return std::string(1, static_cast<char>('0' + toy_hash(state) % 4));  // few, so that votes coincide
  }
  std::optional<double> verify(std::string_view state) const override {
    return finished(state, FinishReason::stop) && toy_hash(state) % 8 == 0 ? 1.0 : 0.0;
  }

 private:
  std::string name_;
};

// One step, and a whole answer.
inline SampleOptions toy_step() {
  SampleOptions o;
  o.max_tokens = 6;
  o.stop = {";"};
  o.include_stop = true;
  return o;
}
inline SampleOptions toy_answer() {
  SampleOptions o;
  o.max_tokens = 20;
  return o;
}
inline SampleOptions toy_judgement(std::int64_t n) {
  SampleOptions o;
  o.n = n;
  o.max_tokens = 3;
  o.stop = {"."};
  return o;
}

}  // namespace banyan::test
