#include "cli/common.hpp"

#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <random>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <thread>
#include <unistd.h>  // isatty

namespace banyan::cli {

int exit_code(const Error& error) {
  switch (error.code()) {
    case ErrorCode::usage: return kUsage;
    case ErrorCode::bad_input:
    case ErrorCode::bad_file:
    case ErrorCode::unsupported:
    case ErrorCode::context_full:
    case ErrorCode::never_fits:
    case ErrorCode::out_of_memory: return kCannotLoad;
    default: return kFailed;
  }
}

std::string version() { return BANYAN_VERSION; }

// --- logs ----------------------------------------------------------------------------------------------------------

namespace {
std::mutex stderr_mutex;         // guards what follows, and the terminal
std::size_t progress_width = 0;  // of the line that stands on the terminal

void wipe_progress() {
  if (progress_width > 0) fmt::print(stderr, "\r{:{}}\r", "", progress_width);
  progress_width = 0;
}
}  // namespace

void end_progress() {
  const std::lock_guard lock(stderr_mutex);
  wipe_progress();
}

void log(const std::string& line) {
  const std::lock_guard lock(stderr_mutex);
  static const auto logger = [] {
    auto l = spdlog::stderr_logger_st("banyan");
    l->set_pattern("%v");
    return l;
  }();
  wipe_progress();
  logger->info(line);
}

void progress(const std::string& line) {
  if (isatty(STDERR_FILENO) == 0) return;
  const std::lock_guard lock(stderr_mutex);
  fmt::print(stderr, "\r{:{}}", line, progress_width);
  progress_width = std::max(progress_width, line.size());
  std::fflush(stderr);
}

// --- interruption --------------------------------------------------------------------------------------------------

namespace {
std::atomic<bool> interrupt_seen{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int number) {
  if (interrupt_seen.exchange(true)) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
}
}  // namespace

bool interrupted() { return interrupt_seen.load(); }
void catch_interrupts() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

// --- values --------------------------------------------------------------------------------------------------------

std::string cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path base =
      cache != nullptr && *cache != '\0' ? cache : std::filesystem::path(home != nullptr ? home : ".") / ".cache";
  return (base / "banyan").string();
}

std::int64_t parse_bytes(const std::string& text, const std::string& flag) {
  static const std::pair<const char*, double> kUnits[] = {
      {"", 1},       {"K", 0x1p10},   {"KIB", 0x1p10}, {"M", 0x1p20}, {"MIB", 0x1p20},
      {"G", 0x1p30}, {"GIB", 0x1p30}, {"KB", 1e3},     {"MB", 1e6},   {"GB", 1e9}};
  std::size_t used = 0;
  double number = -1;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  std::string unit = text.substr(used);
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const auto& [name, factor] : kUnits) {
    if (unit == name && number > 0 && number * factor < 0x1p62) return static_cast<std::int64_t>(number * factor);
  }
  throw Error(ErrorCode::usage, flag, "'" + text + "' is not a size; write bytes, or a number with KiB, MiB or GiB");
}

void make_parent(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) throw Error(ErrorCode::bad_file, parent.string(), "cannot be made: " + error.message());
}

void check_tree_path(const std::string& path) {
  const auto ending = std::filesystem::path(path).extension();
  if (path.empty() || ending == ".json" || ending == ".dot" || ending == ".html") return;
  throw Error(ErrorCode::usage, "--tree", fmt::format("'{}' ends neither in .json, .dot nor .html", path));
}

CLI::Validator whole_number(std::int64_t min, std::int64_t max) {
  CLI::Validator validator;
  validator.operation([min, max](std::string& text) -> std::string {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::invalid_argument || end != text.data() + text.size()) {
      return fmt::format("'{}' is not a whole number", text);
    }
    if (error != std::errc() || value < min || value > max) {
      const bool open = max == std::numeric_limits<std::int64_t>::max();
      return fmt::format("{} is out of range; allowed: {}", text,
                         open ? fmt::format("{} or more", min) : fmt::format("{} to {}", min, max));
    }
    text = std::to_string(value);
    return "";
  });
  return validator;
}

nlohmann::ordered_json to_json(const SamplerOptions& o) {
  nlohmann::ordered_json j;
  if (o.repetition_penalty != 1) j["repetition_penalty"] = o.repetition_penalty;
  if (o.presence_penalty != 0) j["presence_penalty"] = o.presence_penalty;
  if (o.frequency_penalty != 0) j["frequency_penalty"] = o.frequency_penalty;
  j["temperature"] = o.temperature;
  j["top_k"] = o.top_k;
  j["top_p"] = o.top_p;
  j["min_p"] = o.min_p;
  return j;
}

// --- flags ---------------------------------------------------------------------------------------------------------

void ModelFlags::add(CLI::App& app) {
  app.add_option("-m,--model", path, "Model: a Hugging Face directory or one .gguf")->required();
  app.add_option("--device", device,
                 "Where the model computes; auto: a CUDA device if there is one, else the CPU. check: on a CUDA device "
                 "and on the CPU, to the first operation that differs (slow)")
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "check"}))
      ->capture_default_str();
  app.add_option("--device-index", device_index, "Which CUDA device")
      ->transform(whole_number(0, 1024))
      ->capture_default_str();
  app.add_option("--devices", devices,
                 "Several devices, in place of --device: numbers of CUDA devices, and cpu, as 0,1. Each has the whole "
                 "model and its own prompts; flags of memory, threads and batches are of each")
      ->delimiter(',');
  app.add_option_function<std::string>(
         "--tensor-parallel,--tensor-parallel-size",
         [](const std::string&) {
           throw CLI::ValidationError("--tensor-parallel",
                                      "is not there: each of --devices has the whole model, and its own prompts");
         })
      ->configurable(false)
      ->group("");
  app.add_option("--compute", compute, "What weights are multiplied in")
      ->check(CLI::IsMember({"auto", "f32", "bf16"}))
      ->capture_default_str();
  app.add_option("--kv-type", kv_type, "Type of stored keys and values; auto: as --compute; fp8: f8_e4m3")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "f16", "f8_e4m3", "fp8", "fp8_e4m3"}))
      ->capture_default_str();
  app.add_option(
         "--kv-budget", kv_budget,
         "Memory for keys and values: 2GiB, or 60% of what is free beside the weights; auto: a part of that, or "
         "less")
      ->capture_default_str();
  app.add_option("-t,--threads", n_threads, "Threads; 0: all cores, shared among --devices")
      ->transform(whole_number(0, 1024))
      ->capture_default_str();
  app.add_option("--max-batch", max_batch, "Samples that decode side by side")
      ->transform(whole_number(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-rows", max_rows, "Tokens computed in one step, prompts and samples together")
      ->transform(whole_number(1, 1 << 20))
      ->capture_default_str();
  app.add_flag("--deterministic", deterministic, "Bits of a sample depend on its own path alone");
}

std::vector<ModelFlags::Place> ModelFlags::places() const {
  if (devices.empty()) {
    static const std::map<std::string, Device> kDevices{
        {"auto", Device::automatic}, {"cpu", Device::cpu}, {"cuda", Device::cuda}, {"check", Device::check}};
    return {{kDevices.at(device), device_index, device}};
  }
  if (device != "auto" || device_index != 0) {
    throw Error(ErrorCode::usage, "--devices", "stands in place of --device and --device-index; give it alone");
  }
  std::vector<Place> list;
  for (const std::string& text : devices) {
    int index = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    const bool is_number = error == std::errc() && end == text.data() + text.size() && index >= 0;
    if (!is_number && text != "cpu") {
      throw Error(ErrorCode::usage, "--devices", fmt::format("'{}' is neither the number of a device nor cpu", text));
    }
    list.push_back(is_number ? Place{Device::cuda, index, "cuda:" + text} : Place{Device::cpu, 0, text});
  }
  return list;
}

std::shared_ptr<const Model> ModelFlags::load(const Place& place) const {
  LoadOptions options;
  options.compute = compute == "f32" ? Compute::f32 : compute == "bf16" ? Compute::bf16 : Compute::automatic;
  options.device = place.device;
  options.device_index = place.index;
  options.n_threads = n_threads;
  if (devices.size() > 1 && n_threads == 0) {
    options.n_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency() / devices.size()));
  }
  options.deterministic = deterministic;
  options.cache_folder = cache_folder();
  options.notice = [](std::string_view line) { log(std::string(line)); };
  if (kv_budget != "auto") options.kv_bytes = kv_bytes(/*n_free=*/0);
  return Model::load(path, options);
}

ModelGroup ModelFlags::open(const std::function<std::int64_t(const Model&)>& n_tokens_wanted) const {
  ModelGroup group;
  const auto list = places();
  for (const Place& place : list) group.devices.push_back(place.name);
  group.models.resize(list.size());
  group.sessions = std::make_unique<SessionGroup>(list.size(), [&](std::size_t i, Session& session) {
    try {
      const auto begin = std::chrono::steady_clock::now();
      group.models[i] = load(list[i]);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      const auto bytes = static_cast<double>(group.models[i]->weight_bytes());
      log(fmt::format("{} · {:.2f} GB of weights in {:.1f} s, {:.2f} GB/s", group.models[i]->backend_name(),
                      bytes / 1e9, took.count(), bytes / 1e9 / took.count()));
      add_lane(session, group.models[i], n_tokens_wanted(*group.models[i]));
    } catch (const Error& error) {
      if (list.size() == 1) throw;
      throw Error(error.code(), list[i].name, error.what());
    }
  });
  return group;
}

void ModelFlags::check_one_forest(const char* flag) const {
  if (devices.size() < 2) return;
  throw Error(ErrorCode::usage, flag, fmt::format("is of one forest, and {} devices have one each", devices.size()));
}

bool ModelGroup::report_retired() const {
  const auto list = sessions->retired();
  if (list.size() == sessions->size()) throw Error(list[0].error);
  for (const auto& [member, error] : list) {
    log(fmt::format("{} has failed, the samples it had under way are not there: {}", devices[member], error.what()));
  }
  return !list.empty();
}

// Of --kv-budget, where it is not auto; a share is one of what is free.
std::int64_t ModelFlags::kv_bytes(std::int64_t n_free) const {
  if (!kv_budget.ends_with('%')) return parse_bytes(kv_budget, "--kv-budget");
  double percent = 0;
  const char* last = kv_budget.data() + kv_budget.size() - 1;
  const auto [end, error] = std::from_chars(kv_budget.data(), last, percent);
  if (error != std::errc() || end != last || !(percent > 0 && percent <= 100)) {
    throw Error(ErrorCode::usage, "--kv-budget", fmt::format("'{}' is no share above 0 % and up to 100 %", kv_budget));
  }
  return static_cast<std::int64_t>(percent / 100 * static_cast<double>(n_free));
}

void ModelFlags::add_lane(Session& session, const std::shared_ptr<const Model>& model,
                          std::int64_t n_tokens_wanted) const {
  const DType type = kv_type != "auto"                   ? dtype_from_string(kv_type)
                     : model->compute() == Compute::bf16 ? DType::bf16
                                                         : DType::f32;
  const std::int64_t per_token = kv_bytes_per_token(model->config(), type);
  std::int64_t slots = 0;
  if (kv_budget != "auto") {
    slots = kv_bytes(model->free_memory_bytes()) / per_token;
    if (slots < 1) {
      throw Error(ErrorCode::usage, "--kv-budget",
                  fmt::format("{} is less than one token takes ({} bytes)", kv_budget, per_token));
    }
  } else {
    // A device has its memory for this alone; the host has other programs.
    const std::int64_t free = model->free_memory_bytes();
    const std::int64_t share = model->options().device == Device::cpu ? free / 4 : free / 4 * 3;
    slots = std::max<std::int64_t>(kKvBlock, std::min(share / per_token, n_tokens_wanted));
  }
  try {
    session.add_lane(make_runner(model, {.kv_type = type, .n_kv_slots = slots}),
                     {.max_batch = max_batch, .max_rows = max_rows});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory || kv_budget == "auto") throw;
    throw Error(ErrorCode::usage, "--kv-budget", fmt::format("{} cannot be had: {}", kv_budget, error.what()));
  }
  log(fmt::format("model {} · compute {} · KV {} · room for {} tokens ({:.0f} MiB)", model->config().name,
                  model->compute() == Compute::bf16 ? "bf16" : "f32", to_string(type), slots,
                  static_cast<double>(slots * per_token) / 0x1p20));
}

// More samples of one prompt are a slip of the finger, and their bookkeeping alone takes gigabytes.
constexpr std::int64_t kMaxSamples = 1'000'000;

void SampleFlags::add(CLI::App& app, std::int64_t default_max_tokens) {
  max_tokens = default_max_tokens;
  // -n means tokens in one well-known program and samples in others.
  app.add_option_function<std::string>(
         "-n", [](const std::string&) { throw CLI::ValidationError("-n", "did you mean --max-tokens or --n?"); })
      ->expected(0, 1)
      ->configurable(false)
      ->group("");
  app.add_option("--n", n, "Samples of each prompt")->transform(whole_number(1, kMaxSamples))->capture_default_str();
  app.add_option("--max-tokens", max_tokens, "Tokens of each sample; -1: up to the model's context")
      ->transform(whole_number(-1))
      ->capture_default_str();
  app.add_option("-s,--seed", seed, "Seed; -1 draws one and records it")
      ->transform(whole_number(-1))
      ->capture_default_str();
  // One text a flag: CLI11 would else take "[a,b]" for two.
  app.add_option("--stop", stop, "Stop string; may be given several times")->take_all()->allow_extra_args(false);
  app.add_option("--temperature", sampler.temperature, "0 is greedy")->capture_default_str();
  app.add_option("--top-k", sampler.top_k, "0 and -1: off")->transform(whole_number(-1))->capture_default_str();
  app.add_option("--top-p", sampler.top_p, "Keep the likeliest tokens of this total probability")
      ->capture_default_str();
  app.add_option("--min-p", sampler.min_p, "Keep tokens of at least this share of the likeliest one's probability")
      ->capture_default_str();
  app.add_option(
         "--repetition-penalty", sampler.repetition_penalty,
         "Divide positive logits of tokens that are in prompt or sample by this, multiply negative ones; 1: off")
      ->capture_default_str();
  app.add_option("--presence-penalty", sampler.presence_penalty,
                 "Take this off the logit of each token that the sample has; 0: off")
      ->capture_default_str();
  app.add_option("--frequency-penalty", sampler.frequency_penalty,
                 "Take this off the logit of a token for each time that the sample has it; 0: off")
      ->capture_default_str();
  app.add_option("--eos-id", eos_ids,
                 "Id of a token that ends the text, beside the model's own; may be given several times")
      ->transform(whole_number(0, std::numeric_limits<TokenId>::max()))
      ->take_all()
      ->allow_extra_args(false);
  app.add_flag("--ignore-eos", ignore_eos, "Do not end at end-of-text tokens");
}

void TextFlags::add(CLI::App& app, const char* prompt_help, const char* file_help) {
  prompt_option_ = app.add_option("-p,--prompt", prompt, prompt_help);
  file_option_ = app.add_option("-f,--file", file, file_help);
}

bool TextFlags::from_file() const {
  if ((prompt_option_->count() > 0) == (file_option_->count() > 0)) {
    throw prompt_option_->count() > 0 ? Error(ErrorCode::usage, "-p and -f", "give one of them, not both")
                                      : Error(ErrorCode::usage, "-p or -f", "give a text, or a file of it");
  }
  return file_option_->count() > 0;
}

CLI::Option* OutFlags::add(CLI::App& app, const std::string& help, Resume can_resume) {
  can_resume_ = can_resume == Resume::yes;
  CLI::Option* out = app.add_option("--out", path, help);
  app.add_flag("--force", force, "Replace the file of --out where there is one");
  if (can_resume_) app.add_flag("--resume", resume, "Go on with what is in --out");
  return out;
}

void OutFlags::claim() const {
  if (path.empty()) {
    if (resume) throw Error(ErrorCode::usage, "--resume", "goes on with the file of --out, which is not given");
    return;
  }
  if (resume && force) throw Error(ErrorCode::usage, "--resume and --force", "give one of them, not both");
  std::error_code ignored;
  const bool holds_something =
      std::filesystem::is_regular_file(path, ignored) && std::filesystem::file_size(path, ignored) > 0;
  if (holds_something && !resume && !force) {
    throw Error(ErrorCode::usage, path,
                fmt::format("exists already; {}replace it (--force), or give another name",
                            can_resume_ ? "go on with it (--resume), " : ""));
  }
  make_parent(path);
}

SampleOptions SampleFlags::options() {
  for (const std::string& text : stop) {
    if (text.empty()) throw Error(ErrorCode::usage, "--stop", "the empty text ends every sample before it begins");
  }
  validate(sampler);
  if (seed == -1) {
    std::random_device device;
    seed = static_cast<std::int64_t>(((static_cast<std::uint64_t>(device()) << 32) | device()) >> 11);
    seed_note = fmt::format("seed {}", seed);
  }
  SampleOptions o;
  o.n = n;
  o.max_tokens = max_tokens;
  o.seed = static_cast<std::uint64_t>(seed);
  o.stop = stop;
  o.sampler = sampler;
  o.eos_ids.assign(eos_ids.begin(), eos_ids.end());
  o.ignore_eos = ignore_eos;
  return o;
}

void SampleFlags::log_seed() const {
  if (!seed_note.empty()) log(seed_note);
}

}  // namespace banyan::cli
