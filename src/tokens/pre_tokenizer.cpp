#include "tokens/pre_tokenizer.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pcre2.h>

#include "banyan/error.hpp"

namespace banyan {

namespace {

// One stage of GPT-2: contractions, words, numbers, signs, each with a space in front; runs of space, but for the last
// one before a word.
constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kEachNumber = R"(\p{N})";

const std::array<PreTokenizerRule, 5>& rules() {
  static const std::array<PreTokenizerRule, 5> kRules{{
      {{"gpt-2"}, {kGpt2}},
      {{"smollm"}, {kEachNumber, kGpt2}},
      {{"llama-bpe", "llama-3", "llama3", "llama-v3"}, {kLlama3}, /*whole_words=*/true},
      {{"qwen2"}, {kQwen2}, /*whole_words=*/false, /*nfc=*/true},
      {{"deepseek-coder"}, {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", R"([一-龥ࠀ-一가-퟿]+)", kEachNumber}},
  }};
  return kRules;
}

// Inside brackets. PCRE2's own \s has U+180E in addition, which has not been white space since Unicode 6.3.
constexpr std::string_view kWhiteSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// Writes \s and \S of a published pattern out.
std::string with_white_space(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      out += c;
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's') {
      out += in_class ? std::string(kWhiteSpace) : fmt::format("[{}]", kWhiteSpace);
    } else if (escaped == 'S') {
      out += fmt::format("[^{}]", kWhiteSpace);
    } else {
      out += {c, escaped};
    }
  }
  return out;
}

std::string pcre2_message(int code) {
  std::array<char, 256> text{};
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
  return text.data();
}

struct FreeCode {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};

}  // namespace

std::span<const PreTokenizerRule> pre_tokenizer_rules() { return rules(); }

const PreTokenizerRule& pre_tokenizer_rule(std::string_view name, const std::string& where) {
  std::vector<std::string_view> known;
  for (const PreTokenizerRule& rule : rules()) {
    if (std::find(rule.names.begin(), rule.names.end(), name) != rule.names.end()) return rule;
    known.push_back(rule.names.front());
  }
  throw Error(ErrorCode::unsupported, where,
              fmt::format("pre-tokenizer \"{}\" is not supported; known: {}", name, fmt::join(known, ", ")));
}

class PreTokenizer::Stage {
 public:
  explicit Stage(std::string_view pattern) {
    const std::string written_out = with_white_space(pattern);
    int code = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(written_out.data()), written_out.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &code, &at, nullptr));
    if (!code_) {
      throw Error(ErrorCode::unsupported, "pre-tokenizer",
                  fmt::format("pattern \"{}\" does not compile at {}: {}", written_out, at, pcre2_message(code)));
    }
    // Where there is no JIT for this processor, matching goes on without.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  }

  void split(std::string_view text, pcre2_match_data* match, std::vector<std::string_view>& pieces) const {
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(match);
    std::size_t begin = 0;
    while (begin < text.size()) {
      const int rc = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), begin,
                                 PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match, nullptr);
      if (rc == PCRE2_ERROR_NOMATCH) break;
      if (rc < 0) throw Error(ErrorCode::bad_input, "text", "cannot be cut into words: " + pcre2_message(rc));
      if (place[0] > begin) pieces.push_back(text.substr(begin, place[0] - begin));
      pieces.push_back(text.substr(place[0], place[1] - place[0]));
      begin = place[1];
    }
    if (begin < text.size()) pieces.push_back(text.substr(begin));
  }

 private:
  std::unique_ptr<pcre2_code, FreeCode> code_;
};

PreTokenizer::PreTokenizer(const PreTokenizerRule& rule) {
  for (const std::string_view pattern : rule.patterns) stages_.emplace_back(pattern);
}

PreTokenizer::~PreTokenizer() = default;

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
  if (!match) throw Error(ErrorCode::out_of_memory, "pre-tokenizer", "no memory for the place of one match");
  std::vector<std::string_view> pieces{text}, finer;
  for (const Stage& stage : stages_) {
    finer.clear();
    for (const std::string_view piece : pieces) stage.split(piece, match.get(), finer);
    pieces.swap(finer);
  }
  return pieces;
}

}  // namespace banyan
