#include "hostile/hostile.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>

#include "banyan/error.hpp"

// Of the sanitizers' allocator_interface.h, which g++'s packages leave out.
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, std::size_t),
                                              void (*on_free)(const volatile void*));
std::size_t __sanitizer_get_allocated_size(const volatile void* p);
}

// One allocation beyond what a whole file may cost ends the test at once; freed memory is kept for a while only, so
// that ten thousand files do not add up. sentencepiece's global registries are no leak of a reader.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=64:quarantine_size_mb=16:allocator_may_return_null=0:detect_leaks=1";
}

namespace banyan::test {
namespace {

constexpr std::uint64_t kSeed = 33;

// Heap bytes in use, and the most there were since begin(). Counted by the allocator's hooks, so exact.
class HeapWatch {
 public:
  static void begin() {
    static const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    REQUIRE(installed > 0);
    peak_ = live_.load();
    start_ = peak_.load();
  }
  static std::size_t growth() { return static_cast<std::size_t>(std::max<std::int64_t>(0, peak_ - start_)); }

 private:
  static void on_malloc(const volatile void*, std::size_t n) {
    const std::int64_t now = live_ += static_cast<std::int64_t>(n);
    std::int64_t peak = peak_;
    while (now > peak && !peak_.compare_exchange_weak(peak, now)) {
    }
  }
  static void on_free(const volatile void* p) {
    if (p != nullptr) live_ -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(p));
  }
  static inline std::atomic<std::int64_t> live_{0}, peak_{0}, start_{0};
};

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// The message of the Error, "" if the file is taken. Everything else that a reader may do fails the test.
std::string outcome(const HostileCase& c, const std::string& path) {
  std::string message;
  HeapWatch::begin();
  try {
    c.read(path);
  } catch (const Error& e) {
    message = e.what();
    CHECK_MESSAGE(e.where().find(c.directory) != std::string::npos, message);
  }
  CHECK_MESSAGE(HeapWatch::growth() <= kMostGrowth, message);
  return message;
}

// The file of a case, in its directory.
class CaseFile {
 public:
  explicit CaseFile(const HostileCase& c) : path_((std::filesystem::path(c.directory) / c.name).string()) {
    std::filesystem::create_directories(c.directory);
    write(path_, c.bytes);
  }
  ~CaseFile() { std::filesystem::remove(path_); }
  CaseFile(const CaseFile&) = delete;
  CaseFile& operator=(const CaseFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::size_t below(std::mt19937_64& random, std::size_t n) {
  return n == 0 ? 0 : static_cast<std::size_t>(random() % n);
}

constexpr std::array<std::uint64_t, 16> kEdges{0,
                                               1,
                                               2,
                                               0x7f,
                                               0x80,
                                               0xff,
                                               0x7fff,
                                               0xffff,
                                               0x7fffffff,
                                               0x80000000,
                                               0xffffffff,
                                               std::uint64_t{1} << 40U,
                                               std::uint64_t{1} << 60U,
                                               (std::uint64_t{1} << 63U) - 1,
                                               std::uint64_t{1} << 63U,
                                               ~std::uint64_t{0}};

void change(std::string& bytes, std::size_t n_header, std::mt19937_64& random) {
  if (bytes.empty()) return;
  const std::size_t n_near = n_header > 0 && random() % 4 != 0 ? std::min(n_header, bytes.size()) : bytes.size();
  const std::size_t at = below(random, n_near);
  const std::size_t n = std::min(bytes.size() - at, std::size_t{1} + below(random, 64));
  switch (random() % 8) {
    case 0: bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(1U << random() % 8)); break;
    case 1: bytes[at] = static_cast<char>(random()); break;
    case 2: {
      const std::uint64_t edge = kEdges[below(random, kEdges.size())] + (random() % 4 == 0 ? random() % 8 : 0);
      std::memcpy(bytes.data() + at, &edge, std::min<std::size_t>(bytes.size() - at, std::size_t{2} << random() % 3));
      break;
    }
    case 3: {  // a character of JSON
      constexpr std::string_view kMarks = "0123456789-.eE\"{}[]:,\\ ntf";
      bytes[at] = kMarks[below(random, kMarks.size())];
      break;
    }
    case 4: bytes.erase(at, n); break;
    case 5: bytes.insert(at, bytes.substr(at, n)); break;
    case 6: bytes.replace(at, n, bytes.substr(below(random, n_near), n)); break;
    default:
      if (random() % 4 == 0)
        bytes.resize(below(random, bytes.size()));
      else
        bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) + (random() % 2 == 0 ? 1 : -1));
  }
}

}  // namespace

std::string mutated(const std::string& bytes, std::size_t n_header, std::mt19937_64& random) {
  std::string out = bytes;
  for (std::uint64_t n = 1 + random() % 4; n > 0; --n) change(out, n_header, random);
  return out;
}

void check_refused(const HostileCase& c) {
  CAPTURE(c.name);
  CHECK(outcome(c, CaseFile(c).path()) != "");
}

void check_refused_there(const HostileCase& c) {
  CAPTURE(c.name);
  CHECK(outcome(c, (std::filesystem::path(c.directory) / c.name).string()) != "");
}

void check_cut(const HostileCase& c) {
  const CaseFile file(c);
  REQUIRE(outcome(c, file.path()) == "");
  for (std::size_t n = c.bytes.size() / 64 * 64; n > 0; n -= 64) {  // from the back, so that the file only shrinks
    for (const std::size_t size : {n - 1, n - 64}) {
      CAPTURE(c.name);
      CAPTURE(size);
      std::filesystem::resize_file(file.path(), size);
      const std::string message = outcome(c, file.path());
      CHECK((!message.empty() || !c.cuts_fail));
    }
  }
}

void check_mutations(const HostileCase& c) {
  const CaseFile file(c);
  REQUIRE(outcome(c, file.path()) == "");
  std::mt19937_64 random(kSeed);
  int n_refused = 0;
  for (int i = 0; i < kMutations; ++i) {
    CAPTURE(c.name);
    CAPTURE(i);
    write(file.path(), mutated(c.bytes, c.n_header, random));
    n_refused += outcome(c, file.path()).empty() ? 0 : 1;
  }
  MESSAGE(c.name << ": " << n_refused << " of " << kMutations << " refused");
  CHECK(n_refused > 0);
}

}  // namespace banyan::test
