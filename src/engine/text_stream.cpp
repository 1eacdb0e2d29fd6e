#include "engine/text_stream.hpp"

#include <algorithm>
#include <utility>

namespace banyan::detail {

bool TextStream::push(std::string_view token_bytes) {
  const std::size_t before = text_.size();
  text_ += utf8_.push(token_bytes);
  // A token that ends inside a character ends behind the text so far, so it is never kept in front of a cut there.
  token_ends_.push_back(text_.size() + (utf8_.pending() ? 1 : 0));
  std::size_t best_begin = std::string::npos, best_end = std::string::npos;
  for (const auto& stop : *stops_) {
    if (stop.empty()) continue;
    const std::size_t from = before >= stop.size() - 1 ? before - (stop.size() - 1) : 0;
    const std::size_t begin = text_.find(stop, from);
    if (begin == std::string::npos) continue;
    const std::size_t end = begin + stop.size();
    if (end < best_end || (end == best_end && begin < best_begin)) best_begin = begin, best_end = end;
  }
  if (best_begin == std::string::npos) return false;
  const std::size_t cut = include_stop_ ? best_end : best_begin;
  // A token is kept if all its text lies before the cut; with include_stop, also the one in which the stop ends.
  const auto first_beyond = std::upper_bound(token_ends_.begin(), token_ends_.end(), include_stop_ ? cut - 1 : cut);
  n_kept_ = (first_beyond - token_ends_.begin()) + (include_stop_ ? 1 : 0);
  text_.resize(cut);
  ended_ = true;
  return true;
}

void TextStream::finish() {
  if (!ended_) text_ += utf8_.flush();
  ended_ = true;
}

std::size_t TextStream::held_back() const {
  if (ended_) return 0;
  std::size_t longest = 0;
  for (const auto& stop : *stops_) {
    for (std::size_t n = std::min(stop.empty() ? 0 : stop.size() - 1, text_.size()); n > longest; --n) {
      if (text_.compare(text_.size() - n, n, stop, 0, n) == 0) longest = n;
    }
  }
  return longest;
}

std::string_view TextStream::take_shown() {
  const std::size_t end = text_.size() - held_back();
  const std::size_t begin = std::exchange(shown_, std::max(shown_, end));
  return begin < end ? std::string_view(text_).substr(begin, end - begin) : std::string_view();
}

}  // namespace banyan::detail
