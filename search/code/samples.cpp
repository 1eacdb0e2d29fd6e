#include "banyan/code/samples.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "banyan/read_file.hpp"
#include "banyan/tokenizer.hpp"
#include "json_text.hpp"

namespace banyan::code {

namespace {

using Kind = JsonText::Kind;

Error file_error(const std::string& path, const char* what) {
  return Error(ErrorCode::bad_file, path, fmt::format("{}: {}", what, std::strerror(errno)));
}

void write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(ErrorCode::device, path, fmt::format("cannot be written: {}", std::strerror(errno)));
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

bool is_json(std::string_view text) {
  try {
    parse_json(text, "");
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Calls visit(line number from 1, line) for every line that is not empty.
void for_each_line(std::string_view content, const auto& visit) {
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    const std::string_view line = content.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) visit(number, line);
  }
}

template <typename T>
std::optional<T> number_member(const JsonText& object, const char* key) {
  const JsonText* value = object.find(key);
  T number{};
  if (!value || !value->is(Kind::number)) return std::nullopt;
  const char* end = value->text.data() + value->text.size();
  const auto [at, error] = std::from_chars(value->text.data(), end, number);
  if (error != std::errc() || at != end) return std::nullopt;
  return number;
}

std::string text_member(const JsonText& object, const char* key) {
  const JsonText* value = object.find(key);
  return value && value->is(Kind::string) ? value->text : "";
}

struct ParsedLine {
  SampleRecord record;
  bool has_sample_id = false;
};

ParsedLine parse_sample(std::string_view line, const std::string& where) {
  const JsonText object = parse_json(line, where);
  for (const char* key : {"task_id", "completion"}) {
    const JsonText* value = object.find(key);
    if (!value) throw Error(ErrorCode::bad_file, where, fmt::format("\"{}\" is missing", key));
    if (!value->is(Kind::string)) throw Error(ErrorCode::bad_file, where, fmt::format("\"{}\" is not a string", key));
  }
  ParsedLine parsed;
  SampleRecord& record = parsed.record;
  record.task_id = text_member(object, "task_id");
  record.completion = text_member(object, "completion");
  if (const JsonText* text = object.find("text"); text && text->is(Kind::string)) record.text = text->text;
  if (const JsonText* id = object.find("sample_id")) {
    const auto number = number_member<std::int64_t>(object, "sample_id");
    if (!number || *number < 0)
      throw Error(ErrorCode::bad_file, where, fmt::format("\"sample_id\" is {}, not a number from 0", id->text));
    record.sample_id = *number;
    parsed.has_sample_id = true;
  }
  record.n_prompt_tokens = number_member<std::int64_t>(object, "n_prompt_tokens");
  record.n_tokens = number_member<std::int64_t>(object, "n_tokens");
  record.finish_reason = text_member(object, "finish_reason");
  record.cumulative_logprob = number_member<double>(object, "cumulative_logprob");
  record.seed = number_member<std::uint64_t>(object, "seed");
  record.model = text_member(object, "model");
  record.version = text_member(object, "version");
  return parsed;
}

// Reads every sample of a text: visit(record, line, line number), fail(error).
void for_each_sample(std::string_view content, const std::string& path, const auto& visit, const auto& fail) {
  std::map<std::string, std::int64_t> next_id;
  for_each_line(content, [&](std::int64_t number, std::string_view line) {
    try {
      ParsedLine parsed = parse_sample(line, fmt::format("{}:{}", path, number));
      if (!parsed.has_sample_id) parsed.record.sample_id = next_id[parsed.record.task_id]++;
      visit(parsed.record, line, number);
    } catch (const Error& error) {
      fail(error);
    }
  });
}

// Length of the part of a JSON Lines file that is whole; `add_end` if its last line lacks only the line end.
std::size_t whole_length(std::string_view content, bool& add_end) {
  add_end = false;
  const std::size_t last = content.rfind('\n');
  const std::size_t begin = last == std::string_view::npos ? 0 : last + 1;
  if (begin == content.size()) return begin;
  add_end = is_json(content.substr(begin));
  return add_end ? content.size() : begin;
}

}  // namespace

std::string to_json_line(const SampleRecord& record) {
  nlohmann::ordered_json line;
  line["task_id"] = sanitize_utf8(record.task_id);
  line["sample_id"] = record.sample_id;
  line["completion"] = sanitize_utf8(record.completion);
  if (record.text) line["text"] = sanitize_utf8(*record.text);
  if (record.n_prompt_tokens) line["n_prompt_tokens"] = *record.n_prompt_tokens;
  if (record.n_tokens) line["n_tokens"] = *record.n_tokens;
  if (!record.finish_reason.empty()) line["finish_reason"] = record.finish_reason;
  // nlohmann writes null for what is not finite.
  if (record.cumulative_logprob) line["cumulative_logprob"] = *record.cumulative_logprob;
  if (record.seed) line["seed"] = *record.seed;
  if (!record.model.empty()) line["model"] = sanitize_utf8(record.model);
  if (!record.version.empty()) line["version"] = record.version;
  if (!record.extra_json.empty()) {
    const auto extra = nlohmann::ordered_json::parse(record.extra_json, nullptr, false);
    if (!extra.is_object())
      throw Error(ErrorCode::bad_input, "extra_json", "is not a JSON object: " + record.extra_json.substr(0, 80));
    for (const auto& [key, value] : extra.items()) line[key] = value;
  }
  return line.dump();
}

struct JsonLinesWriter::File {
  std::string path;
  int fd = -1;
  off_t length = 0;  // of all whole lines
  std::mutex mutex;

  ~File() {
    if (fd >= 0) close(fd);
  }
};

JsonLinesWriter::JsonLinesWriter(const std::string& path, bool resume) : file_(std::make_unique<File>()) {
  file_->path = path;
  file_->fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (resume ? 0 : O_TRUNC), 0666);
  if (file_->fd < 0) throw file_error(path, "cannot be opened for writing");
  if (!resume) return;
  bool add_end = false;
  file_->length = static_cast<off_t>(whole_length(read_file(path), add_end));
  if (ftruncate(file_->fd, file_->length) != 0 || lseek(file_->fd, file_->length, SEEK_SET) < 0)
    throw file_error(path, "its torn last line cannot be cut off");
  if (add_end) {
    write_all(file_->fd, "\n", path);
    ++file_->length;
  }
}

JsonLinesWriter::~JsonLinesWriter() = default;

void JsonLinesWriter::append(std::string_view line) {
  const std::string whole = std::string(line) + "\n";
  const std::lock_guard lock(file_->mutex);
  try {
    write_all(file_->fd, whole, file_->path);
    file_->length += static_cast<off_t>(whole.size());
  } catch (const Error&) {
    // Half a line must not be followed by another one.
    if (ftruncate(file_->fd, file_->length) == 0) lseek(file_->fd, file_->length, SEEK_SET);
    throw;
  }
}

SampleFile read_samples(const std::string& path) {
  SampleFile file;
  std::set<SampleKey> seen;
  for_each_sample(
      read_file(path), path,
      [&](SampleRecord& record, std::string_view, std::int64_t number) {
        if (seen.insert(record.key()).second)
          file.samples.push_back(std::move(record));
        else
          file.errors.push_back(
              Error(ErrorCode::bad_file, fmt::format("{}:{}", path, number),
                    fmt::format("sample {} of {} was there before", record.sample_id, record.task_id)));
      },
      [&](const Error& error) { file.errors.push_back(error); });
  return file;
}

std::set<SampleKey> done_samples(const std::string& path) {
  std::set<SampleKey> done;
  if (!std::filesystem::exists(path)) return done;
  const std::string content = read_file(path);
  bool add_end = false;
  const std::string_view whole = std::string_view(content).substr(0, whole_length(content, add_end));
  for_each_sample(
      whole, path, [&](SampleRecord& record, std::string_view, std::int64_t) { done.insert(record.key()); },
      [](const Error&) {});
  return done;
}

MergeReport merge_samples(const std::vector<std::string>& inputs, const std::string& output) {
  struct Origin {
    std::string completion, where;
  };
  MergeReport report;
  std::map<SampleKey, Origin> seen;
  std::string merged;
  for (const std::string& path : inputs) {
    for_each_sample(
        read_file(path), path,
        [&](SampleRecord& record, std::string_view line, std::int64_t number) {
          const std::string where = fmt::format("{}:{}", path, number);
          const auto [entry, is_new] = seen.try_emplace(record.key(), Origin{record.completion, where});
          if (is_new) {
            merged.append(line).push_back('\n');
            ++report.n_samples;
          } else if (entry->second.completion == record.completion) {
            ++report.n_duplicates;
          } else {
            throw Error(ErrorCode::bad_input, where,
                        fmt::format("sample {} of {} has another completion than at {}", record.sample_id,
                                    record.task_id, entry->second.where));
          }
        },
        [](const Error& error) { throw error; });
  }
  write_file_atomically(output, merged);
  return report;
}

void write_file_atomically(const std::string& path, std::string_view content) {
  const std::string beside = fmt::format("{}.{}.part", path, getpid());
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) throw file_error(beside, "cannot be opened for writing");
  try {
    write_all(fd, content, beside);
    if (fsync(fd) != 0)
      throw Error(ErrorCode::device, beside, fmt::format("cannot be written: {}", std::strerror(errno)));
  } catch (const Error&) {
    close(fd);
    unlink(beside.c_str());
    throw;
  }
  close(fd);
  if (rename(beside.c_str(), path.c_str()) != 0) {
    const Error error = file_error(path, "cannot be replaced");
    unlink(beside.c_str());
    throw error;
  }
}

}  // namespace banyan::code
