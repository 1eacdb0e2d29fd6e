#include "model/rope.hpp"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>

#include "banyan/error.hpp"

namespace banyan {
namespace {

// The share of the stretched frequency in pair i's, 0 … 1, for llama3: by how often the wave fits the original context.
double llama3_share(const Rope& rope, double frequency) {
  const double n_waves = static_cast<double>(rope.original_positions) * frequency / (2 * std::numbers::pi);
  const double kept = (n_waves - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return 1.0 - std::clamp(kept, 0.0, 1.0);
}

// The index of the pair that turns `n_turns` times within the original context; not a whole number.
double yarn_index(const Rope& rope, double n_turns) {
  const auto positions = static_cast<double>(rope.original_positions);
  return static_cast<double>(rope.n_dims) * std::log(positions / (n_turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

// As llama3_share(), for yarn: a ramp over the index from where a pair turns beta_fast times to where beta_slow times.
double yarn_share(const Rope& rope, std::int64_t i) {
  double begin = yarn_index(rope, rope.beta_fast), end = yarn_index(rope, rope.beta_slow);
  if (rope.truncate) {
    begin = std::floor(begin);
    end = std::ceil(end);
  }
  begin = std::max(begin, 0.0);
  end = std::min(end, static_cast<double>(rope.n_dims - 1));
  if (begin == end) end += 0.001;  // a step instead of a ramp without length
  return std::clamp((static_cast<double>(i) - begin) / (end - begin), 0.0, 1.0);
}

void check_number(bool good, double value, const char* name, const std::string& where) {
  if (!good)
    throw Error(ErrorCode::bad_file, fmt::format("{}: rope {}", where, name), fmt::format("{} cannot be", value));
}

}  // namespace

double yarn_magnitude(double factor, double weight) {
  return factor <= 1.0 ? 1.0 : 0.1 * weight * std::log(factor) + 1.0;
}

double longrope_magnitude(double factor, std::int64_t original_positions) {
  return factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(original_positions)));
}

void check_rope(const Rope& rope, std::int64_t head_dim, const std::string& where) {
  const auto within = [](double x, double low, double high) { return x >= low && x <= high; };  // false for NaN
  check_number(within(rope.theta, 1.0, 1e15), rope.theta, "theta", where);
  check_number(within(rope.factor, 1e-3, 1e6), rope.factor, "factor", where);
  check_number(within(rope.magnitude, 1e-3, 1e3), rope.magnitude, "attention factor (magnitude)", where);
  const auto n_dims = static_cast<double>(rope.n_dims);
  check_number(rope.n_dims >= 2 && rope.n_dims <= head_dim && rope.n_dims % 2 == 0, n_dims, "dimensions", where);
  using enum Rope::Type;
  if (rope.type == llama3 || rope.type == yarn || rope.type == longrope) {
    const auto original = static_cast<double>(rope.original_positions);
    check_number(within(original, 2, 1e9), original, "original context length", where);
  }
  if (rope.type == llama3) {
    check_number(within(rope.low_freq_factor, 1e-6, 1e6), rope.low_freq_factor, "low_freq_factor", where);
    check_number(within(rope.high_freq_factor, 1e-6, 1e6) && rope.high_freq_factor > rope.low_freq_factor,
                 rope.high_freq_factor, "high_freq_factor", where);
  }
  if (rope.type == yarn) {
    check_number(rope.theta > 1.0, rope.theta, "theta", where);
    check_number(within(rope.beta_fast, 1e-6, 1e6), rope.beta_fast, "beta_fast", where);
    check_number(within(rope.beta_slow, 1e-6, rope.beta_fast), rope.beta_slow, "beta_slow", where);
  }
  for (const auto* divisors : {&rope.divisors, &rope.long_divisors}) {
    const bool needed = divisors == &rope.divisors && rope.type == longrope;
    if ((needed || !divisors->empty()) && static_cast<std::int64_t>(divisors->size()) != rope.n_dims / 2) {
      throw Error(ErrorCode::bad_file, where + ": rope frequency factors",
                  fmt::format("{} of them for {} dimensions", divisors->size(), rope.n_dims));
    }
    for (const float divisor : *divisors) check_number(within(divisor, 1e-3, 1e6), divisor, "frequency factor", where);
  }
}

std::vector<float> rope_inv_freq(const Rope& rope) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < rope.n_dims / 2; ++i) {
    const double plain = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope.n_dims));
    double share = 0.0;  // of the stretched frequency
    switch (rope.type) {
      case Rope::Type::plain:
      case Rope::Type::longrope: break;
      case Rope::Type::linear: share = 1.0; break;
      case Rope::Type::llama3: share = llama3_share(rope, plain); break;
      case Rope::Type::yarn: share = yarn_share(rope, i); break;
    }
    const double divisor = rope.divisors.empty() ? 1.0 : rope.divisors[static_cast<std::size_t>(i)];
    out.push_back(static_cast<float>((share * plain / rope.factor + (1.0 - share) * plain) / divisor));
  }
  return out;
}

std::string describe(const Rope& rope, std::int64_t head_dim) {
  std::string text = fmt::format("theta {}", rope.theta);
  switch (rope.type) {
    case Rope::Type::plain: text += rope.divisors.empty() ? ", unscaled" : ""; break;
    case Rope::Type::linear: text += fmt::format(", linear, factor {}", rope.factor); break;
    case Rope::Type::llama3:
      text += fmt::format(", llama3, factor {} from {} positions (low {}, high {})", rope.factor,
                          rope.original_positions, rope.low_freq_factor, rope.high_freq_factor);
      break;
    case Rope::Type::yarn:
      text += fmt::format(", yarn, factor {} from {} positions (beta {} to {}{})", rope.factor, rope.original_positions,
                          rope.beta_fast, rope.beta_slow, rope.truncate ? "" : ", not truncated");
      break;
    case Rope::Type::longrope:
      text += fmt::format(", longrope, short factors up to {} positions (the long ones, up to {}, are not used)",
                          rope.original_positions, rope.long_positions);
      break;
  }
  if (!rope.divisors.empty() && rope.type != Rope::Type::longrope) {
    const auto [low, high] = std::ranges::minmax(rope.divisors);
    text += fmt::format(", frequencies divided by the file's factors ({} to {})", low, high);
  }
  if (rope.n_dims != head_dim) text += fmt::format(", {} of {} dimensions", rope.n_dims, head_dim);
  return text + fmt::format(", magnitude {:.8g}", rope.magnitude);
}

}  // namespace banyan
