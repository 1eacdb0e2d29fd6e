#include "tokens/special_matcher.hpp"

namespace banyan {

const std::uint32_t* SpecialMatcher::child(std::uint32_t node, char byte) const {
  for (const auto& [label, target] : nodes_[node].children) {
    if (label == byte) return &target;
  }
  return nullptr;
}

void SpecialMatcher::add(std::string_view text, TokenId id) {
  if (text.empty()) return;
  starts_[static_cast<unsigned char>(text[0])] = true;
  std::uint32_t node = 0;
  for (const char byte : text) {
    if (const std::uint32_t* next = child(node, byte)) {
      node = *next;
      continue;
    }
    const auto fresh = static_cast<std::uint32_t>(nodes_.size());
    nodes_[node].children.emplace_back(byte, fresh);
    nodes_.emplace_back();
    node = fresh;
  }
  if (nodes_[node].id == kNoToken) nodes_[node].id = id;
}

std::optional<SpecialMatcher::Hit> SpecialMatcher::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Hit> longest;
    std::uint32_t node = 0;
    for (std::size_t end = begin; end < text.size(); ++end) {
      const std::uint32_t* next = child(node, text[end]);
      if (next == nullptr) break;
      node = *next;
      if (nodes_[node].id != kNoToken) longest = Hit{begin, end + 1, nodes_[node].id};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace banyan
