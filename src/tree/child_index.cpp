#include "tree/child_index.hpp"

#include <algorithm>

#include "tree/storage.hpp"

namespace banyan {

namespace {

std::uint64_t key_of(std::int64_t attach, TokenId token) {
  return static_cast<std::uint64_t>(attach) << 32 | static_cast<std::uint32_t>(token);
}

}  // namespace

bool ChildIndex::may_match(const Storage& s, NodeId child, std::int64_t begin, std::int64_t matched,
                           std::span<const TokenId> query) {
  const Storage::Page& page = s.page(child);
  const std::size_t i = Storage::row(child);
  const std::int64_t position = begin + page.attach[i];
  if (page.attach[i] > matched || position >= static_cast<std::int64_t>(query.size())) return false;
  return page.first_token[i] == query[static_cast<std::size_t>(position)] || page.forked_at_begin[i];
}

void ChildIndex::settle(const Storage& s, NodeId child) {
  const Storage::Page& page = s.page(child);
  const std::size_t i = Storage::row(child);
  if (page.forked_at_begin[i]) return loose_.push_back(child);
  if (page.first_token[i] == kNoToken) return;  // matches nothing; unsettle() tells when it has tokens
  const auto at = std::lower_bound(attaches_.begin(), attaches_.end(), page.attach[i]);
  if (at == attaches_.end() || *at != page.attach[i]) attaches_.insert(at, page.attach[i]);
  by_token_[key_of(page.attach[i], page.first_token[i])].push_back(child);
  ++n_settled_;
}

void ChildIndex::update(const Storage& s, std::span<const NodeId> children) {
  if (n_settled_ > 2 * children.size()) *this = ChildIndex();
  std::vector<NodeId> loose;
  loose.swap(loose_);
  for (const NodeId child : loose) {
    if (s.alive(child)) settle(s, child);
  }
  for (auto it = std::upper_bound(children.begin(), children.end(), last_); it != children.end(); ++it) settle(s, *it);
  if (!children.empty()) last_ = std::max(last_, children.back());
}

std::vector<NodeId> ChildIndex::find(const Storage& s, std::span<const NodeId> children, std::int64_t begin,
                                     std::int64_t matched, std::span<const TokenId> query) {
  update(s, children);
  std::vector<NodeId> found;
  const auto add = [&](std::span<const NodeId> candidates) {
    for (const NodeId child : candidates) {
      if (s.alive(child) && may_match(s, child, begin, matched, query)) found.push_back(child);
    }
  };
  for (const std::int64_t attach : attaches_) {
    const std::int64_t position = begin + attach;
    if (attach > matched || position >= static_cast<std::int64_t>(query.size())) break;
    const auto it = by_token_.find(key_of(attach, query[static_cast<std::size_t>(position)]));
    if (it != by_token_.end()) add(it->second);
  }
  add(loose_);
  // A child that was unsettled may be there twice.
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace banyan
