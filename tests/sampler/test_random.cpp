#include <array>
#include <cmath>
#include <doctest/doctest.h>
#include <set>
#include <string>
#include <vector>

#include "banyan/sampler.hpp"
#include "oracle.hpp"
#include "sampler/random.hpp"

using namespace banyan;

namespace {

using Words4 = std::array<std::uint32_t, 4>;
using Words2 = std::array<std::uint32_t, 2>;

// Philox 4x32-10 from the paper's description (Salmon et al. 2011, section 3.3).
Words4 philox(Words4 c, Words2 k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
    k = {k[0] + 0x9E3779B9u, k[1] + 0xBB67AE85u};
  }
  return c;
}

std::uint64_t expected_bits(const StreamKey& s) {
  const auto lo = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto hi = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const Words4 a = philox({lo(s.prompt), hi(s.prompt), lo(s.sample), hi(s.sample)}, {lo(s.seed), hi(s.seed)});
  const Words4 b = philox({lo(s.position), hi(s.position), a[2], a[3]}, {a[0], a[1]});
  return b[0] | static_cast<std::uint64_t>(b[1]) << 32;
}

std::vector<TokenId> draw_sample(std::uint64_t sample, const StreamKey& key = {.seed = 42}) {
  Sampler sampler;
  Choice choice;
  const std::vector<float> uniform(16, 0.0F);
  std::vector<TokenId> tokens;
  for (std::uint64_t position = 0; position < 8; ++position) {
    sampler.draw(uniform, {}, {key.seed, key.prompt, sample, position}, {}, 0, 0, choice);
    tokens.push_back(choice.token);
  }
  return tokens;
}

}  // namespace

TEST_CASE("random stream: golden values, for recorded seeds and other devices") {
  // Known answers of Random123 for the generator itself.
  CHECK(philox({0, 0, 0, 0}, {0, 0}) == Words4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  // The layout.
  CHECK(sampling::random_bits({0, 0, 0, 0}) == 0x50282a4dcb63db8cu);
  CHECK(sampling::random_bits({42, 7, 3, 1000}) == 0x3d4392acaf4c1631u);
  CHECK(sampling::random_bits({0x0123456789abcdef, 0xfedcba9876543210, 0x1122334455667788, 0x99aabbccddeeff00}) ==
        0x6ea77aefa6344f2au);
  std::mt19937_64 rng(1);
  for (int i = 0; i < 1000; ++i) {
    const StreamKey key{rng(), rng(), rng(), rng()};
    REQUIRE(sampling::random_bits(key) == expected_bits(key));
    REQUIRE(uniform01(key) == std::ldexp(static_cast<double>(expected_bits(key) >> 11), -53));
  }
}

TEST_CASE("random stream: every bit of the key counts") {
  const StreamKey base{1, 2, 3, 4};
  std::set<std::uint64_t> seen{sampling::random_bits(base)};
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t flip = std::uint64_t{1} << bit;
    seen.insert(sampling::random_bits({1 ^ flip, 2, 3, 4}));
    seen.insert(sampling::random_bits({1, 2 ^ flip, 3, 4}));
    seen.insert(sampling::random_bits({1, 2, 3 ^ flip, 4}));
    seen.insert(sampling::random_bits({1, 2, 3, 4 ^ flip}));
  }
  CHECK(seen.size() == 1 + 4 * 64);
}

TEST_CASE("random stream: uniform along each part of the key") {
  constexpr int kCells = 100, kDraws = 20'000;
  const std::vector<double> p(kCells, 1.0 / kCells);
  for (int part = 0; part < 4; ++part) {
    CAPTURE(part);
    std::vector<std::int64_t> counts(kCells);
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      StreamKey key{42, 1, 2, 3};
      (part == 0 ? key.seed : part == 1 ? key.prompt : part == 2 ? key.sample : key.position) = i;
      const double u = uniform01(key);
      REQUIRE(u >= 0);
      REQUIRE(u < 1);
      ++counts[static_cast<std::size_t>(u * kCells)];
    }
    CHECK(std::fabs(test::chi_square_sigmas(counts, p)) < 4);
  }
}

TEST_CASE("hash_stream: published values of 64-bit FNV-1a") {
  CHECK(hash_stream("") == 0xcbf29ce484222325u);
  CHECK(hash_stream("a") == 0xaf63dc4c8601ec8cu);
  CHECK(hash_stream("foobar") == 0x85944171f73967e8u);
  CHECK(hash_stream("\xff") != hash_stream("\x7f"));
  CHECK(hash_stream(std::string_view("\0", 1)) != hash_stream(""));
}

TEST_CASE("BL-19: samples of one prompt differ, and a sample does not depend on how many there are") {
  std::set<std::vector<TokenId>> distinct;
  std::vector<std::vector<TokenId>> of_16, of_4;
  for (std::uint64_t i = 0; i < 16; ++i) of_16.push_back(draw_sample(i));
  for (std::uint64_t i = 0; i < 4; ++i) of_4.push_back(draw_sample(i));
  distinct.insert(of_16.begin(), of_16.end());
  CHECK(distinct.size() >= 15);
  for (std::size_t i = 0; i < of_4.size(); ++i) CHECK(of_4[i] == of_16[i]);
  CHECK(draw_sample(0, {.seed = 43}) != of_16[0]);
  CHECK(draw_sample(0, {.seed = 42, .prompt = hash_stream("HumanEval/0")}) != of_16[0]);
}
