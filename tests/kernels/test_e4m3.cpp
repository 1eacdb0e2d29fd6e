// Conversion to and from fp8, and how rope_kv stores rows in it.
#include <bit>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <limits>

#include "kernels/e4m3.hpp"
#include "tests/kernels/backends.hpp"
#include "tests/kernels/e4m3_oracle.hpp"

using namespace banyan;
using namespace banyan::kernels;

namespace {

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

}  // namespace

TEST_CASE("e4m3: every code has the value of the specification, and is the code of its value") {
  for (int i = 0; i < 256; ++i) {
    const auto code = static_cast<std::uint8_t>(i);
    CAPTURE(i);
    const double right = e4m3_oracle_value(code);
    const float got = e4m3_value(code);
    if (std::isnan(right)) {
      CHECK(std::isnan(got));
      CHECK((e4m3_code(got) & 0x7f) == 0x7f);
    } else {
      CHECK(double{got} == right);
      CHECK(std::signbit(got) == (i >= 128));
      CHECK(e4m3_code(got) == code);
    }
  }
  CHECK(e4m3_value(0x7e) == 448.0F);
  CHECK(e4m3_value(0x01) == 0x1p-9F);
}

TEST_CASE("e4m3: floats become the nearest code, ties the even one; too large ones 448, NaN NaN") {
  // Between two neighbours: the middle, and the floats next to it.
  for (int i = 0; i < 126; ++i) {
    const float low = e4m3_value(static_cast<std::uint8_t>(i)), high = e4m3_value(static_cast<std::uint8_t>(i + 1));
    const float middle = (low + high) / 2;  // exact
    CAPTURE(i);
    CHECK(e4m3_code(middle) == (i % 2 == 0 ? i : i + 1));
    CHECK(e4m3_code(std::nextafter(middle, 0.0F)) == i);
    CHECK(e4m3_code(std::nextafter(middle, 1e9F)) == i + 1);
    CHECK(e4m3_code(-middle) == (0x80 | (i % 2 == 0 ? i : i + 1)));
  }
  std::mt19937 rng(1);
  std::uniform_real_distribution<float> exponent(-14.0F, 10.0F);
  std::int64_t n_wrong = 0;
  for (int i = 0; i < 200'000; ++i) {
    const float x = std::exp2(exponent(rng)) * (i % 2 == 0 ? 1.0F : -1.0F);
    n_wrong += e4m3_code(x) == e4m3_oracle_code(double{x}) ? 0 : 1;
  }
  for (std::uint64_t i = 0; i < 0x1'0000'0000U; i += 20'011) {  // any bits
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(i));
    const std::uint8_t code = e4m3_code(x);
    n_wrong += std::isnan(x) ? (code & 0x7f) != 0x7f : code != e4m3_oracle_code(double{x});
  }
  CHECK(n_wrong == 0);
  CHECK(e4m3_code(0.0F) == 0x00);
  CHECK(e4m3_code(-0.0F) == 0x80);
  CHECK(e4m3_code(1e30F) == 0x7e);
  CHECK(e4m3_code(-std::numeric_limits<float>::infinity()) == 0xfe);
  CHECK(e4m3_code(std::numeric_limits<float>::denorm_min()) == 0x00);
}

TEST_CASE("e4m3: a row's scale is the least power of two that holds it; rows that are not finite have none") {
  std::mt19937 rng(2);
  std::uniform_real_distribution<float> exponent(-90.0F, 127.9F);
  for (int i = 0; i < 10'000; ++i) {
    const float largest = std::exp2(exponent(rng)), scale = e4m3_scale(bits(largest));
    CAPTURE(largest);
    REQUIRE(bits(scale) % (1U << 23) == 0);  // a power of two
    REQUIRE(double{largest} <= 448.0 * double{scale});
    REQUIRE(double{largest} > 224.0 * double{scale});
  }
  CHECK(e4m3_scale(bits(448.0F)) == 1.0F);
  CHECK(e4m3_scale(bits(std::nextafter(448.0F, 1e9F))) == 2.0F);
  CHECK(e4m3_scale(bits(std::nextafter(448.0F, 0.0F))) == 1.0F);
  CHECK(e4m3_scale(0) == 0x1p-100F);
  CHECK(e4m3_scale(bits(std::numeric_limits<float>::denorm_min())) == 0x1p-100F);
  CHECK(std::isnan(e4m3_scale(bits(std::numeric_limits<float>::infinity()))));
  CHECK(std::isnan(e4m3_scale(e4m3_magnitude(-std::numeric_limits<float>::quiet_NaN()))));
}

TEST_CASE("rope_kv in f8_e4m3: each row by its own scale, whatever its neighbours; a NaN marks its own row alone") {
  constexpr std::int64_t n_rows = 24, n_heads_kv = 2, n_slots = 40;
  for (const std::int64_t d : {6, 64, 80, 256}) {
    std::mt19937 rng(3);
    const std::int64_t width = (1 + 2 * n_heads_kv) * d;
    auto qkv = random_floats(n_rows * width, rng);
    const auto element = [&](std::int64_t r, std::int64_t head, std::int64_t i) -> float& {
      return qkv[static_cast<std::size_t>(r * width + (1 + head) * d + i)];  // k heads, then v heads
    };
    for (std::int64_t r = 0; r < n_rows; ++r) {  // sizes from 2^-40 to 2^52
      for (std::int64_t i = 0; i < d; ++i) element(r, 2, i) *= std::exp2(static_cast<float>(4 * (r - 10)));
    }
    for (std::int64_t i = 0; i < d; ++i) element(7, 3, i) = 0.0F;
    element(9, 3, d / 2) = std::numeric_limits<float>::quiet_NaN();
    element(11, 3, d - 1) = -std::numeric_limits<float>::infinity();
    std::vector<std::int32_t> positions(n_rows, 0);
    std::vector<std::int64_t> slots;
    for (std::int64_t r = 0; r < n_rows; ++r) slots.push_back(r == 5 ? -1 : (r * 7 + 3) % n_slots);
    const std::vector<float> inv_freq(static_cast<std::size_t>(d / 2), 1.0F);
    for (const auto& backend : all_backends(2)) {
      CAPTURE(backend->describe());
      CAPTURE(d);
      std::vector<float> q(static_cast<std::size_t>(n_rows * d));
      std::vector<std::byte> memory(static_cast<std::size_t>(kv_layer_bytes(DType::f8_e4m3, n_slots, n_heads_kv, d)),
                                    std::byte{0x11});
      const KvView kv = kv_layer(memory.data(), DType::f8_e4m3, n_slots, n_heads_kv, d);
      backend->begin_step({.n_rows = n_rows, .positions = positions, .kv_slots = slots});
      backend->rope_kv({qkv.data(), q.data(), inv_freq.data(), 1.0F, 1, kv});
      std::int64_t n_wrong = 0, n_touched = 0;
      for (std::int64_t r = 0; r < n_rows; ++r) {
        for (std::int64_t head = 0; head < 2 * n_heads_kv && slots[static_cast<std::size_t>(r)] >= 0; ++head) {
          const std::int64_t row = head * n_slots + slots[static_cast<std::size_t>(r)];
          const float* x = &element(r, head, 0);  // at position 0 nothing turns
          const auto* codes = static_cast<const std::uint8_t*>(kv.base) + row * d;
          n_touched += d;
          if ((r == 9 || r == 11) && head == 3) {
            CHECK(std::isnan(kv.scales[row]));
            continue;
          }
          double largest = 0;
          for (std::int64_t i = 0; i < d; ++i) largest = std::max(largest, std::fabs(double{x[i]}));
          const double scale = largest == 0 ? 0x1p-100 : e4m3_oracle_scale(largest);
          n_wrong += double{kv.scales[row]} == scale ? 0 : 1;
          for (std::int64_t i = 0; i < d; ++i) n_wrong += codes[i] == e4m3_oracle_code(x[i] / scale) ? 0 : 1;
        }
      }
      CHECK(n_wrong == 0);
      const auto n_same = std::count(memory.begin(), memory.begin() + 2 * n_heads_kv * n_slots * d, std::byte{0x11});
      CHECK(n_same >= 2 * n_heads_kv * n_slots * d - n_touched);
    }
  }
}
