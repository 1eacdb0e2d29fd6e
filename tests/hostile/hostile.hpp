// What the tests of hostile files share: damage to bytes, and the promises that every reader keeps for a damaged file.
//
// A reader either takes the file or throws banyan::Error: nothing else escapes, no sanitizer complains, memory grows by
// no more than kMostGrowth, and the error names a file of the case's directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>

namespace banyan::test {

constexpr std::size_t kMostGrowth = std::size_t{64} << 20;  // bytes
constexpr int kMutations = 10'000;

struct HostileCase {
  std::string name;          // of the file: "model.gguf"
  std::string directory;     // where it is written; made where it is absent. A test may have put other files there
  std::string bytes;         // the good file
  std::size_t n_header = 0;  // three of four mutations hit these first bytes; 0: anywhere
  std::function<void(const std::string& path)> read;  // reads the file at `path`, as far as a user of it would
  bool cuts_fail = true;                              // no beginning of the file is a good file
};

// The good file is read without an error; then all its beginnings of a multiple of 64 bytes, and those one byte shorter
// than such a multiple.
void check_cut(const HostileCase& c);
// The file is refused, and the promises are kept.
void check_refused(const HostileCase& c);
// The same for a file that stands there already, and is too large for `bytes`.
void check_refused_there(const HostileCase& c);
// kMutations random ones, from a fixed seed. At least one must be refused.
void check_mutations(const HostileCase& c);

// One to four random changes: bits, bytes, whole numbers of 2, 4 and 8 bytes set to values at the edges, digits of
// text, pieces of the file cut out, doubled, moved, and the end cut off.
std::string mutated(const std::string& bytes, std::size_t n_header, std::mt19937_64& random);

}  // namespace banyan::test
