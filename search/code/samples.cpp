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

#include "banyan/tokenizer.hpp"
#include "json_text.hpp"
#include "line_reader.hpp"

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

template <typename T>
std::optional<T> number_of(const JsonText& value) {
  T number{};
  if (!value.is(Kind::number)) return std::nullopt;
  const char* end = value.raw().data() + value.raw().size();
  const auto [at, error] = std::from_chars(value.raw().data(), end, number);
  if (error != std::errc() || at != end) return std::nullopt;
  return number;
}

struct ParsedLine {
  SampleRecord record;
  bool has_sample_id = false, has_task_id = false, has_completion = false;
};

std::string required_text(const JsonItems& member, const std::string& where) {
  if (!member.value().is(Kind::string))
    throw Error(ErrorCode::bad_file, where, fmt::format("\"{}\" is not a string", member.key()));
  return member.value().text();
}

// A member of another type than ours is not known.
std::string text_or_empty(const JsonText& value) { return value.is(Kind::string) ? value.text() : ""; }

void take_member(const JsonItems& member, const std::string& where, ParsedLine& parsed) {
  const JsonText& value = member.value();
  SampleRecord& record = parsed.record;
  if (member.key_is("task_id")) {
    record.task_id = sanitize_utf8(required_text(member, where));
    parsed.has_task_id = true;
  } else if (member.key_is("completion")) {
    record.completion = required_text(member, where);
    parsed.has_completion = true;
  } else if (member.key_is("sample_id")) {
    const auto number = number_of<std::int64_t>(value);
    if (!number || *number < 0)
      throw Error(ErrorCode::bad_file, where,
                  fmt::format("\"sample_id\" is {}, not a number from 0", shown(value.raw())));
    record.sample_id = *number;
    parsed.has_sample_id = true;
  } else if (member.key_is("text")) {
    if (value.is(Kind::string)) record.text = value.text();
  } else if (member.key_is("n_prompt_tokens")) {
    record.n_prompt_tokens = number_of<std::int64_t>(value);
  } else if (member.key_is("n_tokens")) {
    record.n_tokens = number_of<std::int64_t>(value);
  } else if (member.key_is("finish_reason")) {
    record.finish_reason = text_or_empty(value);
  } else if (member.key_is("cumulative_logprob")) {
    record.cumulative_logprob = number_of<double>(value);
  } else if (member.key_is("seed")) {
    record.seed = number_of<std::uint64_t>(value);
  } else if (member.key_is("model")) {
    record.model = text_or_empty(value);
  } else if (member.key_is("version")) {
    record.version = text_or_empty(value);
  }
}

ParsedLine parse_sample(std::string_view line, const std::string& where) {
  const JsonText object = parse_json(line, where);
  if (!object.is(Kind::object)) throw Error(ErrorCode::bad_file, where, "is not a JSON object");
  ParsedLine parsed;
  for (JsonItems member(object); member.next();) take_member(member, where, parsed);
  if (!parsed.has_task_id) throw Error(ErrorCode::bad_file, where, "\"task_id\" is missing");
  if (!parsed.has_completion) throw Error(ErrorCode::bad_file, where, "\"completion\" is missing");
  return parsed;
}

// Reads every sample of a file: visit(record, reader), fail(error).
void for_each_sample(const std::string& path, const auto& visit, const auto& fail) {
  std::map<std::string, std::int64_t> next_id;
  for (LineReader lines(path); lines.next();) {
    if (lines.is_blank()) continue;
    try {
      ParsedLine parsed = parse_sample(lines.line(), lines.where());
      if (!parsed.has_sample_id) parsed.record.sample_id = next_id[parsed.record.task_id]++;
      visit(parsed.record, lines);
    } catch (const Error& error) {
      fail(error);
    }
  }
}

bool is_json(const LineReader& lines) {
  try {
    parse_json(lines.line(), lines.where());
    return true;
  } catch (const Error&) {
    return false;
  }
}

struct WholePart {
  std::int64_t n_bytes = 0;  // of a JSON Lines file, up to a torn last line
  bool lacks_end = false;    // the last of its lines lacks only its line end
};

WholePart whole_part(const std::string& path) {
  WholePart part;
  for (LineReader lines(path); lines.next();) {
    part.lacks_end = !lines.has_end() && is_json(lines);
    if (lines.has_end() || part.lacks_end) part.n_bytes = lines.end();
  }
  return part;
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
  if (!record.finish_reason.empty()) line["finish_reason"] = sanitize_utf8(record.finish_reason);
  // nlohmann writes null for what is not finite.
  if (record.cumulative_logprob) line["cumulative_logprob"] = *record.cumulative_logprob;
  if (record.seed) line["seed"] = *record.seed;
  if (!record.model.empty()) line["model"] = sanitize_utf8(record.model);
  if (!record.version.empty()) line["version"] = sanitize_utf8(record.version);
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
  const WholePart whole = whole_part(path);
  file_->length = static_cast<off_t>(whole.n_bytes);
  if (ftruncate(file_->fd, file_->length) != 0 || lseek(file_->fd, file_->length, SEEK_SET) < 0)
    throw file_error(path, "its torn last line cannot be cut off");
  if (whole.lacks_end) {
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
  const auto fail = [&](const Error& error) {
    if (++file.n_errors <= static_cast<std::int64_t>(kMostErrors)) file.errors.push_back(error);
  };
  const auto take = [&](SampleRecord& record, const LineReader& lines) {
    if (!seen.insert(record.key()).second)
      throw Error(ErrorCode::bad_file, lines.where(),
                  fmt::format("sample {} of {} was there before", record.sample_id, shown(record.task_id)));
    file.samples.push_back(std::move(record));
  };
  for_each_sample(path, take, fail);
  return file;
}

std::set<SampleKey> done_samples(const std::string& path) {
  std::set<SampleKey> done;
  if (!std::filesystem::exists(path)) return done;
  for_each_sample(
      path, [&](SampleRecord& record, const LineReader&) { done.insert(record.key()); }, [](const Error&) {});
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
        path,
        [&](SampleRecord& record, const LineReader& lines) {
          const std::string where = lines.where();
          const auto [entry, is_new] = seen.try_emplace(record.key(), Origin{record.completion, where});
          if (is_new) {
            merged.append(lines.line()).push_back('\n');
            ++report.n_samples;
          } else if (entry->second.completion == record.completion) {
            ++report.n_duplicates;
          } else {
            throw Error(ErrorCode::bad_input, where,
                        fmt::format("sample {} of {} has another completion than at {}", record.sample_id,
                                    shown(record.task_id), entry->second.where));
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
