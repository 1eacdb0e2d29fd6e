#include "tokens/vocab_tokenizer.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "tokens/white_space.hpp"

namespace banyan {

namespace {

bool contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

void check_word_length(std::size_t n_symbols) {
  constexpr std::size_t kMax = std::numeric_limits<std::int32_t>::max();  // Merger's positions have 32 bits
  if (n_symbols <= kMax) return;
  throw Error(ErrorCode::bad_input, "text",
              "a word of " + std::to_string(n_symbols) + " symbols; at most " + std::to_string(kMax) + " are possible");
}

std::pair<std::string_view, std::string_view> halves_of_merge(const TokenizerSpec& spec, std::size_t rank) {
  const std::string_view merge = spec.merges[rank];
  const std::size_t space = merge.find(' ');  // pieces have no space of their own
  if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) {
    throw Error(ErrorCode::bad_file, spec.where,
                "merge " + std::to_string(rank) + " (\"" + spec.merges[rank] + "\") is not a pair");
  }
  return {merge.substr(0, space), merge.substr(space + 1)};
}

bool is_filler(std::string_view piece, TokenId id) { return piece == "[PAD" + std::to_string(id) + "]"; }

VocabTokenizer::VocabTokenizer(TokenizerSpec spec, std::vector<std::string> bytes, bool drop_first_space, Added added)
    : Tokenizer(std::move(spec)), bytes_(std::move(bytes)), drop_first_space_(drop_first_space) {
  for (TokenId id = 0; id < vocab_size(); ++id) {
    const auto i = static_cast<std::size_t>(id);
    const TokenKind kind = spec_.kinds[i];
    const bool is_added = kind == TokenKind::user_defined && added == Added::cut_out && !is_filler(spec_.pieces[i], id);
    if (is_added) always_.add(spec_.pieces[i], id);
    if (is_added || kind == TokenKind::control || kind == TokenKind::unknown) special_too_.add(spec_.pieces[i], id);
  }
}

std::vector<TokenId> VocabTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<TokenId> ids;
  const bool add_bos = options.add_bos && spec_.add_bos;
  if (add_bos) ids.push_back(spec_.bos);

  const SpecialMatcher& matcher = options.parse_special ? special_too_ : always_;
  bool opens = options.first;
  while (const auto hit = matcher.find(text, 0)) {
    std::string_view before = text.substr(0, hit->begin);
    if (contains(spec_.lstrip, hit->id)) before = strip_back(before);
    if (!before.empty()) encode_text(before, opens, ids);
    ids.push_back(hit->id);
    text.remove_prefix(hit->end);
    if (contains(spec_.rstrip, hit->id)) text = strip_front(text);
    opens = spec_.prefix_each_part;
  }
  if (!text.empty()) encode_text(text, opens, ids);

  if (add_bos && ids.size() > 1 && ids[1] == spec_.bos) ids.erase(ids.begin());
  return ids;
}

std::string VocabTokenizer::token_bytes(TokenId id, bool first, bool with_special) const {
  if (id < 0 || id >= vocab_size()) {
    throw Error(ErrorCode::bad_input, "token " + std::to_string(id),
                "the vocabulary of " + spec_.where + " has " + std::to_string(vocab_size()) + " tokens");
  }
  const auto i = static_cast<std::size_t>(id);
  if (spec_.kinds[i] == TokenKind::control) return with_special ? spec_.pieces[i] : std::string();
  const std::string& bytes = bytes_[i];
  const bool drop = first && drop_first_space_ && spec_.kinds[i] != TokenKind::byte && bytes.starts_with(' ');
  return bytes.substr(drop ? 1 : 0);
}

}  // namespace banyan
