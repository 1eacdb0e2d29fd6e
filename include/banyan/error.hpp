// The one exception type of banyan. Layer 0: everybody may include it; it includes nothing of ours.
//
// Wrong input, a wrong file, lack of memory or a device failure throw `Error`; a broken invariant of our own is an
// assert. The message carries the offending values and, where there is one, the way out. Only the CLI prints errors.
// After any Error the process can go on with good input.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace banyan {

enum class ErrorCode {
  usage,          // a flag or an argument of a call is out of its range
  bad_input,      // a prompt, a problem, a sample line: data given by the user that cannot be used
  bad_file,       // a file is absent, truncated, malformed or contradicts itself
  unsupported,    // well-formed, but banyan does not do it (named, never silently replaced)
  stale_handle,   // a node that was pruned, or belongs to another tree
  out_of_memory,  // the host or the device has no memory for it; message has both sizes
  never_fits,     // needs more KV slots than the pool has in all; message has both sizes
  context_full,   // the position limit of the model is reached
  bad_logits,     // a row of logits has no usable candidate (NaN, or all -inf); message has the row
  cancelled,      // the search that asked was destroyed
  device,         // a device or a system call failed
};

// Stable lower-case name ("bad_file"), for logs and JSON.
std::string_view to_string(ErrorCode code);

class Error : public std::runtime_error {
 public:
  // `where` names the thing: a file, tensor, key, node, row or flag. what() is "where: message", or the message alone.
  Error(ErrorCode code, std::string where, const std::string& message)
      : std::runtime_error(where.empty() ? message : where + ": " + message), code_(code), where_(std::move(where)) {}

  ErrorCode code() const noexcept { return code_; }
  const std::string& where() const noexcept { return where_; }

 private:
  ErrorCode code_;
  std::string where_;
};

}  // namespace banyan
