#include "tokens/json_file.hpp"

#include <fmt/format.h>

#include "banyan/error.hpp"

namespace banyan {

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  using nlohmann::json;
  const auto refuse_deep = [&](int depth, json::parse_event_t, json&) {
    if (depth > kMaxJsonDepth) {
      throw Error(ErrorCode::bad_file, where, fmt::format("JSON is nested deeper than {} levels", kMaxJsonDepth));
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), refuse_deep);
  } catch (const json::exception& e) {
    throw Error(ErrorCode::bad_file, where, e.what());
  }
}

}  // namespace banyan
