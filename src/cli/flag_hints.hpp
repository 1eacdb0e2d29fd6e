// What somebody may have meant by a flag that is none. Layer 9.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace banyan::cli {

// "; did you mean --max-tokens?", by the flags of `app` and of the commands above it; "" if none is near. `typed` may
// have dashes in front, underscores, and a value behind "=".
std::string flag_hint(const CLI::App& app, std::string_view typed);

// After a parse that failed: throws Error{usage} for the first word that looks like a flag and is none of the
// subcommand that was called.
void refuse_unknown_flag(const CLI::App& root);

}  // namespace banyan::cli
