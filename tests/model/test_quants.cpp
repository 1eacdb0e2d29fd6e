// Block types: values against the reference code's, bit for bit, and what quantising costs.
#include <bit>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "model/gguf_writer.hpp"
#include "model_test.hpp"

using namespace banyan;
using namespace banyan::test;

namespace {

const std::vector<DType> kWritten{DType::f32,  DType::f16,  DType::bf16, DType::q8_0,
                                  DType::q4_0, DType::q4_1, DType::q4_k, DType::q6_k};

std::string unhex(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    out += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return out;
}

const std::byte* bytes_of(const std::string& text) { return reinterpret_cast<const std::byte*>(text.data()); }

struct Golden {
  DType type;
  std::string stored;
  std::vector<std::uint32_t> bits;  // of the values
};
std::vector<Golden> golden() {
  std::vector<Golden> out;
  for (const auto& entry : nlohmann::json::parse(read_file(BANYAN_SOURCE_DIR "/tests/data/quants_golden.json"))) {
    Golden g{dtype_from_string(entry["type"].get<std::string>()), unhex(entry["bytes"]), {}};
    const std::string values = unhex(entry["values"]);
    g.bits.resize(values.size() / 4);
    std::memcpy(g.bits.data(), values.data(), values.size());
    REQUIRE(g.bits.size() == entry["n"].get<std::size_t>());
    out.push_back(std::move(g));
  }
  return out;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> out;
  for (const float x : values) out.push_back(std::bit_cast<std::uint32_t>(x));
  return out;
}

std::vector<float> expanded(DType type, const std::byte* stored, std::size_t n) {
  std::vector<float> out(n);
  dequantize(type, stored, static_cast<std::int64_t>(n), out.data());
  return out;
}

std::vector<float> there_and_back(DType type, const std::vector<float>& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  std::string stored(static_cast<std::size_t>(dtype_bytes(type, n)), '\xff');
  quantize(type, x.data(), n, reinterpret_cast<std::byte*>(stored.data()));
  return expanded(type, bytes_of(stored), x.size());
}

std::vector<float> draw(std::size_t n, float scale) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> x(n);
  for (float& value : x) value = normal(random);
  return x;
}

// sqrt(sum of (x - y)^2 / sum of x^2)
double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += (static_cast<double>(x[i]) - y[i]) * (static_cast<double>(x[i]) - y[i]);
    size += static_cast<double>(x[i]) * x[i];
  }
  return std::sqrt(error / size);
}

// Each block of 32 by its largest value alone: x = d q with q in [-half, half - 1], or x = low + d q with q in [0, 15].
std::vector<float> plainly_rounded(const std::vector<float>& x, bool line) {
  std::vector<float> out;
  for (std::size_t block = 0; block < x.size(); block += 32) {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(block);
    const auto [low, high] = std::minmax_element(begin, begin + 32);
    const float most = -*low > *high ? *low : *high;
    const float d = line ? (*high - *low) / 15 : most / -8, m = line ? *low : 0.0F;
    for (auto p = begin; p != begin + 32; ++p) {
      const float q = std::nearbyint((*p - m) / d);
      out.push_back(d * (line ? q : std::clamp(q, -8.0F, 7.0F)) + m);
    }
  }
  return out;
}

}  // namespace

TEST_CASE("quants: every block type gives the reference code's values, bit for bit") {
  std::set<DType> seen;
  for (const Golden& g : golden()) {
    CAPTURE(to_string(g.type));
    seen.insert(g.type);
    CHECK(bits_of(expanded(g.type, bytes_of(g.stored), g.bits.size())) == g.bits);
    const std::string moved = "x" + g.stored;  // no alignment is needed
    CHECK(bits_of(expanded(g.type, bytes_of(moved) + 1, g.bits.size())) == g.bits);
  }
  CHECK(seen.size() == 13);  // all but f32
}

TEST_CASE("quants: a GGUF file of every type, in versions 2 and 3") {
  const TempDir dir("gguf_types");
  for (const std::uint32_t version : {2U, 3U}) {
    GgufWriter out(version);
    out.add_string("s", "text");
    for (const Golden& g : golden()) {
      const std::int64_t n = dtype_block(g.type) * 2, rows = static_cast<std::int64_t>(g.bits.size()) / n;
      out.add_tensor(std::string(to_string(g.type)), g.type, {rows, n},
                     g.stored.substr(0, static_cast<std::size_t>(dtype_bytes(g.type, n * rows))));
    }
    write_file(dir / "types.gguf", out.bytes());
    const GgufFile file(dir / "types.gguf");
    CHECK(file.find_string("s") == "text");
    CHECK(file.tensors().size() == 13);
    for (const Golden& g : golden()) {
      CAPTURE(to_string(g.type));
      const Tensor& t = file.tensors().at(std::string(to_string(g.type)));
      CHECK(t.type == g.type);
      std::vector<float> row(static_cast<std::size_t>(t.shape[1]));
      dequantize_row(t, 1, row.data());
      const auto begin = g.bits.begin() + t.shape[1];
      CHECK(bits_of(row) == std::vector<std::uint32_t>(begin, begin + t.shape[1]));
    }
  }
}

TEST_CASE("quants: halves survive, and their bits are those of the hardware's rule") {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const f16 half{static_cast<std::uint16_t>(bits)};
    const float x = to_float(half);
    const bool nan = (bits & 0x7c00U) == 0x7c00U && (bits & 0x3ffU) != 0;
    REQUIRE(std::isnan(x) == nan);
    if (!nan) REQUIRE(to_f16(x).bits == bits);
    const double mantissa = bits & 0x3ffU, exponent = (bits >> 10U) & 31U;
    const double expected =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
    if (exponent < 31) REQUIRE(std::fabs(static_cast<double>(x)) == expected);
  }
}

TEST_CASE("quants: what quantising costs stays within the step of each type") {
  const auto x = draw(256 * 40, 0.02F);
  // Of a normal distribution; half a step of the scale for a block's largest value, over sqrt(3).
  const std::map<DType, double> most{{DType::f32, 0.0},   {DType::f16, 3e-4},   {DType::bf16, 2e-3},
                                     {DType::q8_0, 6e-3}, {DType::q4_0, 0.085}, {DType::q4_1, 0.08},
                                     {DType::q4_k, 0.08}, {DType::q6_k, 0.02}};
  for (const DType type : kWritten) {
    const double error = relative_error(x, there_and_back(type, x));
    CAPTURE(to_string(type));
    CAPTURE(error);
    CHECK(can_quantize(type));
    CHECK(error <= most.at(type));
    CHECK(error >= most.at(type) / 3);
  }
  CHECK(relative_error(x, there_and_back(DType::q4_0, x)) < 0.95 * relative_error(x, plainly_rounded(x, false)));
  CHECK(relative_error(x, there_and_back(DType::q4_1, x)) < 0.95 * relative_error(x, plainly_rounded(x, true)));
  for (const DType type : {DType::q5_0, DType::q5_1, DType::q2_k, DType::q3_k, DType::q5_k, DType::iq4_nl}) {
    CHECK_FALSE(can_quantize(type));
  }
}

TEST_CASE("quants: zeros, constants, outliers and values at the edges of a half") {
  for (const DType type : kWritten) {
    CAPTURE(to_string(type));
    CHECK(there_and_back(type, std::vector<float>(512, 0.0F)) == std::vector<float>(512, 0.0F));
    for (const float c : {1.0F, -1.0F, 0.03F, -65504.0F, 65504.0F}) {
      CAPTURE(c);
      CHECK(relative_error(std::vector<float>(512, c), there_and_back(type, std::vector<float>(512, c))) < 0.01);
    }
    for (const float scale : {65504.0F / 6, 1e-3F, 1e-7F, 1e-30F, 1e-42F}) {
      auto x = draw(512, scale);
      for (float& value : x) value = std::clamp(value, -65504.0F, 65504.0F);
      x[300] = 65504.0F;
      const auto y = there_and_back(type, x);
      CHECK(std::ranges::all_of(y, [](float value) { return std::isfinite(value); }));
      CHECK(std::fabs(y[300] - 65504.0F) <= 0.15F * 65504.0F);  // q4_0 has -8, but 7
    }
  }
}
