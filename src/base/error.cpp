#include "banyan/error.hpp"

namespace banyan {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage: return "usage";
    case ErrorCode::bad_input: return "bad_input";
    case ErrorCode::bad_file: return "bad_file";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::stale_handle: return "stale_handle";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::never_fits: return "never_fits";
    case ErrorCode::context_full: return "context_full";
    case ErrorCode::bad_logits: return "bad_logits";
    case ErrorCode::cancelled: return "cancelled";
    case ErrorCode::device: return "device";
  }
  return "unknown";
}

}  // namespace banyan
