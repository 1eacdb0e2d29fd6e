#include "model/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "model/flat_json.hpp"

namespace banyan {
namespace {

// Of a header and of an index: some 40,000 tensors. The format allows 100 MB, of which the parser's errors alone, which
// quote, would make several copies.
constexpr std::uint64_t kMaxHeaderBytes = 4 << 20;
constexpr std::size_t kMaxDims = 8;

constexpr std::array kTypes{std::pair{"F32", DType::f32}, std::pair{"F16", DType::f16}, std::pair{"BF16", DType::bf16}};
constexpr std::array kOtherTypes{"F64", "I64", "I32",  "I16",     "I8",      "U64",     "U32",
                                 "U16", "U8",  "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4"};

DType tensor_type(const std::string& name, const std::string& where) {
  for (const auto& [known, type] : kTypes) {
    if (name == known) return type;
  }
  if (std::ranges::find(kOtherTypes, name) != kOtherTypes.end()) {
    throw Error(ErrorCode::unsupported, where, fmt::format("dtype {} is not supported; F32, F16 and BF16 are", name));
  }
  throw Error(ErrorCode::bad_file, where, fmt::format("unknown dtype '{}'", clipped(name)));
}

std::int64_t size_value(const nlohmann::json& value, const std::string& where) {
  // Negative, fractional and over-long numbers are all parsed as something other than an unsigned integer of 63 bits.
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() >> 63U != 0) {
    throw Error(ErrorCode::bad_file, where, fmt::format("{} is not a size", clipped(value.dump())));
  }
  return value.get<std::int64_t>();
}

// The header. `data` is everything behind it.
class Header final : public FlatJson {
 public:
  Header(std::string path, std::span<const std::byte> data) : path_(std::move(path)), data_(data) {}

  TensorMap tensors;

 private:
  std::string where_of(const std::string& name) const override {
    return fmt::format("{}: tensor '{}'", path_, clipped(name));
  }

  void begin(const std::string& name) override {
    if (name.size() > kMaxTensorNameBytes) {
      throw Error(ErrorCode::bad_file, where_of(name),
                  fmt::format("its name has {} bytes, the limit is {}", name.size(), kMaxTensorNameBytes));
    }
    tensor_ = {.where = where_of(name)};
    dtype_.reset();
    has_shape_ = has_offsets_ = false;
    offsets_.clear();
  }

  void list(const std::string& name, const std::string& field) override {
    if (is_metadata(name)) return;
    if (field.empty()) throw no_shape(name);
    if (field != "shape" && field != "data_offsets") return;
    bool& seen = field == "shape" ? has_shape_ : has_offsets_;
    if (std::exchange(seen, true)) throw twice(field);
  }

  void value(const std::string& name, const std::string& field, bool in_list, const nlohmann::json& value) override {
    if (is_metadata(name)) return;
    if (field.empty()) throw no_shape(name);
    if (field == "dtype") {
      if (!value.is_string()) throw Error(ErrorCode::bad_file, tensor_.where, "its dtype is no string");
      if (dtype_) throw twice(field);
      dtype_ = value.get<std::string>();
    } else if (field == "shape") {
      if (!in_list) throw no_shape(name);
      if (tensor_.shape.size() == kMaxDims) {
        throw Error(ErrorCode::bad_file, tensor_.where, fmt::format("has more than {} dimensions", kMaxDims));
      }
      tensor_.shape.push_back(size_value(value, tensor_.where + ": shape"));
    } else if (field == "data_offsets") {
      if (!in_list || offsets_.size() == 2) throw no_offsets();
      offsets_.push_back(size_value(value, tensor_.where + ": data_offsets"));
    }
  }

  void end(const std::string& name) override {
    if (is_metadata(name)) return;
    if (!has_shape_) throw no_shape(name);
    if (offsets_.size() != 2) throw no_offsets();
    tensor_.type = tensor_type(dtype_.value_or(""), tensor_.where);
    tensor_.bytes = tensor_bytes(tensor_.type, tensor_.shape, tensor_.where);
    const std::int64_t begin = offsets_[0], end = offsets_[1], size = std::ssize(data_);
    if (begin > end || end > size) {
      throw Error(ErrorCode::bad_file, tensor_.where + ": data_offsets",
                  fmt::format("[{}, {}] do not lie in the {} bytes of data: the file is cut or the offsets are wrong",
                              begin, end, size));
    }
    if (end - begin != tensor_.bytes) {
      throw Error(ErrorCode::bad_file, tensor_.where + ": data_offsets",
                  fmt::format("[{}, {}] hold {} bytes, but {} of shape {} take {}", begin, end, end - begin,
                              to_string(tensor_.type), shape_text(tensor_.shape), tensor_.bytes));
    }
    tensor_.data = data_.data() + begin;
    if (tensors.size() == kMaxTensors) {
      throw Error(ErrorCode::bad_file, path_, fmt::format("has more than {} tensors", kMaxTensors));
    }
    if (!tensors.emplace(name, std::move(tensor_)).second) {
      throw Error(ErrorCode::bad_file, where_of(name), "stands in the header twice");
    }
  }

  static bool is_metadata(const std::string& name) { return name == "__metadata__"; }
  Error no_shape(const std::string& name) const { return {ErrorCode::bad_file, where_of(name), "has no shape"}; }
  Error no_offsets() const {
    return {ErrorCode::bad_file, tensor_.where + ": data_offsets", "are not two numbers [begin, end]"};
  }
  Error twice(const std::string& field) const {
    return {ErrorCode::bad_file, tensor_.where, fmt::format("has its {} twice", field)};
  }

  std::string path_;
  std::span<const std::byte> data_;
  // Of the tensor that is being read.
  Tensor tensor_;
  std::optional<std::string> dtype_;
  bool has_shape_ = false, has_offsets_ = false;
  std::vector<std::int64_t> offsets_;
};

// {"weight_map": {tensor: shard}}; what stands beside it is not read.
class ShardIndex final : public FlatJson {
 public:
  explicit ShardIndex(std::string path) : path_(std::move(path)) {}

  std::map<std::string, std::string> shard_of;

 private:
  std::string where_of(const std::string& member) const override {
    return fmt::format("{}: {}", path_, clipped(member));
  }
  void begin(const std::string&) override {}
  void list(const std::string& member, const std::string& field) override {
    if (member == "weight_map") throw no_name(field);
  }
  void value(const std::string& member, const std::string& field, bool, const nlohmann::json& value) override {
    if (member != "weight_map" || field.empty()) return;
    if (!value.is_string()) throw no_name(field);
    const auto& shard = value.get_ref<const std::string&>();
    // A plain name only: an index must not lead out of its directory.
    if (shard.empty() || shard == "." || shard == ".." || shard.find_first_of("/\\") != std::string::npos ||
        shard.find('\0') != std::string::npos || shard.size() > kMaxTensorNameBytes) {
      throw Error(ErrorCode::bad_file, where_of_tensor(field),
                  fmt::format("shard '{}' is not a file name in the same directory", clipped(shard)));
    }
    if (field.size() > kMaxTensorNameBytes || shard_of.size() == kMaxTensors) {
      throw Error(
          ErrorCode::bad_file, where_of_tensor(field),
          fmt::format("more than {} tensors, or a name of more than {} bytes", kMaxTensors, kMaxTensorNameBytes));
    }
    if (!shard_of.emplace(field, shard).second)
      throw Error(ErrorCode::bad_file, where_of_tensor(field), "stands twice");
  }
  void end(const std::string&) override {}

  std::string where_of_tensor(const std::string& name) const {
    return fmt::format("{}: tensor '{}'", path_, clipped(name));
  }
  Error no_name(const std::string& tensor) const {
    return {ErrorCode::bad_file, where_of_tensor(tensor), "its shard is not a file name"};
  }

  std::string path_;
};

void check_covers(const TensorMap& tensors, std::span<const std::byte> data, const std::string& path) {
  std::vector<const Tensor*> order;
  for (const auto& [name, tensor] : tensors) order.push_back(&tensor);
  std::ranges::sort(order, {}, &Tensor::data);
  const std::byte* end = data.data();
  for (const Tensor* tensor : order) {
    if (tensor->data != end) {
      throw Error(
          ErrorCode::bad_file, tensor->where + ": data_offsets",
          fmt::format("begin at {}, but the tensor before ends at {}", tensor->data - data.data(), end - data.data()));
    }
    end = tensor->data + tensor->bytes;
  }
  if (end != data.data() + data.size()) {
    throw Error(ErrorCode::bad_file, path,
                fmt::format("the tensors end at {}, the data at {}", end - data.data(), data.size()));
  }
}

}  // namespace

TensorMap SafetensorsFiles::open_file(const std::string& path) {
  const auto bytes = files_.emplace_back(path).bytes();
  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof header_bytes) {
    throw Error(ErrorCode::bad_file, path + ": header", fmt::format("the file has {} bytes only", bytes.size()));
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  const auto rest = bytes.subspan(sizeof header_bytes);
  if (header_bytes > rest.size() || header_bytes > kMaxHeaderBytes) {
    throw Error(ErrorCode::bad_file, path + ": header",
                fmt::format("is said to have {} bytes; the file has {} and the limit is {}", header_bytes, rest.size(),
                            kMaxHeaderBytes));
  }
  const auto data = rest.subspan(header_bytes);
  Header header(path, data);
  header.read({reinterpret_cast<const char*>(rest.data()), header_bytes}, path + ": header");
  TensorMap tensors = std::move(header.tensors);
  check_covers(tensors, data, path);
  return tensors;
}

void SafetensorsFiles::open_shards(const std::string& dir, const std::string& index_path) {
  const MappedFile file(index_path);
  if (file.bytes().size() > kMaxHeaderBytes) {
    throw Error(ErrorCode::bad_file, index_path,
                fmt::format("has {} bytes, the limit is {}", file.bytes().size(), kMaxHeaderBytes));
  }
  ShardIndex index(index_path);
  index.read({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, index_path);
  if (index.shard_of.empty()) {
    throw Error(ErrorCode::bad_file, index_path + ": weight_map", "is no object, or is empty");
  }
  std::set<std::string> shards;
  for (const auto& [name, shard] : index.shard_of) shards.insert(shard);
  for (const auto& shard : shards) {
    for (auto& [name, tensor] : open_file((std::filesystem::path(dir) / shard).string())) {
      const auto entry = index.shard_of.find(name);
      if (entry == index.shard_of.end() || entry->second != shard) {
        throw Error(ErrorCode::bad_file, tensor.where, "the index does not say that it stands in this shard");
      }
      tensors_.emplace(name, std::move(tensor));
    }
  }
  for (const auto& [name, shard] : index.shard_of) {
    if (!tensors_.contains(name)) {
      throw Error(ErrorCode::bad_file, fmt::format("{}: tensor '{}'", index_path, name),
                  fmt::format("is not in the shard '{}' that the index names", shard));
    }
  }
}

SafetensorsFiles SafetensorsFiles::of_file(const std::string& path) {
  SafetensorsFiles files;
  files.tensors_ = files.open_file(path);
  return files;
}

SafetensorsFiles::SafetensorsFiles(const std::string& dir) {
  const std::filesystem::path base(dir);
  const auto single = base / "model.safetensors";
  const auto index = base / "model.safetensors.index.json";
  std::error_code ignored;  // what cannot be looked at is not there; opening it names the cause
  if (std::filesystem::exists(single, ignored)) {
    tensors_ = open_file(single.string());
  } else if (std::filesystem::exists(index, ignored)) {
    open_shards(dir, index.string());
  } else {
    throw Error(ErrorCode::bad_file, dir,
                "holds neither model.safetensors nor model.safetensors.index.json (other weight formats, such as "
                "pytorch_model.bin, are not supported)");
  }
}

}  // namespace banyan
