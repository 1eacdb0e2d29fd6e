#include "random_variates.hpp"

#include <cmath>
#include <numbers>

namespace banyan::search {

double Variates::normal() {        // Box and Muller
  const double u = 1 - uniform();  // (0, 1]
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * uniform());
}

double Variates::gamma(double shape) {  // Marsaglia and Tsang, 2000
  if (shape < 1) {
    const double u = 1 - uniform();
    return gamma(shape + 1) * std::pow(u, 1 / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal();
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    const double u = 1 - uniform();
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

double Variates::beta(double a, double b) {
  const double x = gamma(a), y = gamma(b);
  return x + y > 0 ? x / (x + y) : 0.5;
}

}  // namespace banyan::search
