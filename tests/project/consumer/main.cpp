// Uses one thing that is only in headers and one that is only in the library.
#include <cstdio>

#include "banyan/lse.hpp"
#include "banyan/types.hpp"

int main() {
  float o = 1.0F, lse = 0.0F;
  const float other = 3.0F;
  banyan::merge_partial(&o, lse, &other, 0.0F, 1);  // equal weights: the mean
  if (o != 2.0F) return 1;
  if (banyan::to_float(banyan::to_f16(0.5F)) != 0.5F) return 1;
  std::puts("banyan is found, linked and runs");
  return 0;
}
