#include "model/gguf.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fmt/format.h>

namespace banyan {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF values are read as they lie in the file");

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kMaxDims = 4;           // the format's own limit
constexpr std::int64_t kDefaultAlignment = 32;  // bytes
constexpr std::int64_t kMaxAlignment = 1 << 20;
// The limits of tensors hold for keys too.
constexpr std::size_t kMaxNameBytes = kMaxTensorNameBytes;
constexpr std::uint64_t kMaxEntries = kMaxTensors;

// Fewest bytes that one entry can take: what a count is checked against before anything is reserved for it.
constexpr std::uint64_t kMinKeyBytes = 8 + 4 + 1;
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

constexpr std::uint64_t type_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean: return 1;
    case GgufType::u16:
    case GgufType::i16: return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32: return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
    case GgufType::string: return 8;  // of a string: at least its length
    case GgufType::array: return 12;
  }
  return 0;
}

constexpr std::uint64_t in_steps(std::uint64_t n, std::uint64_t step) { return (n + step - 1) / step * step; }

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

std::string_view string_at(const std::byte* p) {
  return {reinterpret_cast<const char*>(p + 8), static_cast<std::size_t>(load<std::uint64_t>(p))};
}

// Tensor types by the file's numbers. Those that banyan does not read are named, so that the refusal can be.
struct TensorType {
  std::uint32_t number;
  std::string_view name;
  std::optional<DType> type;
};
constexpr std::array kTensorTypes{
    TensorType{0, "F32", DType::f32},
    TensorType{1, "F16", DType::f16},
    TensorType{2, "Q4_0", DType::q4_0},
    TensorType{3, "Q4_1", DType::q4_1},
    TensorType{6, "Q5_0", DType::q5_0},
    TensorType{7, "Q5_1", DType::q5_1},
    TensorType{8, "Q8_0", DType::q8_0},
    TensorType{9, "Q8_1", {}},
    TensorType{10, "Q2_K", DType::q2_k},
    TensorType{11, "Q3_K", DType::q3_k},
    TensorType{12, "Q4_K", DType::q4_k},
    TensorType{13, "Q5_K", DType::q5_k},
    TensorType{14, "Q6_K", DType::q6_k},
    TensorType{15, "Q8_K", {}},
    TensorType{16, "IQ2_XXS", {}},
    TensorType{17, "IQ2_XS", {}},
    TensorType{18, "IQ3_XXS", {}},
    TensorType{19, "IQ1_S", {}},
    TensorType{20, "IQ4_NL", DType::iq4_nl},
    TensorType{21, "IQ3_S", {}},
    TensorType{22, "IQ2_S", {}},
    TensorType{23, "IQ4_XS", {}},
    TensorType{24, "I8", {}},
    TensorType{25, "I16", {}},
    TensorType{26, "I32", {}},
    TensorType{27, "I64", {}},
    TensorType{28, "F64", {}},
    TensorType{29, "IQ1_M", {}},
    TensorType{30, "BF16", DType::bf16},
    TensorType{34, "TQ1_0", {}},
    TensorType{35, "TQ2_0", {}},
    TensorType{39, "MXFP4", {}},
};

DType tensor_type(std::uint32_t number, const std::string& where) {
  const auto* found = std::ranges::find(kTensorTypes, number, &TensorType::number);
  if (found == kTensorTypes.end())
    throw Error(ErrorCode::bad_file, where, fmt::format("unknown type number {}", number));
  if (found->type) return *found->type;
  std::string known;
  for (const TensorType& t : kTensorTypes) {
    if (t.type) known += fmt::format("{}{}", known.empty() ? "" : ", ", t.name);
  }
  throw Error(ErrorCode::unsupported, where,
              fmt::format("type {} is not supported; these are: {}", found->name, known));
}

}  // namespace

std::uint32_t gguf_type_number(DType type) { return std::ranges::find(kTensorTypes, type, &TensorType::type)->number; }

// Reads forward through the file; never past its end. `field` names what is being read in the error.
class GgufFile::Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  template <typename T>
  T read(std::string_view field) {
    return load<T>(take(sizeof(T), field));
  }
  std::string_view read_name(std::string_view field) {
    const std::string_view name = read_string(field);
    if (name.size() > kMaxNameBytes) {
      throw error(field, fmt::format("its name has {} bytes, the limit is {}", name.size(), kMaxNameBytes));
    }
    return name;
  }
  std::string_view read_string(std::string_view field) {
    const auto length = read<std::uint64_t>(field);
    return {reinterpret_cast<const char*>(take(length, field)), static_cast<std::size_t>(length)};
  }
  const std::byte* take(std::uint64_t n, std::string_view field) {
    if (n > remaining()) {
      throw error(field, fmt::format("{} bytes wanted at offset {}, but the file ends at {}", n, at_, bytes_.size()));
    }
    const std::byte* p = bytes_.data() + at_;
    at_ += n;
    return p;
  }
  std::uint64_t read_n_entries(std::string_view field) {
    const auto n = read<std::uint64_t>(field);
    if (n > kMaxEntries) throw error(field, fmt::format("{} is beyond the limit of {}", n, kMaxEntries));
    return n;
  }
  // Throws unless `n` entries of at least `min_bytes` each can still follow.
  void check_count(std::uint64_t n, std::uint64_t min_bytes, std::string_view field) const {
    if (n > remaining() / min_bytes) {
      throw error(field, fmt::format("count {} cannot fit in the {} bytes that are left", n, remaining()));
    }
  }
  void align(std::uint64_t alignment) { at_ = std::min<std::uint64_t>(in_steps(at_, alignment), bytes_.size()); }
  std::span<const std::byte> rest() const { return bytes_.subspan(at_); }

  Error error(std::string_view field, const std::string& message) const {
    return {ErrorCode::bad_file, fmt::format("{}: {}", path_, field), message};
  }

 private:
  std::uint64_t remaining() const { return bytes_.size() - at_; }

  std::span<const std::byte> bytes_;
  const std::string& path_;
  std::uint64_t at_ = 0;
};

bool GgufFile::has_magic(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

GgufFile::GgufFile(const std::string& path, Scope scope) : file_(path) {
  Cursor in(file_.bytes(), file_.path());
  if (!has_magic(file_.bytes())) throw in.error("magic", "not a GGUF file: it does not begin with \"GGUF\"");
  in.take(kMagic.size(), "magic");
  const auto version = in.read<std::uint32_t>("version");
  if (version != 2 && version != 3) {
    const bool swapped = version != 0 && (version & 0xffffU) == 0;
    throw Error(ErrorCode::unsupported, file_.path() + ": version",
                swapped ? fmt::format("{:#x} is byte-swapped: big-endian files are not supported", version)
                        : fmt::format("version {} is not supported; banyan reads 2 and 3", version));
  }
  const std::uint64_t n_tensors = in.read_n_entries("tensor count");
  const std::uint64_t n_keys = in.read_n_entries("key count");
  in.check_count(n_tensors, kMinTensorBytes, "tensor count");
  in.check_count(n_keys, kMinKeyBytes, "key count");
  read_metadata(in, n_keys);
  if (scope == Scope::everything) read_tensors(in, n_tensors);
}

void GgufFile::read_metadata(Cursor& in, std::uint64_t n_keys) {
  for (std::uint64_t i = 0; i < n_keys; ++i) {
    const std::string_view key = in.read_name(fmt::format("key {}", i));
    const std::string field = fmt::format("key '{}'", key);
    const auto read_type = [&] {
      const auto number = in.read<std::uint32_t>(field);
      if (number > static_cast<std::uint32_t>(GgufType::f64)) {
        throw in.error(field, fmt::format("unknown value type {}", number));
      }
      return static_cast<GgufType>(number);
    };
    const std::byte* begin = in.rest().data();
    Value value{.type = read_type()};
    if (value.type == GgufType::array) {
      value = {.type = read_type(), .array = true, .n = in.read<std::uint64_t>(field)};
      if (value.type == GgufType::array) throw in.error(field, "arrays of arrays are not supported");
    }
    in.check_count(value.n, type_bytes(value.type), field);
    if (value.type == GgufType::string) {
      value.data = in.rest().data();
      for (std::uint64_t k = 0; k < value.n; ++k) in.read_string(field);
    } else {
      value.data = in.take(value.n * type_bytes(value.type), field);
    }
    value.raw = {begin, in.rest().data()};
    if (!values_.emplace(key, value).second) throw in.error(field, "stands in the file twice");
  }
}

void GgufFile::read_tensors(Cursor& in, std::uint64_t n_tensors) {
  const std::int64_t alignment = find_int("general.alignment").value_or(kDefaultAlignment);
  if (alignment < 1 || alignment > kMaxAlignment || !std::has_single_bit(static_cast<std::uint64_t>(alignment))) {
    throw key_error("general.alignment", fmt::format("{} is not a power of two up to {}", alignment, kMaxAlignment));
  }
  std::vector<std::pair<std::uint64_t, Tensor*>> in_order;
  for (std::uint64_t i = 0; i < n_tensors; ++i) {
    const std::string name(in.read_name(fmt::format("tensor {}", i)));
    const std::string field = fmt::format("tensor '{}'", name);
    Tensor tensor{.where = file_.path() + ": " + field};
    const auto n_dims = in.read<std::uint32_t>(field);
    if (n_dims < 1 || n_dims > kMaxDims) {
      throw in.error(field, fmt::format("has {} dimensions; 1 to {} are allowed", n_dims, kMaxDims));
    }
    for (std::uint32_t d = 0; d < n_dims; ++d) tensor.shape.push_back(in.read<std::int64_t>(field));
    std::ranges::reverse(tensor.shape);  // the file has the innermost first
    tensor.type = tensor_type(in.read<std::uint32_t>(field), tensor.where);
    tensor.bytes = tensor_bytes(tensor.type, tensor.shape, tensor.where);
    const auto offset = in.read<std::uint64_t>(field);
    if (offset % static_cast<std::uint64_t>(alignment) != 0) {
      throw in.error(field, fmt::format("offset {} is not a multiple of the alignment {}", offset, alignment));
    }
    const auto [entry, added] = tensors_.emplace(name, std::move(tensor));
    if (!added) throw in.error(field, "stands in the file twice");
    in_order.emplace_back(offset, &entry->second);
  }

  const auto step = static_cast<std::uint64_t>(alignment);
  in.align(step);
  const auto data = in.rest();
  std::uint64_t end = 0;  // of the tensor before, padded
  const std::string* before = nullptr;
  for (const auto& [offset, tensor] : in_order) {
    const auto bytes = static_cast<std::uint64_t>(tensor->bytes);
    if (offset > data.size() || bytes > data.size() - offset) {
      throw Error(ErrorCode::bad_file, tensor->where,
                  fmt::format("offset {} + {} bytes is past the end of the {} bytes of tensor data: the file is cut or "
                              "the offset is wrong",
                              offset, bytes, data.size()));
    }
    if (offset != end) {
      throw Error(ErrorCode::bad_file, tensor->where,
                  fmt::format("its offset is {}, but the data before it end at {} ({})", offset, end,
                              before == nullptr ? "it is the first" : *before));
    }
    tensor->data = data.data() + offset;
    end = in_steps(offset + bytes, step);
    before = &tensor->where;
  }
}

Error GgufFile::key_error(std::string_view key, const std::string& message) const {
  return {ErrorCode::bad_file, fmt::format("{}: key '{}'", file_.path(), key), message};
}

std::vector<std::string_view> GgufFile::keys() const {
  std::vector<std::string_view> out;
  for (const auto& [key, value] : values_) out.push_back(key);
  return out;
}

std::span<const std::byte> GgufFile::raw_value(std::string_view key) const { return values_.find(key)->second.raw; }

const GgufFile::Value* GgufFile::find(std::string_view key, bool array) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return nullptr;
  if (found->second.array != array)
    throw key_error(key, array ? "is not an array" : "is an array, one value is wanted");
  return &found->second;
}

bool GgufFile::is_array(std::string_view key) const {
  const auto found = values_.find(key);
  return found != values_.end() && found->second.array;
}

std::uint64_t GgufFile::array_length(std::string_view key) const { return is_array(key) ? values_.at(key).n : 0; }

std::int64_t GgufFile::integer(std::string_view key, const Value& value, std::uint64_t i) const {
  const std::byte* p = value.data + i * type_bytes(value.type);
  switch (value.type) {
    case GgufType::u8: return load<std::uint8_t>(p);
    case GgufType::i8: return load<std::int8_t>(p);
    case GgufType::u16: return load<std::uint16_t>(p);
    case GgufType::i16: return load<std::int16_t>(p);
    case GgufType::u32: return load<std::uint32_t>(p);
    case GgufType::i32: return load<std::int32_t>(p);
    case GgufType::i64: return load<std::int64_t>(p);
    case GgufType::u64: {
      const auto v = load<std::uint64_t>(p);
      if (v >> 63U != 0) throw key_error(key, fmt::format("{} does not fit in 63 bits", v));
      return static_cast<std::int64_t>(v);
    }
    default: throw key_error(key, "is not an integer");
  }
}

double GgufFile::number(std::string_view key, const Value& value, std::uint64_t i) const {
  if (value.type == GgufType::f32) return load<float>(value.data + i * sizeof(float));
  if (value.type == GgufType::f64) return load<double>(value.data + i * sizeof(double));
  throw key_error(key, "is not a floating-point number");
}

std::optional<std::int64_t> GgufFile::find_int(std::string_view key) const {
  const Value* value = find(key, false);
  if (value == nullptr) return std::nullopt;
  return integer(key, *value, 0);
}

std::optional<double> GgufFile::find_float(std::string_view key) const {
  const Value* value = find(key, false);
  if (value == nullptr) return std::nullopt;
  return number(key, *value, 0);
}

std::optional<bool> GgufFile::find_bool(std::string_view key) const {
  const Value* value = find(key, false);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::boolean) throw key_error(key, "is not a boolean");
  const auto byte = load<std::uint8_t>(value->data);
  if (byte > 1) throw key_error(key, fmt::format("a boolean is 0 or 1, not {}", byte));
  return byte == 1;
}

std::optional<std::string_view> GgufFile::find_string(std::string_view key) const {
  const Value* value = find(key, false);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::string) throw key_error(key, "is not a string");
  return string_at(value->data);
}

std::optional<std::vector<std::int64_t>> GgufFile::find_ints(std::string_view key) const {
  const Value* value = find(key, true);
  if (value == nullptr) return std::nullopt;
  std::vector<std::int64_t> out(value->n);
  for (std::uint64_t i = 0; i < value->n; ++i) out[i] = integer(key, *value, i);
  return out;
}

std::optional<std::vector<float>> GgufFile::find_floats(std::string_view key) const {
  const Value* value = find(key, true);
  if (value == nullptr) return std::nullopt;
  std::vector<float> out(value->n);
  for (std::uint64_t i = 0; i < value->n; ++i) out[i] = static_cast<float>(number(key, *value, i));
  return out;
}

std::optional<std::vector<std::string_view>> GgufFile::find_strings(std::string_view key) const {
  const Value* value = find(key, true);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::string) throw key_error(key, "is not an array of strings");
  std::vector<std::string_view> out(value->n);
  const std::byte* p = value->data;
  for (auto& text : out) {
    text = string_at(p);
    p += 8 + text.size();
  }
  return out;
}

}  // namespace banyan
