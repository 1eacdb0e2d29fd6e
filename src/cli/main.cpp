// The command line: subcommands, flag > environment > config file > default, and the one place that prints errors.
#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <iostream>

#include "cli/common.hpp"

namespace banyan::cli {
namespace {

struct Entry {
  CLI::App* app;
  Command run;
};

// BANYAN_MAX_TOKENS=8 is --max-tokens 8 where the flag is not given. Done before parsing, so that the environment goes
// before the config file.
void add_environment(CLI::App& chosen, std::vector<std::string>& args) {
  for (const CLI::Option* option : chosen.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames()[0] == "help") continue;
    const std::string& name = option->get_lnames()[0];
    std::string variable = "BANYAN_" + name;
    for (char& c : variable) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr) continue;
    const bool given = std::any_of(args.begin(), args.end(), [&](const std::string& a) {
      if (a == "--" + name || a.starts_with("--" + name + "=")) return true;
      return std::any_of(option->get_snames().begin(), option->get_snames().end(),
                         [&](const std::string& s) { return a == "-" + s; });
    });
    if (!given) args.push_back(fmt::format("--{}={}", name, value));
  }
}

int run(int argc, char** argv) {
  CLI::App app{"Tree-structured sampling and search over language models", "banyan"};
  app.set_version_flag("--version", version());
  app.require_subcommand(1);
  app.fallthrough();
  bool print_config = false;
  std::vector<Entry> entries;
  const auto add = [&](CLI::App* parent, const char* name, const char* help, Command (*setup)(CLI::App&)) {
    CLI::App* sub = parent->add_subcommand(name, help);
    sub->set_config("--config", "", "Read flags from this file (NAME=VALUE lines)");
    sub->add_flag("--print-config", print_config, "Print the flags in force and stop")->configurable(false);
    entries.push_back({sub, setup(*sub)});
  };
  add(&app, "generate", "Sample from prompts", add_generate);
  CLI::App* code = app.add_subcommand("code", "Sample and score programs");
  code->require_subcommand(1);
  add(code, "sample", "Sample programs for problems, as a two-level tree", add_code_sample);
  add(code, "eval", "Run sampled programs against tests", add_code_eval);
  add(code, "merge", "Join the sample files of shards", add_code_merge);
  add(&app, "plan", "Print the plan of a tree, with its costs", add_plan);
  add(&app, "inspect", "Say what a model file holds and what would be used", add_inspect);
  add(&app, "tokenize", "Text to token ids", add_tokenize);
  add(&app, "calibrate", "Measure this machine's constants for predictions", add_calibrate);

  std::vector<std::string> args(argv + 1, argv + argc);
  for (const Entry& e : entries) {
    const bool nested = e.app->get_parent() == code;
    const std::size_t at = nested ? 1 : 0;
    if (args.size() > at && args[at] == e.app->get_name() && (!nested || args[0] == "code"))
      add_environment(*e.app, args);
  }
  std::reverse(args.begin(), args.end());  // as CLI11 wants them
  try {
    app.parse(args);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kDone : kUsage;
  }
  for (const Entry& e : entries) {
    if (!e.app->parsed()) continue;
    if (print_config) {
      std::cout << e.app->config_to_str(true, false);
      return kDone;
    }
    return e.run();
  }
  return kUsage;
}

}  // namespace
}  // namespace banyan::cli

int main(int argc, char** argv) {
  using namespace banyan::cli;
  catch_interrupts();
  try {
    return run(argc, argv);
  } catch (const banyan::Error& e) {
    end_progress();
    fmt::print(stderr, "banyan: {}\n", e.what());
    return exit_code(e);
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "banyan: out of memory\n");
    return kFailed;
  } catch (const std::exception& e) {
    fmt::print(stderr, "banyan: {}\n", e.what());
    return kFailed;
  }
}
