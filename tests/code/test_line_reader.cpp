#include <doctest/doctest.h>
#include <random>
#include <string>
#include <zlib.h>

#include "code/temp_folder.hpp"
#include "search/code/line_reader.hpp"

using namespace banyan;
using namespace banyan::code;

namespace {

void write_gzipped(const std::string& path, const std::string& text) {
  const gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

std::string message_of(const auto& action) {
  try {
    action();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("LineReader: lines, their ends and places are those of the text, plain and gzipped") {
  const TempFolder folder;
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    std::string text;
    const std::size_t n_lines = random() % 5;
    for (std::size_t i = 0; i < n_lines; ++i) {
      // Short ones, blank ones, and those around the size of a piece that is read.
      const std::size_t n = random() % 3 == 0 ? (1 << 16) - 2 + random() % 4 : random() % 4;
      text += std::string(n, "a \r\0"[random() % 4]);
      if (i + 1 < n_lines || random() % 2 == 0) text += '\n';
    }
    const std::string plain = folder.write("plain", text), packed = folder.path("packed");
    write_gzipped(packed, text);
    for (const auto& [path, form] :
         {std::pair(plain, LineReader::Form::plain), std::pair(plain, LineReader::Form::perhaps_gzipped),
          std::pair(packed, LineReader::Form::perhaps_gzipped)}) {
      LineReader lines(path, form);
      std::size_t at = 0;
      for (int number = 1; at < text.size(); ++number) {
        REQUIRE(lines.next());
        const std::size_t end = std::min(text.find('\n', at), text.size());
        CHECK(lines.line() == text.substr(at, end - at));
        CHECK(lines.is_blank() == (lines.line().find_first_not_of(" \t\r") == std::string_view::npos));
        CHECK(lines.has_end() == (end < text.size()));
        CHECK(lines.begin() == static_cast<std::int64_t>(at));
        CHECK(lines.where() == path + ":" + std::to_string(number));
        at = std::min(end + 1, text.size());
        CHECK(lines.end() == static_cast<std::int64_t>(at));
      }
      CHECK_FALSE(lines.next());
      CHECK_FALSE(lines.next());
    }
  }
}

TEST_CASE("LineReader: a line that is too long has a number and a size; a file that is too long has a limit") {
  const TempFolder folder;
  const std::string path = folder.write(
      "long", "a\n" + std::string(kMostLineBytes + 1, 'x') + "\n" + std::string(kMostLineBytes, 'y') + "\nb");
  LineReader lines(path);
  REQUIRE(lines.next());
  REQUIRE(lines.next());
  CHECK(message_of([&] { lines.line(); }) == path + ":2: has 16777217 bytes, a line can have 16777216");
  CHECK_FALSE(lines.is_blank());
  REQUIRE(lines.next());
  CHECK(lines.line().size() == kMostLineBytes);
  REQUIRE(lines.next());
  CHECK(lines.line() == "b");
  const auto read_all = [&](const std::string& file, std::int64_t most) {
    return message_of([&] {
      for (LineReader reader(file, LineReader::Form::perhaps_gzipped, most); reader.next();) {
      }
    });
  };
  write_gzipped(folder.path("packed"), std::string(1000, '\n'));
  CHECK(read_all(folder.path("packed"), 1000).empty());
  CHECK(read_all(folder.path("packed"), 999).find("packed: holds more than 999 bytes") != std::string::npos);
  CHECK(read_all(folder.path("absent"), 1).find("absent: cannot be opened") != std::string::npos);
  CHECK(read_all(folder.path(), 1).find("cannot be") != std::string::npos);
}
