#include <cstdio>

int main() {
  std::puts("banyan");
  return 0;
}
