// `banyan generate` on a file of very many prompts.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <sys/resource.h>

#include "cli/bigram_model.hpp"
#include "cli/process.hpp"

using namespace banyan::test;
using nlohmann::json;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The most memory that a child of this process had, in bytes.
std::int64_t peak_of_children() {
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  return usage.ru_maxrss * 1024;
}

}  // namespace

TEST_CASE("a hundred thousand lines with shared prefixes: one forest in under 10 s, in bounded memory") {
  constexpr int kLines = 100'000, kBroken = 4;
  BigramModel model(256);
  model.chain("q\n");
  const TempFolder folder;
  const std::string path = folder.write("bigram.gguf", model.gguf(true));
  // Ten groups of a thousand problems, each asked ten times.
  std::string lines;
  for (int i = 0; i < kLines; ++i) {
    const std::string text = "a prefix that all of the prompts share. group " + std::to_string(i % 10) + ", problem " +
                             std::to_string(i / 10 % 1000) + " q";
    lines += i % 25'000 == 77 ? "{\"prompt\": \"" + text + "\n" : json{{"prompt", text}, {"id", i}}.dump() + "\n";
  }
  const Outcome o = run({"generate", "-m", path, "--compute", "f32", "-f", folder.write("many.jsonl", lines), "--out",
                         folder.path("out.jsonl"), "--max-tokens", "0"});
  CAPTURE(o.err);
  CHECK(o.code == 4);
  for (const int number : {78, 25'078, 50'078, 75'078}) CHECK(has(o.err, "many.jsonl:" + std::to_string(number) + ":"));
  const auto at = o.err.find(std::to_string(kLines - kBroken) + " prompts of ");
  REQUIRE(at != std::string::npos);
  const double seconds = std::stod(o.err.substr(o.err.find('(', at) + 1));
  const double megabytes = static_cast<double>(peak_of_children()) / 1e6;
  MESSAGE("one forest in " << seconds << " s, at most " << megabytes << " MB");
  CHECK(seconds < 10);
  CHECK(megabytes < 300);

  std::set<std::string> ids;
  std::istringstream in(folder.read("out.jsonl"));
  int n_errors = 0;
  for (std::string line; std::getline(in, line);) {
    const json j = json::parse(line);
    n_errors += j["finish_reason"] == "error";
    CHECK(ids.insert(j["id"].dump()).second);
  }
  CHECK(n_errors == kBroken);
  CHECK(ids.size() == static_cast<std::size_t>(kLines));
}
