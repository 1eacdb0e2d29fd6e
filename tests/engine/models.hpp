// Where tests find real checkpoints.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace banyan::test {

inline std::string tiny_model() { return BANYAN_SOURCE_DIR "/models/tiny/tiny.gguf"; }

// The default model, or "" where it was not fetched.
inline std::string smollm2() {
  if (const char* path = std::getenv("BANYAN_TEST_MODEL")) return path;
  const char* home = std::getenv("HOME");
  const auto path =
      std::filesystem::path(home != nullptr ? home : "") / ".cache/banyan/SmolLM2-135M-Instruct.Q4_1.gguf";
  return std::filesystem::exists(path) ? path.string() : std::string();
}

}  // namespace banyan::test
