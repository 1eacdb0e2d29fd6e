// Which algorithm was fastest for a product's shape, kept in a file between runs. Plain C++: knows no cuBLASLt, for
// which an algorithm is 64 bytes.
//
// One file for each machine, which is all that the choice depends on: GPU, version of the library, driver. A file that
// is damaged, or another machine's, counts as empty and is written anew. It is replaced whole (written beside, then
// renamed), with what others have added to it in the meantime; of two who write at the same moment one is lost, and
// picks again another time.
// Threads: none; two objects on one file are fine.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "banyan/types.hpp"

namespace banyan::kernels::cuda {

struct ProductShape {
  std::int64_t n_out, n_in, n_rows;
  DType y_type;
  bool accumulate;
  auto operator<=>(const ProductShape&) const = default;
};

class AlgorithmCache {
 public:
  using Algorithm = std::array<std::uint64_t, 8>;

  // `directory`: made when there is something to write; "": nothing is kept. `machine`: one line, also the file's name.
  // `notice` (may be empty) hears of files that cannot be used or written.
  AlgorithmCache(const std::string& directory, const std::string& machine,
                 std::function<void(std::string_view)> notice);

  std::optional<Algorithm> find(const ProductShape& shape) const;
  void remember(const ProductShape& shape, const Algorithm& algorithm);  // and writes the file
  const std::string& path() const { return path_; }                      // "" where nothing is kept

 private:
  void read();
  void write();

  std::string path_, machine_;
  std::function<void(std::string_view)> notice_;
  std::map<ProductShape, Algorithm> algorithms_;
};

}  // namespace banyan::kernels::cuda
