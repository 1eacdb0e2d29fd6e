// Rotary positions: the parameters that a model has, and the frequencies that follow from them. Layer 5, internal.
// Knows no file form. Pure functions.
//
// Pair i of the first n_dims of a q or k head is turned by position * inv_freq[i] and multiplied by `magnitude`; the
// dimensions behind n_dims stay as they are. With f_i = theta^(-2i / n_dims):
//   plain      f_i
//   linear     f_i / factor
//   llama3     f_i where the wave is short, f_i / factor where it is long, blended between (Llama 3.1)
//   yarn       the same idea, blended over the index i; magnitude 0.1 ln(factor) + 1 by default (arXiv 2309.00071)
//   longrope   f_i / divisors[i], one list for short and one for long contexts (arXiv 2402.13753)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace banyan {

struct Rope {
  enum class Type : std::uint8_t { plain, linear, llama3, yarn, longrope };
  Type type = Type::plain;
  double theta = 10000.0;
  std::int64_t n_dims = 0;                             // even, at most head_dim
  double factor = 1.0;                                 // linear, llama3, yarn
  std::int64_t original_positions = 0;                 // llama3, yarn, longrope: the context before it was stretched
  double low_freq_factor = 1.0, high_freq_factor = 4;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;            // yarn: turns within the original context where blending ends
  bool truncate = true;                                // yarn: whether the indices that follow are made whole
  std::vector<float> divisors{};                       // [n_dims / 2] or empty: divide the frequencies of any type
  // longrope: the context that the long list reaches, and that list. Which list a model uses depends on the length of
  // the whole sequence, so that one more token would change every key that is already stored; banyan uses the short
  // list and keeps to original_positions. The long one only goes along to a converted file.
  std::int64_t long_positions = 0;
  std::vector<float> long_divisors{};
  double magnitude = 1.0;

  bool operator==(const Rope&) const = default;
};

// 0.1 weight ln(factor) + 1; 1 for factors up to 1.
double yarn_magnitude(double factor, double weight = 1.0);
// sqrt(1 + ln(factor) / ln(original_positions)); 1 for factors up to 1.
double longrope_magnitude(double factor, std::int64_t original_positions);

// Throws Error{bad_file} naming `where` for parameters that give no finite, positive frequencies.
void check_rope(const Rope& rope, std::int64_t head_dim, const std::string& where);

// [n_dims / 2], radians per position.
std::vector<float> rope_inv_freq(const Rope& rope);

// "theta 500000, llama3, factor 8 …, magnitude 1", one line for `inspect`.
std::string describe(const Rope& rope, std::int64_t head_dim);

}  // namespace banyan
