#include "tokens/json_file.hpp"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <iterator>

#include "banyan/error.hpp"

namespace banyan {

std::string read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::bad_file, path, std::string("cannot be opened: ") + std::strerror(errno));
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) throw Error(ErrorCode::bad_file, path, "cannot be read");
  return text;
}

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
