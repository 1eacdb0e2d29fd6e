// A whole file as bytes. Layer 0.
#pragma once

#include <string>

namespace banyan {

// Throws Error{bad_file} that names the path and the system's reason, for directories too.
std::string read_file(const std::string& path);

}  // namespace banyan
