#!/usr/bin/env python3
"""Writes tests/data/quants_golden.json: values of GGUF's block types, by the format's reference code.

Needs the PyPI package `gguf`, which has that code:
    python3 tools/golden_quants.py tests/data/quants_golden.json

For each type a few blocks: their bytes, random but for the scales, which are drawn and then those at the edges of a
half (zeros of both signs, subnormals, the largest), and the bits of the values that they stand for. Both as hexadecimal
text. test_quants.cpp compares bit for bit.
"""

import json
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

SEED = 20240205
# Places of the halves in a block.
SCALES = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "IQ4_NL": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}  # fmt: skip
EDGES = np.array([0.0, -0.0, 2.0**-24, -(2.0**-15), 65504.0, -65504.0], dtype=np.float16)


def draw_blocks(rng, name, n_blocks):
    kind = GGMLQuantizationType[name]
    blocks = rng.integers(0, 256, (n_blocks, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    for place in SCALES[name]:
        drawn = rng.normal(0, 0.02, n_blocks - len(EDGES) // 2).astype(np.float16)
        halves = np.concatenate([drawn, rng.choice(EDGES, len(EDGES) // 2, replace=False)])
        blocks[:, place : place + 2] = halves.view(np.uint8).reshape(n_blocks, 2)
    return kind, blocks


def entry(name, stored, values):
    return {
        "type": name.lower(),
        "n": values.size,
        "bytes": stored.tobytes().hex(),
        "values": values.astype("<f4").tobytes().hex(),
    }


def main(path):
    rng = np.random.default_rng(SEED)
    golden = []
    for name in SCALES:
        kind, blocks = draw_blocks(rng, name, 5 if name.endswith("_K") else 10)
        golden.append(entry(name, blocks, dequantize(blocks, kind)))
    for name in ("F16", "BF16"):
        halves = rng.integers(0, 1 << 16, 64, dtype=np.uint16)
        exponents = 0x7C00 if name == "F16" else 0x7F80
        halves[(halves & exponents) == exponents] ^= 0x4000  # infinities and NaN have no one pattern
        halves[:4] = [0, 0x8000, 1, 0x8001]
        stored = halves.view(np.uint8)
        golden.append(entry(name, stored, dequantize(stored, GGMLQuantizationType[name])))

    with open(path, "w", encoding="utf-8") as out:
        json.dump(golden, out, indent=0)
        out.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
