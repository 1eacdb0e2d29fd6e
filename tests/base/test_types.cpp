#include <doctest/doctest.h>
#include <limits>

#include "banyan/types.hpp"

using namespace banyan;

TEST_CASE("f16: every finite bit pattern survives the round trip, and rounding is to nearest even") {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const f16 h{static_cast<std::uint16_t>(bits)};
    const float x = to_float(h);
    if (std::isnan(x)) {
      CHECK(std::isnan(to_float(to_f16(x))));
    } else {
      REQUIRE(to_f16(x).bits == h.bits);
    }
  }
  CHECK(to_float(to_f16(1.0F + 0x1p-11F)) == 1.0F);                // tie to even
  CHECK(to_float(to_f16(1.0F + 3 * 0x1p-11F)) == 1.0F + 0x1p-9F);  // tie to even, upwards
  CHECK(to_float(to_f16(65519.0F)) == 65504.0F);
  CHECK(std::isinf(to_float(to_f16(65520.0F))));
  CHECK(to_float(to_f16(0x1p-25F)) == 0.0F);
  CHECK(to_float(to_f16(0x1.8p-25F)) == 0x1p-24F);
}

TEST_CASE("bf16: round trip and rounding") {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const bf16 b{static_cast<std::uint16_t>(bits)};
    const float x = to_float(b);
    if (!std::isnan(x)) REQUIRE(to_bf16(x).bits == b.bits);
  }
  CHECK(to_float(to_bf16(1.0F + 0x1p-8F)) == 1.0F);
  CHECK(to_float(to_bf16(1.0F + 3 * 0x1p-8F)) == 1.0F + 0x1p-6F);
  CHECK(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST_CASE("sizes: overflow and negative operands are typed errors with the values") {
  CHECK(checked_mul(1'000'000, 1'000'000, "x") == 1'000'000'000'000);
  CHECK_THROWS_AS(checked_mul(std::int64_t{1} << 40, std::int64_t{1} << 40, "t"), Error);
  CHECK_THROWS_AS(checked_add(std::numeric_limits<std::int64_t>::max(), 1, "t"), Error);
  CHECK_THROWS_AS(checked_mul(-1, 5, "t"), Error);
  CHECK(dtype_bytes(DType::q4_1, 64) == 40);
  CHECK_THROWS_AS(dtype_bytes(DType::q8_0, 33), Error);
  CHECK_THROWS_WITH(dtype_from_string("q9"), doctest::Contains("q4_1"));
  for (const char* name : {"f8_e4m3", "fp8", "fp8_e4m3"}) CHECK(dtype_from_string(name) == DType::f8_e4m3);
  CHECK(to_string(DType::f8_e4m3) == "f8_e4m3");
}
