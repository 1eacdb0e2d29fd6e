// The folder of an APPS problem: one input is all of its JSON files, of which each finds its own keys.
#include <filesystem>
#include <fstream>

#include "banyan/code/problems.hpp"
#include "fuzz/fuzz_file.hpp"

namespace {

// In memory, where the system has such a place; removed at the end.
class Folder {
 public:
  Folder() : root_("/dev/shm/banyan-fuzz-" + std::to_string(getpid())) {
    std::filesystem::create_directories(root_ + "/0");
    write("question.txt", "Add.\nInput\n1 2\nOutput\n3\n");
  }
  ~Folder() { std::filesystem::remove_all(root_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  void write(const char* name, const std::string& text) const {
    std::ofstream(root_ + "/0/" + name, std::ios::binary) << text;
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"input_output.json", "metadata.json", "solutions.json"}) folder.write(name, text);
  banyan::test::expect_typed_errors([&] { banyan::code::load_problems(folder.root(), {.with_solutions = true}); });
  return 0;
}
