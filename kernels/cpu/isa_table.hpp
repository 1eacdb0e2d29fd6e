// The table of the instruction set that the including file is compiled for. isa_<name>.cpp includes this and nothing
// else; see isa.hpp for the rule on linkage.
#pragma once

#include "kernels/cpu/isa_attention.hpp"
#include "kernels/cpu/isa_product.hpp"
#include "kernels/cpu/isa_rows.hpp"

namespace banyan::kernels {
namespace {

constexpr IsaOps make_table(std::string_view name) {
  return {.name = name,
          .bf16_row_bytes = sizeof(Bf16Operand),
          .gemm_f32 = gemm_f32,
          .gemm_bf16 = gemm_bf16,
          .round_bf16 = round_bf16,
          .attention = attention,
          .rms_norm = rms_norm,
          .silu_mul = silu_mul,
          .rope_kv = rope_kv};
}

}  // namespace
}  // namespace banyan::kernels
