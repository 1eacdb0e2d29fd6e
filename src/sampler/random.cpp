#include "sampler/random.hpp"

#include "kernels/sample_random.hpp"

namespace banyan {
namespace sampling {

std::uint64_t random_bits(const StreamKey& key) { return philox_bits(key.seed, key.prompt, key.sample, key.position); }

}  // namespace sampling

double uniform01(const StreamKey& key) { return static_cast<double>(sampling::random_bits(key) >> 11) * 0x1p-53; }

// FNV-1a, 64 bits (Fowler, Noll, Vo): short, public, the same everywhere. Philox does the mixing, so its weak upper
// bits for short texts do no harm.
std::uint64_t hash_stream(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) {
    h ^= static_cast<unsigned char>(c);
    h *= 0x100000001b3u;
  }
  return h;
}

}  // namespace banyan
