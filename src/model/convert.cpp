#include "banyan/convert.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <unistd.h>

#include "banyan/read_file.hpp"
#include "base/json.hpp"
#include "model/gguf_writer.hpp"
#include "model/model_tensors.hpp"
#include "model/safetensors_writer.hpp"
#include "model/tensor_copy.hpp"
#include "model/write_model.hpp"
#include "tokens/space_mark.hpp"

namespace banyan {
namespace {

namespace fs = std::filesystem;

// A file or directory that gets its name when it is whole; until then, and if that never happens, it is PATH.part-PID.
class Unfinished {
 public:
  explicit Unfinished(const std::string& path) : path_(path), part_(path + ".part-" + std::to_string(getpid())) {
    if (fs::exists(fs::symlink_status(path))) {
      throw Error(ErrorCode::usage, path, "exists already; remove it, or give another name");
    }
    fs::remove_all(part_);
  }
  ~Unfinished() {
    std::error_code ignored;
    fs::remove_all(part_, ignored);
  }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  const std::string& part() const { return part_; }
  void finish() const { fs::rename(part_, path_); }

 private:
  std::string path_, part_;
};

class Output {
 public:
  explicit Output(const std::string& path) : path_(path), out_(path, std::ios::binary) { check(); }
  void write(std::string_view bytes) {
    out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    check();
  }
  void write(std::span<const std::byte> bytes) {
    write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  void close() {
    out_.close();
    check();
  }

 private:
  void check() const {
    if (!out_) throw Error(ErrorCode::bad_file, path_, std::string("cannot be written: ") + std::strerror(errno));
  }
  std::string path_;
  std::ofstream out_;
};

// --- names and orders ----------------------------------------------------------------------------------------------

using Part = std::string_view TensorNames::*;
constexpr Part kWholeParts[] = {&TensorNames::embed, &TensorNames::final_norm, &TensorNames::head};
constexpr Part kLayerParts[] = {&TensorNames::attn_norm, &TensorNames::q_norm,   &TensorNames::k_norm,
                                &TensorNames::attn_out,  &TensorNames::ffn_norm, &TensorNames::down};
constexpr Part kSplitParts[] = {&TensorNames::q, &TensorNames::k, &TensorNames::v, &TensorNames::gate,
                                &TensorNames::up};
constexpr Part kFusedParts[] = {&TensorNames::qkv, &TensorNames::gate_up};

// The name that a tensor has in the other form; empty for one that the other form has no tensor for.
std::string translated(std::string_view name, const TensorNames& from, const TensorNames& to, bool fused) {
  const auto dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string ending(name.substr(dot));  // ".weight", ".bias"
  name = name.substr(0, dot);
  for (const Part part : kWholeParts) {
    if (name == from.*part) return std::string(to.*part) + ending;
  }
  if (!name.starts_with(from.layers)) return {};
  name.remove_prefix(from.layers.size());
  const auto end = name.find('.');
  if (end == std::string_view::npos) return {};
  const std::string layer = std::string(to.layers) + std::string(name.substr(0, end + 1));
  name.remove_prefix(end + 1);
  const auto find = [&](std::span<const Part> parts) -> std::string {
    for (const Part part : parts) {
      if (name == from.*part) return layer + std::string(to.*part) + ending;
    }
    return {};
  };
  std::string found = find(kLayerParts);
  if (found.empty()) found = fused ? find(kFusedParts) : find(kSplitParts);
  return found;
}

// Rows of q and k heads: pair i of a head in rows i and i + half (Hugging Face), or 2i and 2i + 1 (GGUF of some
// families). The order of a copy into the other form.
RowOrder head_order(const Checkpoint& source, std::string_view name) {
  const TensorNames& names = *source.names;
  const bool q_or_k = name.find(fmt::format(".{}.", names.q)) != std::string_view::npos ||
                      name.find(fmt::format(".{}.", names.k)) != std::string_view::npos;
  if (!source.spec.family->gguf_interleaved || !q_or_k) return {};
  const std::int64_t head_dim = source.spec.config.head_dim, half = head_dim / 2;
  if (source.format == kHfFormat) {
    return [=](std::int64_t row) { return row - row % head_dim + row % head_dim / 2 + row % 2 * half; };
  }
  return [=](std::int64_t row) { return row - row % head_dim + row % head_dim % half * 2 + row % head_dim / half; };
}

// --- writing -------------------------------------------------------------------------------------------------------

// One tensor of the result.
struct Item {
  std::string name;
  const Tensor* source = nullptr;
  DType type = DType::f32;
  RowOrder order{};
  std::int64_t bytes = 0;
};

class Converter {
 public:
  Converter(const Checkpoint& source, bool to_gguf, const ConvertOptions& options)
      : source_(source), to_gguf_(to_gguf), options_(options), team_(options.n_threads) {
    report_.block = dtype_block(options.type);
    for (const auto& [name, tensor] : source.tensors()) add_item(name, tensor);
  }

  ConvertReport write(const std::string& path) {
    to_gguf_ ? write_gguf(path) : write_directory(path);
    for (auto& [type, sums] : sums_) {
      ConvertedType& t = sums.type;
      t.type = type;
      t.error = sums.error.value_squares > 0 ? std::sqrt(sums.error.error_squares / sums.error.value_squares) : 0.0;
      t.largest_error = sums.error.largest;
      report_.types.push_back(t);
    }
    return report_;
  }

 private:
  bool changes_form() const { return to_gguf_ != (source_.format == kGgufFormat); }

  void add_item(const std::string& name, const Tensor& tensor) {
    Item item{.name = name, .source = &tensor, .type = wanted_type(tensor)};
    if (changes_form()) {
      const TensorNames& to = to_gguf_ ? kGgufNames : kHfNames;
      item.name = translated(name, *source_.names, to, source_.spec.family->fused);
      if (item.name.empty()) return;  // what is computed from the configuration
      item.order = head_order(source_, name);
    }
    item.bytes = tensor_bytes(item.type, tensor.shape, tensor.where);
    items_.push_back(std::move(item));
  }

  DType wanted_type(const Tensor& tensor) {
    if (tensor.shape.size() < 2) return DType::f32;
    const std::int64_t n_cols = tensor.shape.back();
    if (n_cols % report_.block == 0) return options_.type;
    ++report_.n_fallback;
    return n_cols % dtype_block(DType::q8_0) == 0 ? DType::q8_0 : DType::f32;
  }

  void copy(const Item& item, Output& out) {
    const CopyError error =
        copy_tensor(*item.source, item.type, item.order, team_, [&](auto bytes) { out.write(bytes); });
    Sums& sums = sums_[item.type];
    ++sums.type.n_tensors;
    sums.type.n_weights += item.source->n_elements();
    sums.type.bytes += item.bytes;
    sums.error.error_squares += error.error_squares;
    sums.error.value_squares += error.value_squares;
    sums.error.largest = std::max(sums.error.largest, error.largest);
  }

  void write_gguf(const std::string& path) {
    GgufWriter writer;
    add_metadata(writer);
    std::map<std::string, std::vector<float>> rope;
    if (changes_form()) rope = gguf_rope_tensors(source_.spec.rope);
    for (const auto& [name, divisors] : rope) {
      writer.list_tensor(name, DType::f32, {std::ssize(divisors)}, std::ssize(std::as_bytes(std::span(divisors))));
    }
    for (const Item& item : items_) writer.list_tensor(item.name, item.type, item.source->shape, item.bytes);
    Output out(path);
    out.write(writer.header());
    for (const auto& [name, divisors] : rope) {
      const auto bytes = std::as_bytes(std::span(divisors));
      out.write(bytes);
      out.write(GgufWriter::padding(std::ssize(bytes)));
    }
    for (const Item& item : items_) {
      copy(item, out);
      out.write(GgufWriter::padding(item.bytes));
    }
    out.close();
  }

  void add_metadata(GgufWriter& out) const {
    if (changes_form()) {
      add_config(out, source_);
      add_tokenizer(out, source_);
    } else {
      const GgufFile& file = *std::get<std::unique_ptr<GgufFile>>(source_.files);
      for (const std::string_view key : file.keys()) {
        const bool of_the_old_types =
            key == "general.file_type" || key == "general.quantization_version" || key == "general.alignment";
        if (!of_the_old_types) out.add_raw(key, file.raw_value(key));
      }
    }
    out.add_u32("general.quantization_version", 2);
    out.add_u32("general.file_type", gguf_file_type(options_.type));
  }

  // "Mostly of this type", as numbered by the format.
  static std::uint32_t gguf_file_type(DType type) {
    switch (type) {
      case DType::f16: return 1;
      case DType::q4_0: return 2;
      case DType::q4_1: return 3;
      case DType::q8_0: return 7;
      case DType::q4_k: return 14;
      case DType::q6_k: return 18;
      case DType::bf16: return 32;
      default: return 0;
    }
  }

  void write_directory(const std::string& path) {
    fs::create_directories(path);
    if (changes_form()) {
      for (const auto& [name, text] : hf_files(source_, options_.type)) write_file(path + "/" + name, text);
    } else {
      copy_other_files(path);
    }
    SafetensorsWriter writer;
    for (const Item& item : items_) writer.list(item.name, item.type, item.source->shape, item.bytes);
    Output out(path + "/model.safetensors");
    out.write(writer.header());
    for (const Item& item : items_) copy(item, out);
    out.close();
  }

  static void write_file(const std::string& path, const std::string& text) {
    Output out(path);
    out.write(text);
    out.close();
  }

  // Everything beside the weights: small texts and tokenizer.model.
  void copy_other_files(const std::string& path) const {
    for (const auto& entry : fs::directory_iterator(source_.path)) {
      const std::string extension = entry.path().extension().string(), name = entry.path().filename().string();
      const bool kept = extension == ".json" || extension == ".model" || extension == ".jinja" || extension == ".txt" ||
                        extension == ".md" || name == "LICENSE";
      if (!entry.is_regular_file() || !kept || name == "model.safetensors.index.json") continue;
      if (name != "config.json") {
        fs::copy_file(entry.path(), fs::path(path) / name);
        continue;
      }
      auto config = nlohmann::ordered_json::parse(read_file(entry.path().string()));
      const char* key = config.contains("dtype") ? "dtype" : "torch_dtype";
      config[key] = hf_type_name(options_.type);
      write_file(path + "/" + name, config.dump(2) + "\n");
    }
  }

  struct Sums {
    ConvertedType type;
    CopyError error;
  };

  const Checkpoint& source_;
  bool to_gguf_;
  const ConvertOptions& options_;
  Team team_;
  std::vector<Item> items_;
  std::map<DType, Sums> sums_;
  ConvertReport report_;
};

// --- what must have come through -----------------------------------------------------------------------------------

class Comparison {
 public:
  Comparison(const Checkpoint& source, const Checkpoint& result) : source_(source), result_(result) {}

  void check() const {
    check_config();
    same(source_.eos_ids == result_.eos_ids, "end-of-text ids");
    same(!source_.tokenizer == !result_.tokenizer, "the tokenizer");
    if (source_.tokenizer) check_tokenizer();
  }

 private:
  void same(bool is_same, const char* what) const {
    if (!is_same) {
      throw Error(ErrorCode::unsupported, source_.path,
                  fmt::format("{} cannot be said in the other form of file", what));
    }
  }

  void check_config() const {
    const ModelSpec &a = source_.spec, &b = result_.spec;
    const ModelConfig &x = a.config, &y = b.config;
    // One form may have one name for two families.
    same(a.family->gguf == b.family->gguf, "the architecture");
    same(x.n_layers == y.n_layers && x.n_heads_q == y.n_heads_q && x.n_heads_kv == y.n_heads_kv &&
             x.head_dim == y.head_dim && x.hidden_size == y.hidden_size && x.intermediate_size == y.intermediate_size &&
             x.vocab_size == y.vocab_size && x.max_positions == y.max_positions,
         "a size of the configuration");
    same(x.rms_eps == y.rms_eps, "the norm's epsilon");
    same(x.tied_embeddings == y.tied_embeddings && x.reward_head == y.reward_head, "the kind of head");
    same(a.qkv_bias == b.qkv_bias && a.attn_out_bias == b.attn_out_bias && a.mlp_bias == b.mlp_bias, "biases");
    same(a.layer_has_rope == b.layer_has_rope, "the layers without rope");
    const auto f = rope_inv_freq(a.rope), g = rope_inv_freq(b.rope);
    // Llama 3.1's scaled frequencies go through a quotient in f32, and other numbers are f32 in one of the forms.
    const auto close = [](double p, double q) { return std::fabs(p - q) <= 1e-6 * std::fabs(p); };
    same(a.rope.n_dims == b.rope.n_dims && std::equal(f.begin(), f.end(), g.begin(), g.end(), close) &&
             close(a.rope.magnitude, b.rope.magnitude) && a.rope.long_positions == b.rope.long_positions &&
             a.rope.long_divisors == b.rope.long_divisors,
         "rope's parameters");
  }

  void check_tokenizer() const {
    const TokenizerSpec &a = source_.tokenizer->spec(), &b = result_.tokenizer->spec();
    same(a.bos == b.bos && a.unk == b.unk && a.add_bos == b.add_bos, "special tokens");
    same(a.chat_template == b.chat_template, "the chat template");
    same(a.lstrip == b.lstrip && a.rstrip == b.rstrip, "added tokens that take the white space beside them");
    const bool spm = a.model == TokenizerSpec::Model::spm;
    same(a.model == b.model && a.scores == b.scores &&
             (!spm || (a.add_space_prefix == b.add_space_prefix && a.prefix_each_part == b.prefix_each_part &&
                       a.prefix_before_space == b.prefix_before_space)),
         "the kind of vocabulary");
    // Ids that no text gives need not have a text; those at the end may be left out.
    const std::size_t n = std::max(a.pieces.size(), b.pieces.size());
    for (std::size_t i = 0; i < n; ++i) {
      const bool in_a = i < a.pieces.size() && a.kinds[i] != TokenKind::unused;
      const bool in_b = i < b.pieces.size() && b.kinds[i] != TokenKind::unused;
      const auto text = [&](const TokenizerSpec& spec) { return spm ? escape_spaces(spec.pieces[i]) : spec.pieces[i]; };
      same(in_a == in_b && (!in_a || (text(a) == text(b) && a.kinds[i] == b.kinds[i])), "the vocabulary");
    }
    for (const std::string_view text : {"Hello  world, it's 1234 o'clock.\n\n\tdef f(x):\n    return x", " a  b ",
                                        "\xE6\x97\xA5\xE6\x9C\xAC \xC3\xA9"}) {
      same(ids(*source_.tokenizer, text) == ids(*result_.tokenizer, text), "how the tokenizer cuts a text");
    }
  }

  // Nothing for a text whose bytes the vocabulary lacks.
  static std::vector<TokenId> ids(const Tokenizer& tokenizer, std::string_view text) {
    try {
      return tokenizer.encode(text);
    } catch (const Error&) {
      return {};
    }
  }

  const Checkpoint &source_, &result_;
};

}  // namespace

ConvertReport convert(const std::string& source, const std::string& destination, const ConvertOptions& options) {
  const bool to_gguf = destination.ends_with(".gguf");
  if (!can_quantize(options.type) || (!to_gguf && !SafetensorsWriter::has_type(options.type))) {
    throw Error(ErrorCode::usage, destination,
                fmt::format("{} is not written there: a .gguf takes f32, f16, bf16, q8_0, q4_0, q4_1, q4_k and q6_k, a "
                            "directory f32, f16 and bf16",
                            to_string(options.type)));
  }
  try {
    const Checkpoint checkpoint = open_checkpoint(source);
    find_model_tensors(checkpoint);  // all are there, in the shapes that the configuration says
    const Unfinished result(destination);
    ConvertReport report = Converter(checkpoint, to_gguf, options).write(result.part());
    const Checkpoint written = open_checkpoint(result.part());
    find_model_tensors(written);
    Comparison(checkpoint, written).check();
    result.finish();
    return report;
  } catch (const fs::filesystem_error& e) {
    throw Error(ErrorCode::bad_file, destination, e.what());
  }
}

}  // namespace banyan
