#include "model/safetensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <set>
#include <utility>

#include "base/json.hpp"

namespace banyan {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

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
  throw Error(ErrorCode::bad_file, where, fmt::format("unknown dtype '{}'", name));
}

std::int64_t size_value(const nlohmann::json& value, const std::string& where) {
  // Negative, fractional and over-long numbers are all parsed as something other than an unsigned integer of 63 bits.
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() >> 63U != 0) {
    throw Error(ErrorCode::bad_file, where, fmt::format("{} is not a size", value.dump()));
  }
  return value.get<std::int64_t>();
}

// One entry of the header. `data` is everything behind the header.
Tensor read_entry(const nlohmann::json& entry, std::span<const std::byte> data, const std::string& where) {
  if (!entry.is_object() || !entry.contains("shape") || !entry["shape"].is_array()) {
    throw Error(ErrorCode::bad_file, where, "has no shape");
  }
  Tensor tensor{.where = where};
  tensor.type = tensor_type(find_string(entry, "dtype", where).value_or(""), where);
  for (const auto& dim : entry["shape"]) tensor.shape.push_back(size_value(dim, where + ": shape"));
  tensor.bytes = tensor_bytes(tensor.type, tensor.shape, where);

  const auto offsets = entry.value("data_offsets", nlohmann::json());
  if (!offsets.is_array() || offsets.size() != 2) {
    throw Error(ErrorCode::bad_file, where + ": data_offsets", "are not two numbers [begin, end]");
  }
  const std::int64_t begin = size_value(offsets[0], where + ": data_offsets");
  const std::int64_t end = size_value(offsets[1], where + ": data_offsets");
  const auto size = static_cast<std::int64_t>(data.size());
  if (begin > end || end > size) {
    throw Error(ErrorCode::bad_file, where + ": data_offsets",
                fmt::format("[{}, {}] do not lie in the {} bytes of data: the file is cut or the offsets are wrong",
                            begin, end, size));
  }
  if (end - begin != tensor.bytes) {
    throw Error(ErrorCode::bad_file, where + ": data_offsets",
                fmt::format("[{}, {}] hold {} bytes, but {} of shape {} take {}", begin, end, end - begin,
                            to_string(tensor.type), shape_text(tensor.shape), tensor.bytes));
  }
  tensor.data = data.data() + begin;
  return tensor;
}

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
  const auto header = parse_json_object({reinterpret_cast<const char*>(rest.data()), header_bytes}, path + ": header");
  const auto data = rest.subspan(header_bytes);
  TensorMap tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__")
      tensors.emplace(name, read_entry(entry, data, fmt::format("{}: tensor '{}'", path, name)));
  }
  check_covers(tensors, data, path);
  return tensors;
}

void SafetensorsFiles::open_shards(const std::string& dir, const std::string& index_path) {
  const auto index = read_json_object(index_path);
  const auto weight_map = index.value("weight_map", nlohmann::json());
  if (!weight_map.is_object() || weight_map.empty()) {
    throw Error(ErrorCode::bad_file, index_path + ": weight_map", "is no object, or is empty");
  }
  std::set<std::string> shards;
  for (const auto& [name, value] : weight_map.items()) {
    const std::string where = fmt::format("{}: tensor '{}'", index_path, name);
    if (!value.is_string()) throw Error(ErrorCode::bad_file, where, "its shard is not a file name");
    const auto shard = value.get<std::string>();
    // A plain name only: an index must not lead out of its directory.
    if (shard.empty() || shard == "." || shard == ".." || shard.find_first_of("/\\") != std::string::npos ||
        shard.find('\0') != std::string::npos) {
      throw Error(ErrorCode::bad_file, where,
                  fmt::format("shard '{}' is not a file name in the same directory", shard));
    }
    shards.insert(shard);
  }
  for (const auto& shard : shards) {
    for (auto& [name, tensor] : open_file((std::filesystem::path(dir) / shard).string())) {
      const auto entry = weight_map.find(name);
      if (entry == weight_map.end() || *entry != shard) {
        throw Error(ErrorCode::bad_file, tensor.where, "the index does not say that it stands in this shard");
      }
      tensors_.emplace(name, std::move(tensor));
    }
  }
  for (const auto& [name, shard] : weight_map.items()) {
    if (!tensors_.contains(name)) {
      throw Error(ErrorCode::bad_file, fmt::format("{}: tensor '{}'", index_path, name),
                  fmt::format("is not in the shard '{}' that the index names", shard.get<std::string>()));
    }
  }
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
