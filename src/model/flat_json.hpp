// Reader of flat JSON objects, {member: {field: scalar or [scalars]}}, value by value: no tree of them is built, so a
// crafted text costs little memory whatever it holds. Layer 5, internal. Knows no file form. One thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "banyan/error.hpp"

namespace banyan {

class FlatJson {
 public:
  virtual ~FlatJson() = default;
  // Calls what follows, in the order of the text. Throws Error{bad_file} naming `where` for a text that is no JSON, no
  // object, or deeper; what the calls throw goes through.
  void read(std::string_view text, const std::string& where);

 protected:
  virtual void begin(const std::string& member) = 0;  // an object
  // A list; its values follow. `field` is empty where the member itself is the list.
  virtual void list(const std::string& member, const std::string& field) = 0;
  // A scalar; `field` is empty where the member itself is one.
  virtual void value(const std::string& member, const std::string& field, bool in_list,
                     const nlohmann::json& scalar) = 0;
  virtual void end(const std::string& member) = 0;  // of the object
  // How an error names a member.
  virtual std::string where_of(const std::string& member) const = 0;

 private:
  class Events;
};

// The text, cut where it is too long for a message.
std::string clipped(std::string_view text);

}  // namespace banyan
