// A whole file as bytes. Layer 0.
#pragma once

#include <cstdint>
#include <string>

namespace banyan {

// Throws Error{bad_file} that names the path and the system's reason, for directories too; and for a file of more than
// `most_bytes`, before they are in memory.
std::string read_file(const std::string& path, std::int64_t most_bytes = INT64_MAX);

}  // namespace banyan
