#include <cstring>
#include <doctest/doctest.h>

#include "made_model.hpp"
#include "model/safetensors.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

std::string with_header(const std::string& header, const std::string& data) {
  const std::uint64_t n = header.size();
  return std::string(reinterpret_cast<const char*>(&n), sizeof n) + header + data;
}

// The typed error of a directory whose one file has these bytes; "" when it opens.
std::string open_error(const TempDir& dir, const std::string& bytes) {
  write_file(dir / "model.safetensors", bytes);
  return error_of([&] { SafetensorsFiles{dir.str()}; });
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

}  // namespace

TEST_CASE("safetensors: what the writer writes the reader reads") {
  const TempDir dir("safetensors_round_trip");
  const MadeTensor values{{2, 2}, {1, -2, 0.5F, 4}};
  SafetensorsWriter out;
  out.add("a", DType::f32, {2, 2}, tensor_data(values, DType::f32));
  out.add("b \"\u00e9", DType::f16, {2, 2}, tensor_data(values, DType::f16));
  out.add("c", DType::bf16, {2, 2}, tensor_data(values, DType::bf16));
  write_file(dir / "model.safetensors", out.bytes());
  CHECK(out.header().size() % 8 == 0);
  const SafetensorsFiles files(dir.str());
  REQUIRE(files.tensors().size() == 3);
  for (const auto& [name, tensor] : files.tensors()) {
    std::vector<float> got(4);
    dequantize(tensor.type, tensor.data, 4, got.data());
    CHECK(got == values.values);
  }
}

TEST_CASE("BL-30: header fields that contradict each other or the file are errors naming file and tensor") {
  const TempDir dir("safetensors_bl30");
  const std::string data(64, '\0');
  CHECK(open_error(dir, with_header(entry("F32", "[4,4]", "[0,64]"), data)).empty());

  const std::vector<std::string> bad{
      entry("F32", "[1000,1000]", "[0,4]"),
      entry("F32", "[1]", "[8,4]"),
      entry("F32", "[4,4]", "[4,68]"),
      entry("F32", "[4,4]", "[0]"),
      entry("F32", "[4,4]", "[0,32,64]"),
      entry("F32", "[4,4]", "[-64,0]"),
      entry("F32", "[4,4]", "[0,64.0]"),
      entry("F32", "[4,4]", "[0,18446744073709551680]"),
      entry("F32", "[4,4]", "\"[0,64]\""),
      entry("F99", "[4,4]", "[0,64]"),
      entry("", "[4,4]", "[0,64]"),
      entry("F64", "[2,4]", "[0,64]"),
      entry("F32", "[4294967296,4294967296]", "[0,64]"),
      entry("F32", "[4,-4]", "[0,64]"),
      entry("F32", "[0,4]", "[0,0]"),
      entry("F32", "{}", "[0,64]"),
      R"({"w":{"dtype":"F32","data_offsets":[0,64]}})",
      R"({"w":{"dtype":"F32","shape":[16]}})",
      R"({"w":7})",
      R"({"w":[7]})",
      R"({"w":{"dtype":7,"shape":[16],"data_offsets":[0,64]}})",
      R"({"w":{"dtype":"F32","dtype":"F32","shape":[16],"data_offsets":[0,64]}})",
      R"({"w":{"dtype":"F32","shape":[16],"shape":[],"data_offsets":[0,64]}})",
      R"({"w":{"dtype":"F32","shape":16,"data_offsets":[0,64]}})",
      R"({"w":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,16],"data_offsets":[0,64]}})",
      R"({"w":{"dtype":"F32","shape":[[16]],"data_offsets":[0,64]}})",
  };
  for (const auto& header : bad) {
    CAPTURE(header);
    const std::string error = open_error(dir, with_header(header, data));
    CHECK_MESSAGE(contains(error, "model.safetensors: tensor 'w'"), error);
  }
  CHECK(contains(open_error(dir, with_header(entry("F64", "[2,4]", "[0,64]"), data)), "unsupported: "));

  // Holes, overlaps and data that no tensor covers.
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"F32","shape":[8],"data_offsets":)" + a +
           R"(},"b":{"dtype":"F32","shape":[8],"data_offsets":)" + b + "}}";
  };
  CHECK(open_error(dir, with_header(two("[0,32]", "[32,64]"), data)).empty());
  CHECK(contains(open_error(dir, with_header(two("[0,32]", "[16,48]"), data)), "tensor 'b'"));
  CHECK(contains(open_error(dir, with_header(two("[0,32]", "[32,64]"), data + "more")), "model.safetensors"));
}

TEST_CASE("BL-30: headers that are no header") {
  const TempDir dir("safetensors_header");
  const std::string data(64, '\0');
  const std::string good = with_header(entry("F32", "[4,4]", "[0,64]"), data);
  for (std::size_t n = 0; n < good.size(); ++n) {
    CAPTURE(n);
    REQUIRE(contains(open_error(dir, good.substr(0, n)), "model.safetensors"));
  }
  for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{1} << 40U, ~std::uint64_t{0}}) {
    std::string bytes = good;
    std::memcpy(bytes.data(), &n, sizeof n);
    CHECK(contains(open_error(dir, bytes), "header"));
  }
  const std::string one = entry("F32", "[4,4]", "[0,64]"),
                    doubled = one.substr(0, one.size() - 1) + "," + one.substr(1);
  CHECK(contains(open_error(dir, with_header("[1]", "")), "not a JSON object"));
  CHECK(contains(open_error(dir, with_header("{\"w\":\"\xff\"}", "")), "not valid JSON"));
  CHECK(contains(open_error(dir, with_header(doubled, data)), "twice"));
  CHECK(contains(open_error(dir, with_header(R"({"w":{"x":)" + std::string(100'000, '['), "")), "nested deeper"));
}

TEST_CASE("BL-31: index and shards must name the same tensors, both ways") {
  const TempDir dir("safetensors_bl31");
  const MadeModel model(4, 2, true);
  const auto error = [&] { return error_of([&] { load_oracle(dir.str()); }); };
  const std::string index = dir / "model.safetensors.index.json", victim = "model.layers.1.mlp.up_proj.weight";
  const auto without = [&](const MadeModel& m, const std::string& name) {
    MadeModel copy = m;
    copy.weights.erase(name);
    return copy;
  };
  const auto edit_index = [&](auto&& edit) {
    auto json = nlohmann::json::parse(read_file(index));
    edit(json["weight_map"]);
    write_file(index, json.dump());
  };

  SUBCASE("whole") {
    write_hf(model, dir, false, 2);
    CHECK(error().empty());
  }
  SUBCASE("a shard is not there") {
    write_hf(model, dir, false, 2);
    std::filesystem::remove(dir / shard_name(1, 2));
    CHECK(contains(error(), shard_name(1, 2)));
  }
  SUBCASE("a tensor is not in the index") {
    write_hf(model, dir, false, 2);
    edit_index([&](auto& map) { map.erase(victim); });
    CHECK(contains(error(), victim));
  }
  SUBCASE("a tensor is in the index only") {
    write_hf(without(model, victim), dir, false, 2);
    edit_index([&](auto& map) { map[victim] = shard_name(0, 2); });
    CHECK(contains(error(), victim));
  }
  SUBCASE("a tensor is in neither") {
    write_hf(without(model, victim), dir, false, 2);
    CHECK(contains(error(), victim));
  }
  SUBCASE("the index names the other shard") {
    write_hf(model, dir, false, 2);
    edit_index([&](auto& map) { map[victim] = map[victim] == shard_name(0, 2) ? shard_name(1, 2) : shard_name(0, 2); });
    CHECK(contains(error(), victim));
  }
  SUBCASE("a shard outside the directory") {
    write_hf(model, dir, false, 2);
    for (const char* outside : {"../x.safetensors", "/x.safetensors", "..", "", "a\\b"}) {
      edit_index([&](auto& map) { map[victim] = outside; });
      CHECK(contains(error(), victim));
      CHECK(contains(error(), "same directory"));
    }
  }
  SUBCASE("an empty directory, and one with a configuration alone") {
    CHECK(contains(error(), "config.json"));
    write_file(dir / "config.json", config_json(model.config, false).dump());
    CHECK(contains(error(), "model.safetensors"));
  }
}
