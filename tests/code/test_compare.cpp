#include <doctest/doctest.h>
#include <random>
#include <string>

#include "banyan/code/compare.hpp"
#include "banyan/error.hpp"
#include "search/code/json_text.hpp"

using namespace banyan;
using namespace banyan::code;

namespace {

bool apps(const std::string& expected, const std::string& got) { return same_output(Comparator::apps, expected, got); }
bool strict(const std::string& expected, const std::string& got) {
  return same_output(Comparator::strict, expected, got);
}

}  // namespace

TEST_CASE("BL-49: right answers are right, wrong ones wrong") {
  CHECK(apps("0.333333333333", "0.333333"));
  CHECK(apps("0", "1e-7"));
  CHECK(apps("1e-7", "0"));
  CHECK_FALSE(apps("10000000000000000", "10000000000000001"));
  CHECK_FALSE(apps("10000000000000001", "10000000000000000"));
  CHECK(apps("1 2\n", "1 2 \n\n"));
  CHECK(apps("1 2 \n\n", "1 2\n"));
  CHECK_FALSE(apps("2 1", "1 2"));
  CHECK(apps("nan", "nan"));
  CHECK_FALSE(apps("nan", "NaN"));
  CHECK_FALSE(apps("nan", "0"));
  CHECK_FALSE(apps("0", "nan"));
  CHECK_FALSE(apps("YES", "yes"));
  CHECK(same_result(Comparator::apps, "[[0.1, 0.2]]", "[0.1000001, 0.2]"));  // lists of floats
}

TEST_CASE("apps: order and number of lines and tokens count, unlike the published comparison of sets") {
  CHECK_FALSE(apps("1\n2\n", "2\n1\n"));
  CHECK_FALSE(apps("1\n1\n2\n", "1\n2\n"));
  CHECK_FALSE(apps("1 1 2", "1 2"));
  CHECK_FALSE(apps("1\n2", "1 2"));
  CHECK_FALSE(apps("", "0"));
  CHECK_FALSE(apps("0", ""));
  CHECK(apps("", "\n \n"));
  CHECK(apps("a\n\nb", "a\nb\n"));
  CHECK(apps("a  b", "a\tb\r"));
  CHECK(apps("3", "+3"));
  CHECK(apps("007", "7"));
  CHECK(apps("-0", "0"));
  CHECK(apps("2", "2.0"));
  CHECK_FALSE(apps("2", "2.1"));
  CHECK_FALSE(apps("0x10", "16"));
  CHECK_FALSE(apps("1e400", "1e401"));
  CHECK_FALSE(apps("inf", "1e308"));
  CHECK_FALSE(apps("-", "+"));
}

TEST_CASE("strict: the text itself, but for white space at the ends") {
  CHECK(strict("1 2\n", "1 2 \n\n"));
  CHECK(strict("1 2\r\n3", "1 2\n3\n"));
  CHECK_FALSE(strict("1 2", "1  2"));
  CHECK_FALSE(strict("0.5", "0.50"));
  CHECK_FALSE(strict("a\n\nb", "a\nb"));
  CHECK_FALSE(strict("1", "+1"));
}

TEST_CASE("BL-48: an integer of 5,000 digits is compared exactly") {
  const std::string big = "1" + std::string(4998, '0') + "7", other = "1" + std::string(4998, '0') + "8";
  CHECK(apps(big + "\n", big));
  CHECK_FALSE(apps(big, other));
  CHECK(same_result(Comparator::apps, "[" + big + "]", big));
  CHECK_FALSE(same_result(Comparator::apps, "[" + big + "]", other));
}

TEST_CASE("results of calls: bare or in a list of one, numbers as Python sees them") {
  const auto same = [](const char* expected, const char* got) { return same_result(Comparator::apps, expected, got); };
  CHECK(same("5", "5"));
  CHECK(same("[5]", "5"));
  CHECK(same("[5]", "[5]"));
  CHECK(same("[[1, 2]]", "[1, 2]"));
  CHECK_FALSE(same("[1, 2]", "1"));
  CHECK_FALSE(same("[1, 2]", "[2, 1]"));
  CHECK(same("true", "1"));
  CHECK(same("1", "1.0"));
  CHECK_FALSE(same("1", "\"1\""));
  CHECK(same("null", "null"));
  CHECK(same("{\"a\": [1], \"b\": 2}", "{\"b\": 2, \"a\": [1]}"));
  CHECK_FALSE(same("{\"a\": 1}", "{\"b\": 1}"));
  CHECK_FALSE(same("5", "5 6"));
  CHECK_FALSE(same("5", ""));
  CHECK(same("\"\\u00e9\\n\"", "\"é\\n\""));
  CHECK_FALSE(same_result(Comparator::strict, "true", "1"));
  CHECK_FALSE(same_result(Comparator::strict, "0.3", "0.30000001"));
  CHECK(same_result(Comparator::strict, "[1.0]", "1"));
  CHECK_THROWS_AS(same_result(Comparator::apps, "[1,", "1"), Error);
}

TEST_CASE("property: any text equals itself, and no comparator accepts another integer") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 20; ++i) text += "0123456789 \nabe.-+"[random() % 18];
    CHECK(apps(text, text));
    CHECK(strict(text, text));
    const std::uint64_t a = random() >> (random() % 60), b = random() >> (random() % 60);
    CHECK(apps(std::to_string(a), std::to_string(b)) == (a == b));
  }
}

TEST_CASE("json_text keeps numbers as text, decodes strings, walks items, and says where it stops") {
  const std::string text =
      R"( {"a": [1, -2.5e+3, 12345678901234567890123], "b": "x\u0041\ud83d\ude00\ud800", "a\u0021": {}, "n": 1, "n": 2} )";
  const JsonText value = parse_json(text, "f");
  std::vector<std::string> elements, keys;
  for (JsonItems item(*value.find("a")); item.next();) elements.push_back(item.value().text());
  for (JsonItems item(value); item.next();) keys.push_back(item.key());
  CHECK(elements == std::vector<std::string>{"1", "-2.5e+3", "12345678901234567890123"});
  CHECK(keys == std::vector<std::string>{"a", "b", "a!", "n", "n"});
  CHECK(value.find("b")->text() == "xA\xF0\x9F\x98\x80\xEF\xBF\xBD");
  CHECK(value.find("b")->raw() == R"("x\u0041\ud83d\ude00\ud800")");
  CHECK(value.find("a!")->raw() == "{}");
  CHECK(value.find("n")->raw() == "2");
  CHECK_FALSE(value.find("c"));
  CHECK_FALSE(value.find("b")->find("x"));
  const JsonText numbers = parse_json("[NaN, -Infinity]", "f");
  JsonItems item(numbers);
  CHECK((item.next() && item.next() && item.value().raw() == "-Infinity"));
  CHECK_FALSE(item.next());
  CHECK_FALSE(JsonItems(*value.find("a!")).next());
  CHECK_FALSE(JsonItems(*value.find("n")).next());
  for (const std::string& bad :
       {std::string(""), std::string("{"), std::string("[1,]"), std::string("01"), std::string("1."),
        std::string("\"a"), std::string("\"\\q\""), std::string("nul"), std::string("[1] 2"), std::string("{\"a\" 1}"),
        std::string("\"a\nb\""), std::string(100'000, '[')}) {
    CAPTURE(bad.substr(0, 20));
    CHECK_THROWS_AS(parse_json(bad, "f"), Error);
  }
}
