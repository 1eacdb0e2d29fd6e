// GPT-2's printable byte alphabet: every byte has one printable character, so that vocabularies of byte-level BPE can
// be written as text. Printable Latin-1 bytes stand for themselves, the other 68 are U+0100, U+0101 … in byte order.
// Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace banyan {

std::string byte_to_piece(unsigned char byte);                      // the byte's character, in UTF-8
std::optional<std::string> piece_to_bytes(std::string_view piece);  // nothing if a character is outside the alphabet
std::string bytes_to_piece(std::string_view bytes);

}  // namespace banyan
