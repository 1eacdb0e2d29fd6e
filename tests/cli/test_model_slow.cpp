// inspect and convert on a model that is large enough for its memory to be its weights.
#include <cstdlib>
#include <doctest/doctest.h>
#include <sstream>

#include "cli/process.hpp"

using namespace banyan::test;

namespace {

// "peak  N bytes of memory at most while loading, 1.05 x the weights"
double peak_over_weights(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("peak")) return std::stod(line.substr(line.rfind(',') + 1));
  }
  return 0;
}

}  // namespace

TEST_CASE("inspect: loading SmolLM2 takes little more memory than its weights, in every form") {
  const char* home = std::getenv("HOME");
  const std::string source =
      std::string(home != nullptr ? home : "") + "/.cache/banyan/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(source)) {
    MESSAGE("skipped: SmolLM2-135M-Instruct.Q4_1.gguf is not in ~/.cache/banyan");
    return;
  }
  const TempFolder folder;
  const std::string directory = folder.path("bf16"), f32 = folder.path("f32.gguf");
  CHECK(run({"convert", source, directory, "--type", "BF16"}).code == 0);
  CHECK(run({"convert", source, f32, "--type", "f32"}).code == 0);
  for (const std::string& model : {source, directory, f32}) {
    for (const std::string compute : {"f32", "bf16"}) {
      CAPTURE(model);
      CAPTURE(compute);
      const Outcome o = run({"inspect", model, "--compute", compute});
      CHECK(o.code == 0);
      MESSAGE(o.out);
      CHECK(peak_over_weights(o.out) > 0.99);
      CHECK(peak_over_weights(o.out) <= 1.15);
    }
  }
}
