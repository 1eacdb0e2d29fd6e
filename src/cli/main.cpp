// The command line: subcommands, flag > environment > config file > default, and the one place that prints errors.
#include <cstdio>
#include <fmt/format.h>
#include <iostream>
#include <span>

#include "cli/common.hpp"
#include "cli/config.hpp"
#include "cli/flag_hints.hpp"

namespace banyan::cli {
namespace {

struct Entry {
  CLI::App* app;
  Command run;
};

// Every flag of a subcommand can come from BANYAN_NAME too.
void add_environment(CLI::App& sub) {
  for (CLI::Option* option : sub.get_options()) {
    if (option->get_configurable() && !option->get_lnames().empty())
      option->envname(environment_name(flag_name(*option)));
  }
}

// What went to standard output has arrived, or this throws.
void flush_output() {
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout) {
    throw Error(ErrorCode::device, "stdout", "cannot be written");
  }
}

int run(int argc, char** argv) {
  CLI::App app{"Tree-structured sampling and search over language models", "banyan"};
  app.set_version_flag("--version", version());
  app.require_subcommand(1);
  app.fallthrough();
  app.config_formatter(std::make_shared<ConfigFile>(app));
  app.set_config("--config", "", "Read flags of the subcommand from this file (NAME = VALUE lines)");
  bool print_config = false;
  app.add_flag("--print-config", print_config, "Print the flags in force, as such a file, and stop");
  app.footer("A flag goes before its environment variable (BANYAN_MAX_TOKENS for --max-tokens), that before --config.");
  app.failure_message([](const CLI::App*, const CLI::Error& e) {
    return fmt::format("banyan: {}\nRun with --help for more information.\n", e.what());
  });
  std::vector<Entry> entries;
  const auto add = [&](CLI::App* parent, const char* name, const char* help, Command (*setup)(CLI::App&)) {
    CLI::App* sub = parent->add_subcommand(name, help);
    entries.push_back({sub, setup(*sub)});
    sub->footer(sub->get_footer() + "\n\nMore flags, for every subcommand: banyan --help");
    add_environment(*sub);
  };
  add(&app, "generate", "Sample from prompts", add_generate);
  CLI::App* code = app.add_subcommand("code", "Sample and score programs");
  code->require_subcommand(1);
  add(code, "sample", "Sample programs for problems, as a two-level tree", add_code_sample);
  add(code, "eval", "Run sampled programs against tests", add_code_eval);
  add(code, "merge", "Join the sample files of shards", add_code_merge);
  add(&app, "plan", "Print the plan of a tree, with its costs", add_plan);
  add(&app, "inspect", "Say what a model file holds and what would be used", add_inspect);
  add(&app, "convert", "Write a model in another form or element type", add_convert);
  add(&app, "tokenize", "Text to token ids", add_tokenize);
  add(&app, "calibrate", "Measure the constants of plan's predictions, on an idle machine", add_calibrate);

  // CLI11 would only say that a subcommand is missing.
  for (const CLI::App* at = &app; const std::string word : std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
    if (word.starts_with('-') || at->get_require_subcommand_min() == 0) break;
    const auto sub = at->get_subcommands([&](const CLI::App* s) { return s->get_name() == word; });
    if (sub.empty()) throw Error(ErrorCode::usage, word, fmt::format("no subcommand of {}", at->get_name()));
    at = sub.front();
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::FileError& e) {
    throw Error(ErrorCode::bad_file, "--config", e.what());
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) refuse_unknown_flag(app);
    return app.exit(e) == 0 ? kDone : kUsage;
  }
  for (const Entry& e : entries) {
    if (!e.app->parsed()) continue;
    if (!print_config) return e.run();
    std::cout << app.get_config_formatter()->to_config(e.app, true, false, "");
    return kDone;
  }
  return kUsage;
}

}  // namespace
}  // namespace banyan::cli

int main(int argc, char** argv) {
  using namespace banyan::cli;
  try {
    const int code = run(argc, argv);
    flush_output();
    return code;
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
