#include "tokens/gguf_vocab.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

#include "tokens/byte_alphabet.hpp"

namespace banyan::test {

namespace {

struct Value {
  std::int64_t number = 0;  // of an integer or bool
  std::string text;
  std::vector<std::string> texts;
  std::vector<float> floats;
  std::vector<std::int64_t> numbers;
};

class MetadataReader {
 public:
  explicit MetadataReader(const std::string& path) : file_(path, std::ios::binary) {
    if (get<std::uint32_t>() != 0x46554747 || get<std::uint32_t>() < 2)
      throw std::runtime_error(path + ": no GGUF v2+");
    get<std::uint64_t>();  // tensors
    const auto n_keys = get<std::uint64_t>();
    for (std::uint64_t i = 0; i < n_keys; ++i) {
      const std::string key = get_string();
      values[key] = get_value(get<std::uint32_t>());
    }
  }
  std::map<std::string, Value> values;

 private:
  template <typename T>
  T get() {
    T x{};
    if (!file_.read(reinterpret_cast<char*>(&x), sizeof x)) throw std::runtime_error("GGUF ends early");
    return x;
  }
  std::string get_string() {
    std::string s(get<std::uint64_t>(), '\0');
    if (!file_.read(s.data(), static_cast<std::streamsize>(s.size()))) throw std::runtime_error("GGUF ends early");
    return s;
  }
  std::int64_t get_integer(std::uint32_t type) {
    switch (type) {
      case 0:
      case 7: return get<std::uint8_t>();
      case 1: return get<std::int8_t>();
      case 2: return get<std::uint16_t>();
      case 3: return get<std::int16_t>();
      case 4: return get<std::uint32_t>();
      case 5: return get<std::int32_t>();
      case 10: return static_cast<std::int64_t>(get<std::uint64_t>());
      case 11: return get<std::int64_t>();
      case 12: return static_cast<std::int64_t>(get<double>());
      default: throw std::runtime_error("GGUF type " + std::to_string(type));
    }
  }
  Value get_value(std::uint32_t type) {
    Value v;
    if (type == 8) {
      v.text = get_string();
    } else if (type == 6) {
      v.floats.push_back(get<float>());
    } else if (type == 9) {
      const auto element = get<std::uint32_t>();
      const auto n = get<std::uint64_t>();
      for (std::uint64_t i = 0; i < n; ++i) {
        if (element == 8)
          v.texts.push_back(get_string());
        else if (element == 6)
          v.floats.push_back(get<float>());
        else
          v.numbers.push_back(get_integer(element));
      }
    } else {
      v.number = get_integer(type);
    }
    return v;
  }
  std::ifstream file_;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " is missing");
  std::stringstream s;
  s << file.rdbuf();
  return s.str();
}

// GGUF numbers the kinds from 1.
TokenKind kind_of(std::int64_t type) {
  switch (type) {
    case 2: return TokenKind::unknown;
    case 3: return TokenKind::control;
    case 4: return TokenKind::user_defined;
    case 5: return TokenKind::unused;
    case 6: return TokenKind::byte;
    default: return TokenKind::normal;
  }
}

}  // namespace

TokenizerSpec read_gguf_vocab(const std::string& path) {
  MetadataReader reader(path);
  auto& values = reader.values;
  const auto key = [](const char* name) { return std::string("tokenizer.ggml.") + name; };
  const auto number = [&](const char* name, std::int64_t fallback) {
    const auto it = values.find(key(name));
    return it == values.end() ? fallback : it->second.number;
  };
  TokenizerSpec spec;
  spec.where = path;
  spec.model = values[key("model")].text == "llama" ? TokenizerSpec::Model::spm : TokenizerSpec::Model::bpe;
  spec.pre = values[key("pre")].text;
  spec.pieces = values[key("tokens")].texts;
  spec.scores = values[key("scores")].floats;
  spec.merges = values[key("merges")].texts;
  for (const std::int64_t type : values[key("token_type")].numbers) spec.kinds.push_back(kind_of(type));
  spec.bos = static_cast<TokenId>(number("bos_token_id", kNoToken));
  spec.unk = static_cast<TokenId>(number("unknown_token_id", kNoToken));
  if (const auto eos = number("eos_token_id", kNoToken); eos != kNoToken) spec.eos.push_back(static_cast<TokenId>(eos));
  spec.add_bos = number("add_bos_token", spec.model == TokenizerSpec::Model::spm) != 0;
  spec.add_space_prefix = number("add_space_prefix", 1) != 0;
  spec.chat_template = values["tokenizer.chat_template"].text;
  return spec;
}

std::optional<std::string> shared_vocab_path(const std::string& name) {
  const std::string path = std::string(BANYAN_SHARED_DIR) + "/data/vocab/ggml-vocab-" + name + ".gguf";
  if (std::filesystem::exists(path)) return path;
  std::printf("skipped: no %s\n", path.c_str());
  return std::nullopt;
}

std::shared_ptr<const Tokenizer> load_shared_vocab(const std::string& name) {
  const auto path = shared_vocab_path(name);
  return path ? make_tokenizer(read_gguf_vocab(*path)) : nullptr;
}

std::optional<std::string> smollm_path() {
  const char* chosen = std::getenv("BANYAN_TEST_MODEL");
  const char* home = std::getenv("HOME");
  const std::string path = chosen != nullptr ? std::string(chosen)
                           : home != nullptr ? std::string(home) + "/.cache/banyan/SmolLM2-135M-Instruct.Q4_1.gguf"
                                             : std::string();
  if (std::filesystem::exists(path)) return path;
  std::printf("skipped: no model file \"%s\"; set BANYAN_TEST_MODEL\n", path.c_str());
  return std::nullopt;
}

std::vector<std::string> read_inputs(const std::string& vocab_path) {
  const std::string all = read_file(vocab_path + ".inp"), mark = "\n__ggml_vocab_test__\n";
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (std::size_t end; (end = all.find(mark, begin)) != std::string::npos; begin = end + mark.size()) {
    texts.push_back(all.substr(begin, end - begin));
  }
  if (begin < all.size()) texts.push_back(all.substr(begin));
  return texts;
}

std::vector<std::vector<TokenId>> read_outputs(const std::string& vocab_path) {
  std::istringstream all(read_file(vocab_path + ".out"));
  std::vector<std::vector<TokenId>> lines;
  for (std::string line; std::getline(all, line);) {
    std::istringstream numbers(line);
    auto& ids = lines.emplace_back();
    for (TokenId id; numbers >> id;) ids.push_back(id);
  }
  return lines;
}

TokenizerSpec tiny_bpe(const std::vector<std::string>& merges, const std::vector<std::string>& control) {
  TokenizerSpec spec;
  spec.where = "tiny";
  spec.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) spec.pieces.push_back(byte_to_piece(static_cast<unsigned char>(byte)));
  for (const std::string& merge : merges) {
    std::string joined = merge;
    joined.erase(joined.find(' '), 1);
    spec.pieces.push_back(joined);
  }
  spec.kinds.assign(spec.pieces.size(), TokenKind::normal);
  for (const std::string& text : control) {
    spec.pieces.push_back(text);
    spec.kinds.push_back(TokenKind::control);
  }
  spec.merges = merges;
  return spec;
}

TokenizerSpec tiny_spm(const std::vector<std::string>& pieces, bool with_bytes) {
  TokenizerSpec spec;
  spec.where = "tiny";
  spec.model = TokenizerSpec::Model::spm;
  spec.pieces = {"<unk>", "<s>", "</s>"};
  spec.kinds = {TokenKind::unknown, TokenKind::control, TokenKind::control};
  spec.unk = 0;
  spec.bos = 1;
  spec.eos = {2};
  for (int byte = 0; with_bytes && byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    spec.pieces.emplace_back(text);
    spec.kinds.push_back(TokenKind::byte);
  }
  for (const std::string& piece : pieces) {
    spec.pieces.push_back(piece);
    spec.kinds.push_back(TokenKind::normal);
  }
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) spec.scores.push_back(-static_cast<float>(i));
  return spec;
}

}  // namespace banyan::test
