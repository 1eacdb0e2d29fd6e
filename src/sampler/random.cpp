#include "sampler/random.hpp"

#include <Random123/philox.h>

namespace banyan {
namespace sampling {
namespace {

constexpr std::uint32_t lo(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t hi(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

}  // namespace

std::uint64_t random_bits(const StreamKey& key) {
  const r123::Philox4x32 philox;
  const auto a =
      philox({{lo(key.prompt), hi(key.prompt), lo(key.sample), hi(key.sample)}}, {{lo(key.seed), hi(key.seed)}});
  const auto b = philox({{lo(key.position), hi(key.position), a[2], a[3]}}, {{a[0], a[1]}});
  return b[0] | static_cast<std::uint64_t>(b[1]) << 32;
}

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
