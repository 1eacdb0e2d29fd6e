// The program in the text that a model wrote. Layer 8: pure functions on text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "banyan/code/problems.hpp"

namespace banyan::code {

enum class ExtractMode : std::uint8_t {
  automatic,  // the fenced block where there is one, else the text; an indentation before all of a script is removed
  raw,        // the text as it is
  fence,      // the fenced block, else nothing
};

// "auto", "raw", "fence". Throws Error{usage} that lists them.
ExtractMode extract_mode(const std::string& name);

// The first block fenced with ``` that is marked as Python or not marked, else the first of any mark. A block that is
// not closed reaches to the end; text that begins inside a block (the prompt opened it) ends at the closing fence.
std::string extract_program(std::string_view text, ExtractMode mode, ProblemKind kind);

}  // namespace banyan::code
