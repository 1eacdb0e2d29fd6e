// Finds the texts of special and added tokens inside a text: leftmost, and of those that start there the longest.
// Immutable after the last add(): safe to share between threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "banyan/types.hpp"

namespace banyan {

class SpecialMatcher {
 public:
  struct Hit {
    std::size_t begin, end;  // bytes of the text
    TokenId id;
  };

  // Empty texts are never found. A text added twice keeps its first id.
  void add(std::string_view text, TokenId id);
  std::optional<Hit> find(std::string_view text, std::size_t from) const;

 private:
  // A trie; node 0 is the root. Special tokens are few, so children are looked for one after the other.
  struct Node {
    std::vector<std::pair<char, std::uint32_t>> children;
    TokenId id = kNoToken;
  };
  const std::uint32_t* child(std::uint32_t node, char byte) const;

  std::vector<Node> nodes_{Node{}};
  bool starts_[256] = {};  // does any text start with this byte?
};

}  // namespace banyan
