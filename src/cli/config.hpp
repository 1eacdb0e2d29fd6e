// Config files of the command line: what --config reads and --print-config writes. Layer 9.
//
//     # a comment
//     model = model.gguf
//     temperature = 0.8
//     stop = ["\n\n", "END"]
//
// NAME = VALUE lines, the names those of the flags. A value is a JSON text in quotes, a JSON list of texts and numbers,
// or else everything up to the end of the line, as it stands.
#pragma once

#include <CLI/CLI.hpp>
#include <istream>
#include <string>
#include <vector>

namespace banyan::cli {

class ConfigFile : public CLI::Config {
 public:
  explicit ConfigFile(const CLI::App& root) : root_(root) {}

  // The flags in force of the subcommand that was called; read back they give the same.
  std::string to_config(const CLI::App* app, bool, bool, std::string) const override;
  // Items for the subcommand that was called; flags whose environment variable is set are left out, since the
  // environment goes before the file. Throws Error{usage | bad_file} that names the line.
  std::vector<CLI::ConfigItem> from_config(std::istream& in) const override;

 private:
  const CLI::App& root_;
};

// The subcommand that was called, and the names on the way to it.
const CLI::App& called(const CLI::App& root, std::vector<std::string>* names = nullptr);

// Name of a flag without dashes, or of a positional.
std::string flag_name(const CLI::Option& option);
// "max-tokens" -> "BANYAN_MAX_TOKENS"
std::string environment_name(const std::string& flag);

}  // namespace banyan::cli
