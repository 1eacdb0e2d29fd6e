#include "json_text.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <fmt/format.h>

#include "banyan/error.hpp"
#include "banyan/tokenizer.hpp"

namespace banyan::code {

namespace {

using Kind = JsonText::Kind;

constexpr int kMaxDepth = 200;
constexpr std::size_t kMostShown = 80;  // bytes

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

struct Fault {
  std::size_t at;
  const char* what;
};

void append_utf8(std::string& out, std::uint32_t code) {
  const auto tail = [&](unsigned shift) { out += static_cast<char>(0x80 | (code >> shift & 63)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    tail(12), tail(6), tail(0);
  }
}

}  // namespace

// Steps over values from `at` on; throws Fault where the text is no JSON.
class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text, std::size_t at = 0) : text_(text), at_(at) {}

  std::size_t at() const { return at_; }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool at_end() const { return at_ == text_.size(); }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  JsonText value(int depth) {
    if (depth > kMaxDepth) throw Fault{at_, "nested too deeply"};
    skip_space();
    const std::size_t begin = at_;
    const Kind kind = skip_value(depth);
    return {kind, text_.substr(begin, at_ - begin)};
  }

  // A member's name and the colon behind it.
  JsonText key() {
    skip_space();
    if (peek() != '"') throw Fault{at_, "a key is expected"};
    const JsonText name = value(0);
    skip_space();
    if (!take(":")) throw Fault{at_, "':' is expected"};
    return name;
  }

  // After "\u": the code point of one escape, or of the two that are one character. A half of a pair alone is U+FFFD.
  std::uint32_t code_point() {
    const std::uint32_t high = hex4();
    if (high < 0xD800 || high > 0xDFFF) return high;
    if (high > 0xDBFF || text_.substr(at_, 2) != "\\u") return 0xFFFD;
    const std::size_t before = at_;
    at_ += 2;
    const std::uint32_t low = hex4();
    if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    at_ = before;
    return 0xFFFD;
  }

 private:
  Kind skip_value(int depth) {
    const char c = peek();
    if (c == '{' || c == '[') return skip_items(depth);
    if (c == '"') return skip_string();
    if (take("null")) return Kind::null;
    if (take("true") || take("false")) return Kind::boolean;
    if (!take("NaN") && !take("Infinity") && !take("-Infinity")) skip_number();
    return Kind::number;
  }

  Kind skip_items(int depth) {
    const bool object = peek() == '{';
    const Kind kind = object ? Kind::object : Kind::array;
    const char close = object ? '}' : ']';
    ++at_;
    skip_space();
    if (peek() == close) return ++at_, kind;
    for (;;) {
      if (object) key();
      value(depth + 1);
      skip_space();
      if (peek() == close) return ++at_, kind;
      if (!take(",")) throw Fault{at_, object ? "',' or '}' is expected" : "',' or ']' is expected"};
    }
  }

  void skip_digits() {
    if (!is_digit(peek())) throw Fault{at_, "a value is expected"};
    while (is_digit(peek())) ++at_;
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

  Kind skip_string() {
    for (++at_;; ++at_) {
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 32)
        ++at_;
      if (at_ >= text_.size()) throw Fault{at_, "the string does not end"};
      const char c = text_[at_];
      if (c == '"') return ++at_, Kind::string;
      if (c != '\\') throw Fault{at_, "a control character stands in a string"};
      ++at_;
      if (peek() == 'u') {
        ++at_;
        hex4();
        --at_;
      } else if (peek() == '\0' || std::string_view("\"\\/bfnrt").find(peek()) == std::string_view::npos) {
        throw Fault{at_, "there is no such escape"};
      }
    }
  }

  std::uint32_t hex4() {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      if (!std::isxdigit(static_cast<unsigned char>(c))) throw Fault{at_, "four hexadecimal digits are expected"};
      code = code * 16 + static_cast<std::uint32_t>(is_digit(c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    return code;
  }

  std::string_view text_;
  std::size_t at_;
};

std::string JsonText::text() const {
  if (!is(Kind::string)) return std::string(raw_);
  const std::string_view inside = raw_.substr(1, raw_.size() - 2);
  if (inside.find('\\') == std::string_view::npos) return std::string(inside);
  std::string out;
  out.reserve(inside.size());
  for (std::size_t at = 0; at < inside.size();) {
    const std::size_t plain = std::min(inside.find('\\', at), inside.size());
    out.append(inside, at, plain - at);
    if (plain == inside.size()) break;
    const char escape = inside[plain + 1];
    at = plain + 2;
    if (escape == 'u') {
      JsonScanner scanner(inside, at);
      append_utf8(out, scanner.code_point());
      at = scanner.at();
    } else {
      constexpr std::string_view kNames = "\"\\/bfnrt", kBytes = "\"\\/\b\f\n\r\t";
      out += kBytes[kNames.find(escape)];
    }
  }
  return out;
}

std::optional<JsonText> JsonText::find(std::string_view key) const {
  std::optional<JsonText> found;
  if (!is(Kind::object)) return found;
  for (JsonItems item(*this); item.next();) {
    if (item.key_is(key)) found = item.value();
  }
  return found;
}

bool JsonItems::key_is(std::string_view name) const {
  const std::string_view raw = key_.raw();
  if (raw.find('\\') == std::string_view::npos) return raw.substr(1, raw.size() - 2) == name;
  return key_.text() == name;
}

bool JsonItems::next() {
  const bool object = of_.is(Kind::object);
  if (!object && !of_.is(Kind::array)) return false;
  JsonScanner scanner(of_.raw(), std::max<std::size_t>(at_, 1));  // behind the bracket
  scanner.skip_space();
  if (at_ > 0) scanner.take(",");
  at_ = scanner.at();
  if (scanner.peek() == (object ? '}' : ']')) return false;
  if (object) key_ = scanner.key();
  value_ = scanner.value(0);
  at_ = scanner.at();
  return true;
}

JsonText parse_json(std::string_view text, const std::string& where) {
  try {
    JsonScanner scanner(text);
    const JsonText value = scanner.value(0);
    scanner.skip_space();
    if (!scanner.at_end()) throw Fault{scanner.at(), "something stands after the value"};
    return value;
  } catch (const Fault& fault) {
    throw Error(ErrorCode::bad_file, where,
                fmt::format("not valid JSON at byte {} of {}: {}", fault.at, text.size(), fault.what));
  }
}

std::string shown(std::string_view text) {
  std::string out = sanitize_utf8(text.substr(0, kMostShown));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 32) c = ' ';
  return text.size() > kMostShown ? out + "…" : out;
}

}  // namespace banyan::code
