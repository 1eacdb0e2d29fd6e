// Walking over bytes that should be UTF-8 but need not be. Knows no tokens.
//
// The rule for ill-formed bytes is the Unicode Standard's "maximal subpart" (§3.9, D93b with table 3-7): a part is the
// longest start of some character's encoding that stands there, or one byte where no character starts. Thread-safe:
// pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace banyan {

struct Utf8Part {
  std::size_t n_bytes = 0;  // 1…4
  bool valid = false;       // one whole character
  bool cut = false;         // not valid, and more bytes could still complete it
};

// The part at the front of `bytes`, which must not be empty.
Utf8Part utf8_front(std::string_view bytes);

// Length of the longest front of `bytes` that is well-formed as a whole, and of the longest that has no valid
// character.
std::size_t utf8_valid_length(std::string_view bytes);
std::size_t utf8_invalid_length(std::string_view bytes);

// Calls on_valid(std::string_view) for each longest well-formed run and on_invalid(std::string_view) for what lies
// between, in order. Nothing is left out.
template <typename OnValid, typename OnInvalid>
void for_each_utf8_run(std::string_view bytes, OnValid&& on_valid, OnInvalid&& on_invalid) {
  while (!bytes.empty()) {
    if (const std::size_t n = utf8_valid_length(bytes); n > 0) {
      on_valid(bytes.substr(0, n));
      bytes.remove_prefix(n);
    }
    if (const std::size_t n = utf8_invalid_length(bytes); n > 0) {
      on_invalid(bytes.substr(0, n));
      bytes.remove_prefix(n);
    }
  }
}

}  // namespace banyan
