// The text of one sample as it grows: finds stop strings across tokens and says what may be shown already. Layer 7.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "banyan/tokenizer.hpp"

namespace banyan::detail {

// Of several stop strings the one that is complete first wins; of those complete at the same byte, the one that begins
// first.
class TextStream {
 public:
  // `stops` must outlive the stream; empty strings among them are ignored.
  TextStream(const std::vector<std::string>& stops, bool include_stop) : stops_(&stops), include_stop_(include_stop) {}

  // Room for the text of so many tokens.
  void reserve(std::int64_t n_tokens) {
    token_ends_.reserve(static_cast<std::size_t>(n_tokens));
    text_.reserve(static_cast<std::size_t>(n_tokens) * 8);
  }

  // Adds the bytes of one token. True when a stop string is complete; the text then ends as include_stop says.
  bool push(std::string_view token_bytes);
  // The end of the sample: unfinished characters become U+FFFD, nothing is held back any more.
  void finish();

  const std::string& text() const { return text_; }
  // After push() was true: how many of the pushed tokens the node keeps.
  std::int64_t n_kept_tokens() const { return n_kept_; }
  // What has become safe to show since the last call: valid UTF-8, no part of a stop string.
  std::string_view take_shown();

 private:
  std::size_t held_back() const;  // length of the longest tail that could begin a stop string

  const std::vector<std::string>* stops_;
  bool include_stop_;
  bool ended_ = false;
  Utf8Stream utf8_;
  std::string text_;
  std::vector<std::size_t> token_ends_;  // length of text_ after each token
  std::size_t shown_ = 0;
  std::int64_t n_kept_ = 0;
};

}  // namespace banyan::detail
