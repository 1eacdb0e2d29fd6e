// Random numbers of some distributions, for a search's own decisions. Internal to search/.
#pragma once

#include <string>

#include "banyan/search/search.hpp"

namespace banyan::search {

// A stream of its own for each (purpose, i): the numbers do not depend on what else was drawn.
class Variates {
 public:
  Variates(const Search& search, std::string purpose, std::uint64_t i)
      : search_(search), purpose_(std::move(purpose)), i_(i) {}

  double uniform() { return search_.uniform(purpose_, i_, n_++); }
  double normal();                  // mean 0, variance 1
  double gamma(double shape);       // scale 1; shape > 0
  double beta(double a, double b);  // a, b > 0
  double chi_squared(double degrees) { return 2 * gamma(degrees / 2); }

 private:
  const Search& search_;
  std::string purpose_;
  std::uint64_t i_, n_ = 0;
};

}  // namespace banyan::search
