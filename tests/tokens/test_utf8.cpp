#include <doctest/doctest.h>
#include <random>
#include <string>
#include <vector>

#include "banyan/tokenizer.hpp"

using namespace banyan;

namespace {

const std::string kFffd = "\xEF\xBF\xBD";

std::string repeat(const std::string& s, int n) {
  std::string r;
  for (int i = 0; i < n; ++i) r += s;
  return r;
}

// Valid UTF-8 the long way round: decode each character, compare with its shortest encoding.
bool is_valid(const std::string& s) {
  for (std::size_t i = 0; i < s.size();) {
    const auto b = static_cast<unsigned char>(s[i]);
    const int n = b < 0x80 ? 1 : (b >> 5) == 6 ? 2 : (b >> 4) == 14 ? 3 : (b >> 3) == 30 ? 4 : 0;
    if (n == 0 || i + static_cast<std::size_t>(n) > s.size()) return false;
    std::uint32_t cp = n == 1 ? b : b & (0xFFu >> (n + 1));
    for (int k = 1; k < n; ++k) {
      const auto c = static_cast<unsigned char>(s[i + static_cast<std::size_t>(k)]);
      if ((c & 0xC0) != 0x80) return false;
      cp = (cp << 6) | (c & 0x3F);
    }
    const int shortest = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    if (shortest != n || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) return false;
    i += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

TEST_CASE("BL-24: a character split over tokens is one character; a cut one and a lone byte are U+FFFD each") {
  Utf8Stream stream;
  CHECK(stream.push("Hi ") == "Hi ");
  CHECK(stream.push("\xF0\x9F") == "");
  CHECK(stream.push("\xA6\x99") == "\xF0\x9F\xA6\x99");
  CHECK(stream.push("!") == "!");
  CHECK(stream.flush() == "");

  CHECK(stream.push("Hi ") == "Hi ");
  CHECK(stream.push("\xF0\x9F") == "");
  CHECK(stream.flush() == kFffd);
  CHECK(stream.flush() == "");

  CHECK(stream.push("\xFF") == kFffd);
  CHECK(stream.flush() == "");
}

TEST_CASE("sanitize_utf8: one U+FFFD per maximal part, as in the Unicode Standard's tables 3-8 to 3-11") {
  // Table 3-8: overlong forms; 3-9: surrogates; 3-10: other ill-formed; 3-11: truncated.
  CHECK(sanitize_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41") == repeat(kFffd, 8) + "A");
  CHECK(sanitize_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41") == repeat(kFffd, 8) + "A");
  CHECK(sanitize_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42") == repeat(kFffd, 5) + "A" + repeat(kFffd, 2) + "B");
  CHECK(sanitize_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41") == repeat(kFffd, 4) + "A");
  CHECK(sanitize_utf8("") == "");
  CHECK(sanitize_utf8(std::string("a\0b", 3)) == std::string("a\0b", 3));
  CHECK(sanitize_utf8("\xE2\x82\xAC \xF0\x9F\xA6\x99 \xF4\x8F\xBF\xBF") ==
        "\xE2\x82\xAC \xF0\x9F\xA6\x99 \xF4\x8F\xBF\xBF");
}

TEST_CASE("Utf8Stream: cuts do not matter, every chunk is valid, at most three bytes wait") {
  std::mt19937 rng(7);
  const std::vector<std::string> parts = {"a",        "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\xA6\x99", "\xF0\x9F",
                                          "\xE2",     "\xFF",     "\xC0",         "\xED\xA0\x80",     "\x80",
                                          "\xF4\x90", kFffd};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int n = static_cast<int>(rng() % 12); n > 0; --n) text += parts[rng() % parts.size()];
    Utf8Stream stream;
    std::string out;
    std::size_t given = 0;
    while (given < text.size()) {
      const std::size_t n = std::min<std::size_t>(text.size() - given, rng() % 4);
      const std::string chunk = stream.push(std::string_view(text).substr(given, n));
      REQUIRE(is_valid(chunk));
      out += chunk;
      given += n;
    }
    out += stream.flush();
    REQUIRE(out == sanitize_utf8(text));
    REQUIRE(is_valid(out));
    if (is_valid(text)) REQUIRE(out == text);
  }
}
