// Reads a file of lines one after the other, in bounded memory. Layer 8, internal. Knows nothing of what stands in
// them. One thread.
//
// The file may be a pipe; it may be gzipped, where the caller allows it. A line beyond kMostLineBytes is not kept, and
// is an error when its text is asked for; so may the file be as a whole, unpacked, before it fills the memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "banyan/error.hpp"

namespace banyan::code {

// Far beyond what a model writes into one sample.
constexpr std::size_t kMostLineBytes = std::size_t{16} << 20;
// Of a file of nothing but errors, so many are kept; the others are counted.
constexpr std::size_t kMostErrors = 1000;

class LineReader {
 public:
  enum class Form : unsigned char { plain, perhaps_gzipped };
  // Throws Error{bad_file} where it cannot be opened.
  explicit LineReader(const std::string& path, Form form = Form::plain, std::int64_t most_bytes = INT64_MAX);
  ~LineReader();

  // Goes to the next line. Throws Error{bad_file} where the file cannot be read or unpacked, or is longer than
  // `most_bytes`.
  bool next();

  // Without its end. Throws Error{bad_file} for a line that is too long. Good until next().
  std::string_view line() const;
  bool is_blank() const;
  bool has_end() const { return has_end_; }      // false only for a last line without '\n'
  std::string where() const;                     // "path:number", from 1
  std::int64_t begin() const { return begin_; }  // bytes, unpacked, in front of the line
  std::int64_t end() const { return end_; }      // and in front of the next one

 private:
  struct Source;
  bool fill();
  void keep(std::string_view piece);

  std::string path_;
  std::int64_t most_bytes_;
  std::unique_ptr<Source> source_;
  std::string_view ahead_;  // read, and not yet part of a line
  std::vector<char> line_;
  bool too_long_ = false, has_end_ = false;
  std::int64_t number_ = 0, begin_ = 0, end_ = 0, n_read_ = 0;
};

}  // namespace banyan::code
