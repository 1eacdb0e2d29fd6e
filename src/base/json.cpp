#include "base/json.hpp"

#include <fmt/format.h>
#include <limits>
#include <set>
#include <vector>

#include "banyan/read_file.hpp"

namespace banyan {
namespace {

constexpr int kMaxDepth = 64;

const nlohmann::json* find(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Error wrong_type(const std::string& where, const char* key, const char* wanted, const nlohmann::json& value) {
  return {ErrorCode::bad_file, fmt::format("{}: key '{}'", where, key),
          fmt::format("is a {}, {} is wanted", value.type_name(), wanted)};
}

nlohmann::json parse(std::string_view text, const std::string& where, bool unique_keys) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, Event event, nlohmann::json& value) {
    if (depth > kMaxDepth) {
      throw Error(ErrorCode::bad_file, where, fmt::format("is nested deeper than {} levels", kMaxDepth));
    }
    if (!unique_keys) return true;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get<std::string>()).second) {
      throw Error(ErrorCode::bad_file, where, fmt::format("key '{}' stands there twice", value.get<std::string>()));
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), watch);
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorCode::bad_file, where, std::string("is not valid JSON: ") + e.what());
  }
}

}  // namespace

nlohmann::json parse_json(std::string_view text, const std::string& where) { return parse(text, where, false); }

nlohmann::json parse_json_object(std::string_view text, const std::string& where) {
  auto parsed = parse(text, where, true);
  if (!parsed.is_object()) throw Error(ErrorCode::bad_file, where, "is not a JSON object");
  return parsed;
}

nlohmann::json read_json_object(const std::string& path) { return parse_json_object(read_file(path), path); }

std::optional<std::int64_t> find_int(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json* value = find(object, key);
  if (value == nullptr) return std::nullopt;
  const bool too_large = value->is_number_unsigned() &&
                         value->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  if (!value->is_number_integer() || too_large) throw wrong_type(where, key, "an integer of 63 bits", *value);
  return value->get<std::int64_t>();
}

std::optional<double> find_float(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json* value = find(object, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) throw wrong_type(where, key, "a number", *value);
  return value->get<double>();
}

std::optional<bool> find_bool(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json* value = find(object, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) throw wrong_type(where, key, "a boolean", *value);
  return value->get<bool>();
}

std::optional<std::string> find_string(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json* value = find(object, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) throw wrong_type(where, key, "a string", *value);
  return value->get<std::string>();
}

}  // namespace banyan
