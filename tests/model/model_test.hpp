// What the tests of the model share: where files are, flat plans, logits of one sequence, greedy continuation.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

#include "model/forward.hpp"
#include "model/weights.hpp"
#include "oracle_backend.hpp"

namespace banyan::test {

inline const std::string kTinyDir = BANYAN_SOURCE_DIR "/models/tiny/hf";
inline const std::string kTinyGguf = BANYAN_SOURCE_DIR "/models/tiny/tiny.gguf";

// A directory of this process's own (ctest runs the cases of one program side by side), empty, removed at the end.
class TempDir {
 public:
  explicit TempDir(const std::string& name)
      : path_(std::filesystem::path(BANYAN_BINARY_DIR) / "tests" / (name + "." + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string str() const { return path_.string(); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::shared_ptr<const LoadedModel> load_oracle(const std::string& path,
                                                      LoadOptions options = {.compute = Compute::f32}) {
  return std::make_shared<LoadedModel>(open_checkpoint(path), options, make_oracle_backend);
}

// The plan of one sequence by itself whose first n_past tokens have their KV in slots [first_slot, first_slot +
// n_past). Logits of every row.
inline Plan flat_plan(std::span<const TokenId> ids, std::int64_t n_past = 0, std::int64_t first_slot = 0) {
  Plan plan;
  const auto n_rows = static_cast<std::int64_t>(ids.size());
  for (std::int64_t r = 0; r < n_rows; ++r) {
    plan.tokens.push_back(ids[static_cast<std::size_t>(r)]);
    plan.positions.push_back(static_cast<std::int32_t>(n_past + r));
    plan.nodes.push_back(NodeId{0});
    plan.kv_slots.push_back(first_slot + n_past + r);
    plan.logit_rows.push_back(static_cast<std::int32_t>(r));
  }
  plan.runs.push_back({first_slot, n_past + n_rows});
  plan.calls.push_back(
      {.run_begin = 0, .run_end = 1, .n_keys = n_past + n_rows, .kv_position = 0, .row_begin = 0, .row_end = n_rows});
  plan.span_rows.push_back(0);
  return plan;
}

// Logits of all positions, [ids.size(), vocab_size].
inline std::vector<float> flat_logits(const std::shared_ptr<const Model>& model, std::span<const TokenId> ids,
                                      DType kv_type = DType::f32) {
  Forward forward(model, kv_type, static_cast<std::int64_t>(ids.size()));
  const auto logits = forward.run(flat_plan(ids));
  return {logits.begin(), logits.end()};
}

inline TokenId argmax(std::span<const float> row) {
  return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
}

// The prompt's last logits, then n greedy tokens, each computed by a step of one row.
struct Greedy {
  std::vector<float> prompt_logits;  // [vocab_size]
  std::vector<TokenId> ids;
};
inline Greedy greedy(const std::shared_ptr<const Model>& model, std::span<const TokenId> prompt, int n) {
  const auto vocab_size = static_cast<std::size_t>(model->config().vocab_size);
  auto n_past = static_cast<std::int64_t>(prompt.size());
  Forward forward(model, DType::f32, n_past + n);
  Plan plan = flat_plan(prompt);
  plan.logit_rows = {static_cast<std::int32_t>(n_past - 1)};
  Greedy out;
  for (int i = 0; i < n; ++i, ++n_past) {
    const auto logits = forward.run(plan);
    if (i == 0) out.prompt_logits.assign(logits.begin(), logits.end());
    out.ids.push_back(argmax(logits.first(vocab_size)));
    plan = flat_plan({&out.ids.back(), 1}, n_past);
  }
  return out;
}

inline float max_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return INFINITY;
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    if (!(difference <= most)) most = std::isnan(difference) ? INFINITY : difference;
  }
  return most;
}

}  // namespace banyan::test
