#include "tokens/byte_alphabet.hpp"

#include <array>
#include <cstdint>

namespace banyan {

namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr std::uint16_t kFirstShifted = 0x100;
constexpr std::uint16_t kAlphabetEnd = kFirstShifted + 68;

struct Alphabet {
  std::array<std::uint16_t, 256> code_point{};    // of a byte
  std::array<std::int16_t, kAlphabetEnd> byte{};  // of a code point; -1: not in the alphabet
};

constexpr Alphabet make_alphabet() {
  Alphabet a;
  for (auto& b : a.byte) b = -1;
  std::uint16_t shifted = kFirstShifted;
  for (int byte = 0; byte < 256; ++byte) {
    const std::uint16_t cp = stands_for_itself(byte) ? static_cast<std::uint16_t>(byte) : shifted++;
    a.code_point[static_cast<std::size_t>(byte)] = cp;
    a.byte[cp] = static_cast<std::int16_t>(byte);
  }
  return a;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string byte_to_piece(unsigned char byte) {
  const std::uint16_t cp = kAlphabet.code_point[byte];
  if (cp < 0x80) return std::string(1, static_cast<char>(cp));
  return {static_cast<char>(0xC0 | (cp >> 6)), static_cast<char>(0x80 | (cp & 0x3F))};
}

std::string bytes_to_piece(std::string_view bytes) {
  std::string piece;
  for (const char c : bytes) piece += byte_to_piece(static_cast<unsigned char>(c));
  return piece;
}

std::optional<std::string> piece_to_bytes(std::string_view piece) {
  std::string bytes;
  for (std::size_t i = 0; i < piece.size(); ++i) {
    std::uint32_t cp = static_cast<unsigned char>(piece[i]);
    if (cp >= 0x80) {
      // The alphabet ends at U+0143: two bytes in UTF-8 are all there is.
      if ((cp & 0xE0) != 0xC0 || i + 1 == piece.size()) return std::nullopt;
      const auto low = static_cast<unsigned char>(piece[++i]);
      if ((low & 0xC0) != 0x80) return std::nullopt;
      cp = ((cp & 0x1F) << 6) | (low & 0x3F);
    }
    if (cp >= kAlphabetEnd || kAlphabet.byte[cp] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte[cp]);
  }
  return bytes;
}

}  // namespace banyan
