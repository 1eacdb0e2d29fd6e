// Unicode normalisation form C, in time in proportion to the text. Pure function.
#pragma once

#include <string>
#include <string_view>

namespace banyan {

std::string to_nfc(std::string_view text);  // `text` must be well-formed UTF-8

}  // namespace banyan
