#include "cli/config.hpp"

#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

#include "banyan/error.hpp"
#include "cli/flag_hints.hpp"

namespace banyan::cli {
namespace {

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t\r");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// Quotes only what would not be read back as it stands; so a path may hold bytes that are no UTF-8.
std::string to_value(const std::string& text) {
  const bool plain = !text.empty() && trimmed(text) == text && text[0] != '"' && text[0] != '[' &&
                     text.find('\n') == std::string::npos;
  return plain ? text : nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string to_value(const std::vector<std::string>& texts) {
  return nlohmann::json(texts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<std::string> from_value(const std::string& value, const std::string& where) {
  if (value.empty() || (value[0] != '"' && value[0] != '[')) return {value};
  const auto json = nlohmann::json::parse(value, nullptr, false);
  if (json.is_discarded()) throw Error(ErrorCode::bad_file, where, fmt::format("{} is not JSON", value));
  if (json.is_string()) return {json.get<std::string>()};
  std::vector<std::string> texts;
  for (const auto& item : json) {
    if (!item.is_string() && !item.is_number()) {
      throw Error(ErrorCode::bad_file, where, fmt::format("{} is neither a text nor a number", item.dump()));
    }
    texts.push_back(item.is_string() ? item.get<std::string>() : item.dump());
  }
  return texts;
}

const CLI::Option* find_flag(const CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_configurable() && flag_name(*option) == name) return option;
  }
  return nullptr;
}

}  // namespace

const CLI::App& called(const CLI::App& root, std::vector<std::string>* names) {
  const CLI::App* app = &root;
  for (auto subs = app->get_subcommands(); !subs.empty(); subs = app->get_subcommands()) {
    app = subs.front();
    if (names != nullptr) names->push_back(app->get_name());
  }
  return *app;
}

std::string flag_name(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return option.get_lnames()[0];
  return option.get_snames().empty() ? option.get_name(true) : option.get_snames()[0];
}

std::string environment_name(const std::string& flag) {
  std::string name = "BANYAN_" + flag;
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string ConfigFile::to_config(const CLI::App* app, bool, bool, std::string) const {
  std::string text;
  for (const CLI::Option* option : app->get_options()) {
    if (!option->get_configurable()) continue;
    std::string value = option->get_default_str();
    if (option->get_expected_max() == 0) {
      value = option->count() > 0 && option->as<bool>() ? "true" : "false";
    } else if (option->count() > 0) {
      value = option->get_expected_max() > 1 ? to_value(option->results()) : to_value(option->results().back());
    }
    if (!value.empty()) text += fmt::format("{} = {}\n", flag_name(*option), value);
  }
  return text;
}

std::vector<CLI::ConfigItem> ConfigFile::from_config(std::istream& in) const {
  std::vector<CLI::ConfigItem> items;
  std::vector<std::string> parents;
  const CLI::App& app = called(root_, &parents);
  const std::string path = root_.get_option("--config")->as<std::string>();
  std::set<std::string> seen;
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    const std::string where = fmt::format("{}:{}", path, ++number);
    line = trimmed(line);
    if (line.empty() || line[0] == '#') continue;
    const auto equals = line.find('=');
    if (equals == std::string::npos)
      throw Error(ErrorCode::bad_file, where, fmt::format("'{}' is no NAME = VALUE", line));
    CLI::ConfigItem item;
    item.parents = parents;
    item.name = trimmed(line.substr(0, equals));
    if (find_flag(app, item.name) == nullptr) {
      throw Error(ErrorCode::bad_file, where,
                  fmt::format("'{}' is no flag of {}{}", item.name, app.get_name(), flag_hint(app, item.name)));
    }
    if (!seen.insert(item.name).second) {
      throw Error(ErrorCode::bad_file, where,
                  fmt::format("'{}' was there before; a list is [\"a\", \"b\"]", item.name));
    }
    item.inputs = from_value(trimmed(line.substr(equals + 1)), where);
    const char* variable = std::getenv(environment_name(item.name).c_str());
    if (variable == nullptr || *variable == '\0') items.push_back(std::move(item));
  }
  return items;
}

}  // namespace banyan::cli
