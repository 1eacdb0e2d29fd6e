#include "banyan/types.hpp"

#include <array>
#include <string>
#include <utility>

namespace banyan {
namespace {

struct DTypeInfo {
  DType type;
  std::string_view name;
  std::int64_t block_elements, block_bytes;
};
// In the order of the enumeration.
constexpr std::array kDTypes{
    DTypeInfo{DType::f32, "f32", 1, 4},         DTypeInfo{DType::f16, "f16", 1, 2},
    DTypeInfo{DType::bf16, "bf16", 1, 2},       DTypeInfo{DType::q8_0, "q8_0", 32, 34},
    DTypeInfo{DType::q4_0, "q4_0", 32, 18},     DTypeInfo{DType::q4_1, "q4_1", 32, 20},
    DTypeInfo{DType::q5_0, "q5_0", 32, 22},     DTypeInfo{DType::q5_1, "q5_1", 32, 24},
    DTypeInfo{DType::q2_k, "q2_k", 256, 84},    DTypeInfo{DType::q3_k, "q3_k", 256, 110},
    DTypeInfo{DType::q4_k, "q4_k", 256, 144},   DTypeInfo{DType::q5_k, "q5_k", 256, 176},
    DTypeInfo{DType::q6_k, "q6_k", 256, 210},   DTypeInfo{DType::iq4_nl, "iq4_nl", 32, 18},
    DTypeInfo{DType::f8_e4m3, "f8_e4m3", 1, 1},
};

const DTypeInfo& info(DType type) { return kDTypes[static_cast<std::size_t>(type)]; }

}  // namespace

std::string_view to_string(DType type) { return info(type).name; }

DType dtype_from_string(std::string_view name) {
  if (name == "fp8" || name == "fp8_e4m3") return DType::f8_e4m3;  // as vLLM calls it
  std::string known;
  for (const auto& t : kDTypes) {
    if (t.name == name) return t.type;
    known += (known.empty() ? "" : ", ") + std::string(t.name);
  }
  throw Error(ErrorCode::usage, std::string(name), "unknown element type; known: " + known);
}

std::int64_t dtype_block(DType type) { return info(type).block_elements; }

std::int64_t dtype_bytes(DType type, std::int64_t n) {
  const auto& t = info(type);
  if (n % t.block_elements != 0) {
    throw Error(ErrorCode::bad_file, std::string(t.name),
                std::to_string(n) + " elements are not whole blocks of " + std::to_string(t.block_elements));
  }
  return checked_mul(n / t.block_elements, t.block_bytes, t.name);
}

f16 to_f16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
  if (std::isnan(x)) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  const float a = std::fabs(x);
  if (a >= 65520.0F) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // rounds to 2^16 or is infinite
  if (a < 0x1p-14F) {  // subnormal or zero: round a * 2^24 to an integer, ties to even
    return {static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(a * 0x1p24F)))};
  }
  const std::uint32_t v = u & 0x7fffffffu;
  const std::uint32_t rounded = v + 0xfffu + ((v >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | ((rounded - (112u << 23)) >> 13))};
}

}  // namespace banyan
