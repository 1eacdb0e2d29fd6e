// White space at the ends of a text: Unicode's White_Space, of any bytes. Pure functions.
#pragma once

#include <string_view>

namespace banyan {

// `more`: ASCII characters that count, too.
std::string_view strip_front(std::string_view text, std::string_view more = {});
std::string_view strip_back(std::string_view text, std::string_view more = {});

}  // namespace banyan
