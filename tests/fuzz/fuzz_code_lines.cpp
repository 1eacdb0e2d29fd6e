// What the coding harness reads as one file: problems, samples, results, few-shot examples; and a program's answer.
#include "banyan/code/compare.hpp"
#include "banyan/code/evaluate.hpp"
#include "banyan/code/extract.hpp"
#include "banyan/code/prompts.hpp"
#include "banyan/code/samples.hpp"
#include "fuzz/fuzz_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace banyan::code;
  const banyan::test::MemoryFile file(data, size);
  const std::string text(reinterpret_cast<const char*>(data), size);
  banyan::test::expect_typed_errors([&] { load_problems(file.path(), {.with_solutions = true}); });
  for (const SampleRecord& record : read_samples(file.path()).samples) to_json_line(record);
  for (const auto& [key, result] : read_results(file.path())) to_json_line(result);
  banyan::test::expect_typed_errors([&] { load_few_shot(file.path()); });
  for (const Comparator comparator : {Comparator::apps, Comparator::strict}) {
    banyan::test::expect_typed_errors([&] { same_result(comparator, text, text); });
    same_output(comparator, text, text);
  }
  for (const ProblemKind kind : {ProblemKind::standard_input, ProblemKind::humaneval})
    extract_program(text, ExtractMode::automatic, kind);
  return 0;
}
