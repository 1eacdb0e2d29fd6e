#include "line_reader.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

namespace banyan::code {

// The bytes of the file, unpacked where it is gzipped.
struct LineReader::Source {
  int fd = -1;
  gzFile gz = nullptr;  // owns the descriptor
  std::array<char, 1 << 16> buffer;

  ~Source() {
    if (gz != nullptr)
      gzclose(gz);
    else if (fd >= 0)
      close(fd);
  }

  // Fills the buffer; 0 at the end.
  std::size_t read(const std::string& path, std::int64_t n_before) {
    ssize_t n = 0;
    do {
      n = gz != nullptr ? gzread(gz, buffer.data(), static_cast<unsigned>(buffer.size()))
                        : ::read(fd, buffer.data(), buffer.size());
    } while (n < 0 && gz == nullptr && errno == EINTR);
    int error = Z_OK;
    const char* message = gz != nullptr ? gzerror(gz, &error) : std::strerror(errno);
    if (gz != nullptr && n <= 0 && error != Z_OK) {
      throw Error(ErrorCode::bad_file, path, fmt::format("cannot be unpacked after {} bytes: {}", n_before, message));
    }
    if (n < 0) throw Error(ErrorCode::bad_file, path, fmt::format("cannot be read: {}", message));
    return static_cast<std::size_t>(n);
  }
};

LineReader::LineReader(const std::string& path, Form form, std::int64_t most_bytes)
    : path_(path), most_bytes_(most_bytes), source_(std::make_unique<Source>()) {
  source_->fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (source_->fd < 0) {
    throw Error(ErrorCode::bad_file, path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  if (form == Form::plain) return;
  source_->gz = gzdopen(source_->fd, "rb");
  if (source_->gz == nullptr) throw Error(ErrorCode::bad_file, path, "cannot be opened: out of memory");
}

LineReader::~LineReader() = default;

bool LineReader::fill() {
  const std::size_t n = source_->read(path_, n_read_);
  n_read_ += static_cast<std::int64_t>(n);
  if (n_read_ > most_bytes_) {
    throw Error(ErrorCode::bad_file, path_,
                fmt::format("holds more than {} bytes{}; no such file is so large", most_bytes_,
                            source_->gz != nullptr ? ", unpacked" : ""));
  }
  ahead_ = {source_->buffer.data(), n};
  return n > 0;
}

// Grows by exact amounts, so that a line never costs more than one and a half times the limit.
void LineReader::keep(std::string_view piece) {
  const std::size_t size = line_.size() + piece.size();
  too_long_ = too_long_ || size > kMostLineBytes;
  if (too_long_) return line_.clear();
  if (size > line_.capacity()) line_.reserve(std::min(kMostLineBytes, std::max(size, 2 * line_.capacity())));
  line_.insert(line_.end(), piece.begin(), piece.end());
}

bool LineReader::next() {
  begin_ = end_;
  line_.clear();
  too_long_ = has_end_ = false;
  while (!has_end_ && (!ahead_.empty() || fill())) {
    const std::size_t end = ahead_.find('\n');
    has_end_ = end != std::string_view::npos;
    const std::size_t n = has_end_ ? end : ahead_.size();
    keep(ahead_.substr(0, n));
    ahead_.remove_prefix(n + (has_end_ ? 1 : 0));
    end_ += static_cast<std::int64_t>(n) + (has_end_ ? 1 : 0);
  }
  if (end_ == begin_) return false;
  ++number_;
  return true;
}

std::string_view LineReader::line() const {
  if (too_long_) {
    throw Error(ErrorCode::bad_file, where(),
                fmt::format("has {} bytes, a line can have {}", end_ - begin_ - (has_end_ ? 1 : 0), kMostLineBytes));
  }
  return {line_.data(), line_.size()};
}

bool LineReader::is_blank() const {
  constexpr std::string_view kSpace = " \t\r";
  return !too_long_ && std::ranges::all_of(line_, [&](char c) { return kSpace.find(c) != std::string_view::npos; });
}

std::string LineReader::where() const { return fmt::format("{}:{}", path_, number_); }

}  // namespace banyan::code
