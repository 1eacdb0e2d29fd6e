// banyan convert: a model file in another form, or its weights in another type.
#include "banyan/convert.hpp"

#include <fmt/format.h>
#include <iostream>

#include "cli/common.hpp"

namespace banyan::cli {
namespace {

struct Convert {
  std::string source, destination, type;
  int n_threads = 0;

  int run() const {
    make_parent(destination);
    const ConvertReport report =
        convert(source, destination, {.type = dtype_from_string(type), .n_threads = n_threads});
    fmt::print("{:<8}{:>8}{:>16}{:>16}{:>14}{:>16}\n", "type", "tensors", "weights", "bytes", "error", "largest error");
    for (const ConvertedType& t : report.types) {
      fmt::print("{:<8}{:>8}{:>16}{:>16}{:>14.4g}{:>16.4g}\n", to_string(t.type), t.n_tensors, t.n_weights, t.bytes,
                 t.error, t.largest_error);
    }
    if (report.n_fallback > 0) {
      log(fmt::format(
          "{} matrices have rows that are no whole blocks of {} elements: they are stored more exactly than "
          "in {}",
          report.n_fallback, report.block, type));
    }
    log(fmt::format("written to {}", destination));
    return kDone;
  }
};

}  // namespace

Command add_convert(CLI::App& app) {
  auto t = std::make_shared<Convert>();
  app.add_option("source", t->source, "Model: a Hugging Face directory or one .gguf")->required();
  app.add_option("destination", t->destination, "NAME.gguf, or a directory that will hold safetensors; must not exist")
      ->required();
  app.add_option("--type", t->type, "Type of the matrices; a directory takes f32, f16 and bf16, a .gguf all of them")
      ->transform(CLI::IsMember({"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q6_k"}, CLI::ignore_case))
      ->required();
  app.add_option("-t,--threads", t->n_threads, "Threads; 0: all cores")
      ->transform(whole_number(0, 1024))
      ->capture_default_str();
  app.footer(
      "Prints, for each type, sqrt(sum (y - x)^2 / sum x^2) and max |y - x| of its weights against the source's.\n\n"
      "Example:\n  banyan convert model-directory model.gguf --type q8_0");
  return [t] { return t->run(); };
}

}  // namespace banyan::cli
