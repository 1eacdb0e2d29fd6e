#include "tokens/vocab_tokenizer.hpp"

#include <utility>

namespace banyan {

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
  std::size_t begin = 0;
  bool opens = true;
  while (const auto hit = matcher.find(text, begin)) {
    if (hit->begin > begin) encode_text(text.substr(begin, hit->begin - begin), opens, ids);
    ids.push_back(hit->id);
    begin = hit->end;
    opens = true;
  }
  if (begin < text.size()) encode_text(text.substr(begin), opens, ids);

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
