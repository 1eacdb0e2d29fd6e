// A small JSON reader that loses nothing and copies nothing: a value is a view of the text it stands in, numbers stay
// as they are written, items are found by walking. For files of tests, where integers have thousands of digits
// (nlohmann's reader refuses them), and for what untrusted files and programs write: a text costs no memory beside its
// own, whatever it holds, and its depth is limited. Accepts NaN, Infinity and -Infinity, which Python writes.
//
// A JsonText is made from a text that has been checked as a whole, and is good as long as that text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace banyan::code {

class JsonText {
 public:
  enum class Kind : unsigned char { null, boolean, number, string, array, object };

  JsonText() = default;  // null
  bool is(Kind kind) const { return kind_ == kind; }
  Kind kind() const { return kind_; }
  // As it stands in the text, without the white space around it.
  std::string_view raw() const { return raw_; }
  // What a string says; of any other value, how it stands there.
  std::string text() const;
  // The value of the last member of that name; nothing where there is none, or where this is no object.
  std::optional<JsonText> find(std::string_view key) const;

 private:
  friend class JsonScanner;
  JsonText(Kind kind, std::string_view raw) : kind_(kind), raw_(raw) {}

  Kind kind_ = Kind::null;
  std::string_view raw_ = "null";
};

// Walks the elements of an array or the members of an object, in order; no other value has any.
//
//     for (JsonItems item(value); item.next();) use(item.key(), item.value());
class JsonItems {
 public:
  explicit JsonItems(const JsonText& of) : of_(of) {}
  bool next();
  const JsonText& value() const { return value_; }
  std::string key() const { return key_.text(); }  // of a member
  bool key_is(std::string_view name) const;

 private:
  JsonText of_, key_, value_;
  std::size_t at_ = 0;  // behind the last item
};

// Checks all of `text`. Throws Error{bad_file} with `where` and the byte at which it stops being JSON.
JsonText parse_json(std::string_view text, const std::string& where);

// For messages: white space and ill-formed bytes aside, at most the first 80 bytes.
std::string shown(std::string_view text);

}  // namespace banyan::code
