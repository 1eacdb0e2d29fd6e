// What the subcommands share: flags of models and samplers, exit codes, interruption, record fields. Layer 9.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "banyan/model.hpp"
#include "banyan/session_group.hpp"

namespace banyan::cli {

enum ExitCode : int { kDone = 0, kFailed = 1, kUsage = 2, kCannotLoad = 3, kFailedItems = 4, kInterrupted = 130 };
int exit_code(const Error& error);

// A subcommand registers its flags and gives back what runs it.
using Command = std::function<int()>;
Command add_generate(CLI::App& app);
Command add_code_sample(CLI::App& app);
Command add_code_eval(CLI::App& app);
Command add_code_merge(CLI::App& app);
Command add_plan(CLI::App& app);
Command add_inspect(CLI::App& app);
Command add_convert(CLI::App& app);
Command add_tokenize(CLI::App& app);
Command add_calibrate(CLI::App& app);

// The model on each device that was asked for, and a session on each.
struct ModelGroup {
  std::vector<std::string> devices;  // their names, for messages
  std::vector<std::shared_ptr<const Model>> models;
  std::unique_ptr<SessionGroup> sessions;

  // Of those on which a device has failed: logs each. True if there are any; throws the first one's error if no other
  // is left.
  bool report_retired() const;
};

struct ModelFlags {
  std::string path;
  std::string device = "auto", compute = "auto", kv_type = "auto", kv_budget = "auto";
  std::vector<std::string> devices;  // in place of device and device_index
  int n_threads = 0, device_index = 0;
  std::int64_t max_batch = 256, max_rows = 1024;
  bool deterministic = false;

  void add(CLI::App& app);
  std::shared_ptr<const Model> load() const { return load(places().front()); }
  // Loads the model on every device and gives it to a session; logs what is used. `n_tokens_wanted`: no more KV than
  // these many tokens, on each device.
  ModelGroup open(const std::function<std::int64_t(const Model&)>& n_tokens_wanted) const;
  // Throws Error{usage} naming the flag where there are several devices, and so several forests.
  void check_one_forest(const char* flag) const;

 private:
  struct Place {
    Device device;
    int index;
    std::string name;  // "cuda:1"
  };
  std::vector<Place> places() const;
  std::shared_ptr<const Model> load(const Place& place) const;
  std::int64_t kv_bytes(std::int64_t n_free) const;
  void add_lane(Session& session, const std::shared_ptr<const Model>& model, std::int64_t n_tokens_wanted) const;
};

struct SampleFlags {
  std::int64_t n = 1, max_tokens = -1, seed = -1;
  std::vector<std::string> stop;
  std::vector<std::int64_t> eos_ids;
  SamplerOptions sampler;
  bool ignore_eos = false;
  std::string seed_note;  // of a seed that the user did not give, for the log: to be said once the run begins

  void add(CLI::App& app, std::int64_t default_max_tokens);
  // Draws the seed where none was given, so that every record holds the one that replays it.
  SampleOptions options();
  void log_seed() const;
};

// A text, from the command line or from a file; the empty text is one too.
class TextFlags {
 public:
  std::string prompt, file;

  void add(CLI::App& app, const char* prompt_help, const char* file_help);
  // Throws Error{usage} unless exactly one of the two was given.
  bool from_file() const;

 private:
  CLI::Option* prompt_option_ = nullptr;
  CLI::Option* file_option_ = nullptr;
};

// Where a command's results go. A file that is there took a run to make: it is never replaced unasked.
class OutFlags {
 public:
  std::string path;  // "": none
  bool resume = false, force = false;

  enum class Resume : std::uint8_t { yes, no };
  // Gives the option --out back.
  CLI::Option* add(CLI::App& app, const std::string& help, Resume can_resume);
  // Makes the file's folder where it is absent. To be called before anything takes time. Throws Error{usage} if the
  // file is there, is not empty, and shall neither be continued nor replaced.
  void claim() const;

 private:
  bool can_resume_ = false;
};

// "sampler" of a record: the filters in the order in which they are applied.
nlohmann::ordered_json to_json(const SamplerOptions& options);
std::string version();

// For commands that look at it: after catch_interrupts() a SIGINT or SIGTERM makes it true; a second one ends the
// process at once.
bool interrupted();
void catch_interrupts();

// Where banyan keeps what it has measured, "~/.cache/banyan".
std::string cache_folder();

// "512MiB", "2G", "1000000" -> bytes. Throws Error{usage}.
std::int64_t parse_bytes(const std::string& text, const std::string& flag);

// Both may be called by several threads at once.
void log(const std::string& line);       // to stderr
void progress(const std::string& line);  // to stderr, overwritten in place, on a terminal only
void end_progress();

// The folder of a file that is to be written, made where it is absent. Throws Error{bad_file}.
void make_parent(const std::string& path);
// A picture's file name, refused before anything runs. Throws Error{usage} for an ending that is not known.
void check_tree_path(const std::string& path);

// Accepts whole decimal numbers of that range; CLI11's own conversion reads 010 as 8 and cuts what is too large.
CLI::Validator whole_number(std::int64_t min, std::int64_t max = std::numeric_limits<std::int64_t>::max());

}  // namespace banyan::cli
