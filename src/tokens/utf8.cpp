#include "tokens/utf8.hpp"

#include <string>

#include "banyan/tokenizer.hpp"

namespace banyan {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// How a character may go on after its first byte: table 3-7 of the Unicode Standard.
struct Lead {
  std::size_t n_bytes;  // of the whole character; 0: no character starts with this byte
  unsigned char second_min, second_max;
};

Lead lead_of(unsigned char b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Part utf8_front(std::string_view bytes) {
  const Lead lead = lead_of(static_cast<unsigned char>(bytes[0]));
  if (lead.n_bytes == 0) return {1, false, false};
  unsigned char min = lead.second_min, max = lead.second_max;
  for (std::size_t i = 1; i < lead.n_bytes; ++i) {
    if (i == bytes.size()) return {i, false, true};
    const auto b = static_cast<unsigned char>(bytes[i]);
    if (b < min || b > max) return {i, false, false};
    min = 0x80;
    max = 0xBF;
  }
  return {lead.n_bytes, true, false};
}

std::size_t utf8_valid_length(std::string_view bytes) {
  std::size_t n = 0;
  while (n < bytes.size()) {
    const Utf8Part part = utf8_front(bytes.substr(n));
    if (!part.valid) break;
    n += part.n_bytes;
  }
  return n;
}

std::size_t utf8_invalid_length(std::string_view bytes) {
  std::size_t n = 0;
  while (n < bytes.size()) {
    const Utf8Part part = utf8_front(bytes.substr(n));
    if (part.valid) break;
    n += part.n_bytes;
  }
  return n;
}

std::string Utf8Stream::push(std::string_view bytes) {
  held_ += bytes;
  std::string out;
  out.reserve(held_.size());
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Part part = utf8_front(rest);
    if (part.cut) break;
    out += part.valid ? rest.substr(0, part.n_bytes) : kReplacement;
    rest.remove_prefix(part.n_bytes);
  }
  held_ = std::string(rest);
  return out;
}

std::string Utf8Stream::flush() {
  // push() keeps back nothing but the cut start of one character: one maximal part.
  const bool cut = !held_.empty();
  held_.clear();
  return cut ? std::string(kReplacement) : std::string();
}

std::string sanitize_utf8(std::string_view bytes) {
  Utf8Stream stream;
  std::string out = stream.push(bytes);
  return out += stream.flush();
}

}  // namespace banyan
