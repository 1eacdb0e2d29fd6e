// The file of product algorithms: what is remembered comes back, what is not its own does not, and nothing stops a run.
#include <doctest/doctest.h>
#include <filesystem>
#include <string>
#include <vector>

#include "code/temp_folder.hpp"
#include "kernels/cuda/algorithm_cache.hpp"

using namespace banyan;
using namespace banyan::kernels::cuda;

namespace {

constexpr ProductShape kShape{4096, 11008, 256, DType::bf16, false}, kOther{4096, 11008, 256, DType::f32, true};
const std::string kMachine = "NVIDIA H200, cuBLASLt 130200, driver 13000";

AlgorithmCache::Algorithm algorithm(std::uint64_t seed) {
  AlgorithmCache::Algorithm a{};
  for (auto& word : a) word = seed *= 0x9e3779b97f4a7c15ULL;
  return a;
}

struct Opened {
  std::vector<std::string> notices;
  AlgorithmCache cache;
  explicit Opened(const std::string& directory, const std::string& machine = kMachine)
      : cache(directory, machine, [this](std::string_view text) { notices.emplace_back(text); }) {}
};

}  // namespace

TEST_CASE("algorithm cache: remembers by shape, across objects that write in turns") {
  const TempFolder folder;
  const std::string directory = folder.path("new/folder");
  Opened first(directory), second(directory);
  CHECK_FALSE(first.cache.find(kShape).has_value());
  first.cache.remember(kShape, algorithm(1));
  second.cache.remember(kOther, algorithm(2));  // does not lose the first one's
  first.cache.remember({8, 8, 8, DType::f32, false}, {});
  const Opened third(directory);
  CHECK(third.cache.find(kShape) == algorithm(1));
  CHECK(third.cache.find(kOther) == algorithm(2));
  CHECK_FALSE(third.cache.find({4096, 11008, 257, DType::bf16, false}).has_value());
  CHECK(third.notices.empty());
  std::size_t n_files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++n_files;
  CHECK(n_files == 1);
}

TEST_CASE("algorithm cache: every damaged file, and one of another machine, is empty, is said, and is written anew") {
  const TempFolder folder;
  Opened made(folder.path());
  made.cache.remember(kShape, algorithm(3));
  const std::string name = std::filesystem::path(made.cache.path()).filename().string(), whole = folder.read(name);
  std::vector<std::string> damaged{"", "\n", "x", "\n\n\n", std::string(5000, '\n'), whole + "\n", whole + whole};
  for (std::size_t n = 1; n < whole.size(); n += 7) damaged.push_back(whole.substr(0, n));
  for (std::size_t i = 0; i < whole.size(); i += 5) {
    damaged.push_back(whole);
    damaged.back()[i] ^= 1;
  }
  for (const std::string& text : damaged) {
    folder.write(name, text);
    Opened o(folder.path());
    CHECK_FALSE(o.cache.find(kShape).has_value());
    REQUIRE(o.notices.size() == 1);
    CHECK(o.notices[0].find(name) != std::string::npos);
  }
  Opened again(folder.path());
  again.cache.remember(kShape, algorithm(4));
  CHECK(Opened(folder.path()).cache.find(kShape) == algorithm(4));

  // The same name, other contents: as if a driver were replaced under a copied file.
  Opened other(folder.path("other"), "another machine");
  other.cache.remember(kShape, algorithm(5));
  std::filesystem::copy_file(other.cache.path(), made.cache.path(), std::filesystem::copy_options::overwrite_existing);
  CHECK_FALSE(Opened(folder.path()).cache.find(kShape).has_value());
}

TEST_CASE("algorithm cache: without a folder nothing is kept; a folder that cannot be written is said once") {
  Opened off("");
  off.cache.remember(kShape, algorithm(6));
  CHECK_FALSE(off.cache.find(kShape).has_value());
  const TempFolder folder;
  folder.write("file", "not a folder");
  Opened bad(folder.path("file"));
  bad.cache.remember(kShape, algorithm(7));
  bad.cache.remember(kOther, algorithm(8));
  REQUIRE(bad.notices.size() == 1);
  CHECK(bad.notices[0].find("cannot be written") != std::string::npos);
}
