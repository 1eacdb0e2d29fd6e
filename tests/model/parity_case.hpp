// The cases of tests/data/parity.json, which tools/make_parity_golden.py makes: tiny random models of every family and
// rope type, and what transformers computes of them. Weights are drawn here as they are there.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "made_model.hpp"

namespace banyan::test {

struct ParityCase {
  std::string name;
  nlohmann::json json;
  std::map<std::string, MadeTensor> weights;  // by Hugging Face's names

  const nlohmann::json& config() const { return json["config"]; }
  bool is_reward() const { return json.contains("rewards"); }
  // GGUF has no form of yarn without rounding, nor of reward models.
  bool has_gguf() const { return json.contains("gguf") && !json["gguf"].is_null(); }
  std::vector<TokenId> prompt() const { return json["prompt"]; }
  std::vector<TokenId> greedy() const { return json["greedy"]; }
  // Position -> logits [vocab_size].
  std::map<std::int64_t, std::vector<float>> logits() const {
    std::map<std::int64_t, std::vector<float>> rows;
    for (const auto& [position, row] : json["logits"].items())
      rows[std::stoll(position)] = row.get<std::vector<float>>();
    return rows;
  }
};

// FNV-1a of the name starts a splitmix64 sequence; all values are exact in bf16.
inline MadeTensor draw_tensor(const std::string& name, std::vector<std::int64_t> shape) {
  std::uint64_t state = 0xcbf29ce484222325U;
  for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  std::int64_t n = 1;
  for (const std::int64_t dim : shape) n *= dim;
  MadeTensor tensor{.shape = std::move(shape), .values = {}};
  for (std::int64_t i = 1; i <= n; ++i) {
    std::uint64_t z = state + static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15U;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    z ^= z >> 31U;
    tensor.values.push_back(name.ends_with("norm.weight") ? 1.0F + (static_cast<float>(z % 33U) - 16.0F) / 32.0F
                                                          : (static_cast<float>(z % 55U) - 27.0F) / 64.0F);
  }
  return tensor;
}

inline std::vector<ParityCase> parity_cases() {
  std::vector<ParityCase> cases;
  const auto file = nlohmann::json::parse(read_file(BANYAN_SOURCE_DIR "/tests/data/parity.json"));
  for (const auto& json : file["cases"]) {
    ParityCase c{.name = json["name"], .json = json, .weights = {}};
    for (const auto& [name, shape] : json["shapes"].items()) c.weights[name] = draw_tensor(name, shape);
    cases.push_back(std::move(c));
  }
  return cases;
}

inline void write_hf(const ParityCase& c, const TempDir& dir, DType type = DType::f32) {
  write_file(dir / "config.json", c.config().dump());
  SafetensorsWriter out;
  for (const auto& [name, t] : c.weights) out.add(name, type, t.shape, tensor_data(t, type));
  write_file(dir / "model.safetensors", out.bytes());
}

inline void write_gguf(const ParityCase& c, const std::string& path) {
  const auto& form = c.json["gguf"];
  const std::string architecture = form["architecture"];
  GgufWriter out;
  out.add_string("general.architecture", architecture);
  for (const auto& [key, value] : form["keys"].items()) {
    const std::string full = architecture + "." + key;
    if (value.is_string()) out.add_string(full, value.get<std::string>());
    if (value.is_number_integer()) out.add_u32(full, value.get<std::uint32_t>());
    if (value.is_number_float()) out.add_f32(full, value.get<float>());
  }
  const std::int64_t head_dim = form["keys"]["attention.key_length"];
  for (const auto& [name, t] : c.weights) {
    const bool turned = form["interleaved"] && (contains(name, "q_proj") || contains(name, "k_proj"));
    const std::string data = tensor_data(turned ? interleaved(t, head_dim) : t, DType::f32);
    out.add_tensor(form["tensors"][name].get<std::string>(), DType::f32, t.shape, data);
  }
  for (const auto& [name, values] : form["extra"].items()) {
    const MadeTensor t{.shape = {static_cast<std::int64_t>(values.size())}, .values = values};
    out.add_tensor(name, DType::f32, t.shape, tensor_data(t, DType::f32));
  }
  write_file(path, out.bytes());
}

}  // namespace banyan::test
