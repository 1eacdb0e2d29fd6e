#include "json_text.hpp"

#include <cctype>
#include <cstdint>
#include <fmt/format.h>

#include "banyan/error.hpp"

namespace banyan::code {

namespace {

constexpr int kMaxDepth = 200;

class Parser {
 public:
  Parser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  JsonText document() {
    JsonText value = parse_value(0);
    skip_space();
    if (at_ != text_.size()) fail("something stands after the value");
    return value;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw Error(ErrorCode::bad_file, where_,
                fmt::format("not valid JSON at byte {} of {}: {}", at_, text_.size(), what));
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  JsonText parse_value(int depth) {
    if (depth > kMaxDepth) fail("nested too deeply");
    skip_space();
    JsonText value;
    value.begin = at_;
    const char c = peek();
    if (c == '{' || c == '[') {
      parse_items(value, depth);
    } else if (c == '"') {
      value.kind = JsonText::Kind::string;
      value.text = parse_string();
    } else if (take("null")) {
      value.kind = JsonText::Kind::null;
    } else if (take("true") || take("false")) {
      value.kind = JsonText::Kind::boolean;
      value.text = text_.substr(value.begin, at_ - value.begin);
    } else {
      if (!take("NaN") && !take("Infinity") && !take("-Infinity")) skip_number();
      value.kind = JsonText::Kind::number;
      value.text = text_.substr(value.begin, at_ - value.begin);
    }
    value.end = at_;
    return value;
  }

  void parse_items(JsonText& value, int depth) {
    const bool object = peek() == '{';
    const char close = object ? '}' : ']';
    value.kind = object ? JsonText::Kind::object : JsonText::Kind::array;
    ++at_;
    skip_space();
    if (peek() == close) {
      ++at_;
      return;
    }
    for (;;) {
      if (object) {
        skip_space();
        if (peek() != '"') fail("a key is expected");
        value.keys.push_back(parse_string());
        skip_space();
        if (!take(":")) fail("':' is expected");
      }
      value.items.push_back(parse_value(depth + 1));
      skip_space();
      if (peek() == close) break;
      if (!take(",")) fail(object ? "',' or '}' is expected" : "',' or ']' is expected");
    }
    ++at_;
  }

  void skip_digits() {
    if (!std::isdigit(static_cast<unsigned char>(peek()))) fail("a value is expected");
    while (std::isdigit(static_cast<unsigned char>(peek()))) ++at_;
  }

  void skip_number() {
    take("-");
    if (!take("0")) skip_digits();
    if (take(".")) skip_digits();
    if (take("e") || take("E")) {
      if (!take("+")) take("-");
      skip_digits();
    }
  }

  std::uint32_t parse_hex4() {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      if (!std::isxdigit(static_cast<unsigned char>(c))) fail("four hexadecimal digits are expected");
      code = code * 16 +
             static_cast<std::uint32_t>(std::isdigit(static_cast<unsigned char>(c)) ? c - '0' : (c | 32) - 'a' + 10);
    }
    return code;
  }

  static void append_utf8(std::string& out, std::uint32_t code) {
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xC0 | code >> 6);
      out += static_cast<char>(0x80 | (code & 63));
    } else if (code < 0x10000) {
      out += static_cast<char>(0xE0 | code >> 12);
      out += static_cast<char>(0x80 | (code >> 6 & 63));
      out += static_cast<char>(0x80 | (code & 63));
    } else {
      out += static_cast<char>(0xF0 | code >> 18);
      out += static_cast<char>(0x80 | (code >> 12 & 63));
      out += static_cast<char>(0x80 | (code >> 6 & 63));
      out += static_cast<char>(0x80 | (code & 63));
    }
  }

  // After "\u". A half of a surrogate pair alone becomes U+FFFD.
  std::uint32_t parse_code_point() {
    const std::uint32_t high = parse_hex4();
    if (high < 0xD800 || high > 0xDFFF) return high;
    if (high > 0xDBFF || text_.substr(at_, 2) != "\\u") return 0xFFFD;
    const std::size_t before = at_;
    at_ += 2;
    const std::uint32_t low = parse_hex4();
    if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    at_ = before;
    return 0xFFFD;
  }

  std::string parse_string() {
    std::string out;
    ++at_;
    for (;;) {
      const std::size_t plain = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 32)
        ++at_;
      out.append(text_, plain, at_ - plain);
      if (at_ >= text_.size()) fail("the string does not end");
      const char c = text_[at_];
      if (c == '"') break;
      if (c != '\\') fail("a control character stands in a string");
      ++at_;
      const char escape = peek();
      ++at_;
      constexpr std::string_view kNames = "\"\\/bfnrt", kBytes = "\"\\/\b\f\n\r\t";
      if (escape == 'u')
        append_utf8(out, parse_code_point());
      else if (const std::size_t i = kNames.find(escape); escape != '\0' && i != std::string_view::npos)
        out += kBytes[i];
      else
        fail("there is no such escape");
    }
    ++at_;
    return out;
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t at_ = 0;
};

}  // namespace

const JsonText* JsonText::find(std::string_view key) const {
  for (std::size_t i = keys.size(); i-- > 0;)
    if (keys[i] == key) return &items[i];
  return nullptr;
}

JsonText parse_json(std::string_view text, const std::string& where) { return Parser(text, where).document(); }

}  // namespace banyan::code
