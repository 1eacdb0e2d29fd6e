// From one row of logits to a token. Layer 6: knows neither tree nor session.
//
// Order: penalties, temperature, top-k, top-p, min-p (as Hugging Face and vLLM). Top-p works on the softmax of what
// top-k left, min-p on what is left then, relative to the likeliest token, which every filter keeps. temperature 0 is
// greedy. Among equals the lower id comes first, everywhere: greedy, top-k (exactly k are kept), the border of top-p.
// Log-probabilities are of the unfiltered distribution, before penalties and temperature, natural log.
//
// A draw is the same bits on every machine and with any company: it depends on the logits, options, history and stream
// key alone. (Log-probabilities go through the C library's log, whose last bit may differ between machines.)
//
// Logits: -inf is a legal mask; NaN and +inf anywhere, or nothing but -inf, are Error{bad_logits}, found before
// anything is drawn; the sampler can go on with the next row. At most 2^19 tokens. Threads: one Sampler per thread; the
// free functions may be called from any.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "banyan/types.hpp"

namespace banyan {

struct SamplerOptions {
  double temperature = 1.0;         // >= 0; below 1e-5 it is greedy
  std::int64_t top_k = 0;           // 0 and -1: off
  double top_p = 1.0;               // [0, 1]; 0 keeps the likeliest token alone
  double min_p = 0.0;               // [0, 1]; keeps tokens with p >= min_p * p_max
  double repetition_penalty = 1.0;  // [1e-4, 1e4]; divides positive, multiplies negative logits of tokens on the path
  double presence_penalty = 0.0;    // [-1e4, 1e4]; subtracted once per distinct generated token
  double frequency_penalty = 0.0;   // [-1e4, 1e4]; subtracted per occurrence of a generated token
  friend bool operator==(const SamplerOptions&, const SamplerOptions&) = default;
};

// Throws Error{usage} that names the option and its value, for values out of range or not finite.
void validate(const SamplerOptions& options);

// The random stream of a token: a counter-based generator (Philox 4x32-10) keyed by these four alone, so a sample does
// not depend on its company.
struct StreamKey {
  std::uint64_t seed = 0;
  std::uint64_t prompt = 0;    // which prompt or problem
  std::uint64_t sample = 0;    // which sample of it
  std::uint64_t position = 0;  // path position of the token that is drawn
};
double uniform01(const StreamKey& key);            // [0, 1), 53 bits
std::uint64_t hash_stream(std::string_view text);  // stable 64-bit id of a prompt by name (FNV-1a)

struct TokenLogprob {
  TokenId id = kNoToken;
  float logprob = 0;
  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

struct Choice {
  TokenId token = kNoToken;
  float logprob = 0;              // of the token, unfiltered
  std::vector<TokenLogprob> top;  // the n_top likeliest, best first, ties by id
};

// One of the best continuations over all rows of a beam.
struct Continuation {
  double score = 0;      // cumulative score of the row + logprob
  std::int64_t row = 0;  // of the beam
  TokenId token = kNoToken;
  float logprob = 0;
  friend bool operator==(const Continuation&, const Continuation&) = default;
};

// History for the penalties: the tokens before the one that is drawn.
struct TokenHistory {
  std::span<const TokenId> prompt;     // repetition_penalty sees prompt and generated
  std::span<const TokenId> generated;  // presence and frequency see these alone
};

// Scratch memory of one thread; a draw allocates nothing once it has seen the vocabulary size (and n_top).
// All throw Error{bad_logits} for a bad row (see above) with the number `row`, which serves the message only, and
// Error{usage} for arguments out of range. A moved-from Sampler may only be assigned to or destroyed.
class Sampler {
 public:
  Sampler();
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  // Makes room for rows of this size at once, where the first draw would.
  void reserve(std::int64_t vocab_size);

  // Draws from logits [vocab_size]: the first token in id order whose cumulative probability exceeds uniform01(key).
  // Throws Error{bad_input} for a token of the history outside the vocabulary, if a penalty is on.
  void draw(std::span<const float> logits, const SamplerOptions& options, const StreamKey& key,
            const TokenHistory& history, std::int64_t n_top, std::int64_t row, Choice& out);
  // The k likeliest (all, if there are fewer) by unfiltered log-probability, best first, ties by id.
  void top(std::span<const float> logits, std::int64_t k, std::int64_t row, std::vector<TokenLogprob>& out);
  // The k best continuations over all rows of one beam, logits [cumulative.size(), vocab_size]: best score first, ties
  // by row, then token; fewer than k where fewer tokens are unmasked. Row r is named first_row + r in messages.
  void group_topk(std::span<const float> logits, std::span<const double> cumulative, std::int64_t k,
                  std::int64_t first_row, std::vector<Continuation>& out);
  // Unfiltered log-probability of one token.
  float logprob(std::span<const float> logits, TokenId token, std::int64_t row);
  // The probabilities that draw() draws from, [vocab_size] (tests, and searches that want the distribution).
  void distribution(std::span<const float> logits, const SamplerOptions& options, const TokenHistory& history,
                    std::int64_t row, std::vector<double>& out);

 private:
  struct Scratch;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace banyan
