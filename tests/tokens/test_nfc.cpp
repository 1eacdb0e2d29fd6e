// Normalisation form C against utf8proc's own, and where that one takes quadratic time.
#include <cstdlib>
#include <doctest/doctest.h>
#include <random>
#include <string>
#include <utf8proc.h>

#include "tokens/nfc.hpp"

using namespace banyan;

namespace {

std::string nfc_of_library(const std::string& text) {
  utf8proc_uint8_t* raw = nullptr;
  const auto n =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &raw, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  REQUIRE(n >= 0);
  std::string normal(reinterpret_cast<const char*>(raw), static_cast<std::size_t>(n));
  std::free(raw);
  return normal;
}

void append(std::string& text, std::int32_t c) {
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(c, bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n));
}

}  // namespace

TEST_CASE("NFC: equal to the library's on random text rich in marks, letters that compose, and Hangul") {
  std::mt19937 rng(31);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::size_t n = rng() % 30; n > 0; --n) {
      switch (rng() % 5) {
        case 0: append(text, 0x300 + static_cast<std::int32_t>(rng() % 0x70)); break;    // marks
        case 1: append(text, 'A' + static_cast<std::int32_t>(rng() % 58)); break;        // letters
        case 2: append(text, 0x1100 + static_cast<std::int32_t>(rng() % 0x100)); break;  // Hangul in parts
        case 3: append(text, 0xAC00 + static_cast<std::int32_t>(rng() % 0x2BA4)); break;
        default: {
          const auto c = static_cast<std::int32_t>(rng() % 0x110000);
          if (c < 0xD800 || c > 0xDFFF) append(text, c);
        }
      }
    }
    CAPTURE(text);
    REQUIRE(to_nfc(text) == nfc_of_library(text));
  }
  CHECK(to_nfc("") == "");
  CHECK(to_nfc("e\xCC\x81") == "\xC3\xA9");
  CHECK(to_nfc(std::string("a\0b\xCC\x81", 5)) == std::string("a\0b\xCC\x81", 5));
}

TEST_CASE("NFC: a megabyte of marks in the wrong order is sorted in time") {
  std::string text = "a", sorted = "a";
  for (int i = 0; i < 250'000; ++i) text += "\xCC\x95";  // class 232
  for (int i = 0; i < 250'000; ++i) text += "\xCC\x96";  // class 220
  for (int i = 0; i < 250'000; ++i) sorted += "\xCC\x96";
  for (int i = 0; i < 250'000; ++i) sorted += "\xCC\x95";
  CHECK(to_nfc(text) == sorted);
}
