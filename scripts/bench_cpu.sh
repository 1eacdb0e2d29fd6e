#!/usr/bin/env bash
# All CPU results of bench/results, on a machine that does nothing else (about half an hour):
#
#   scripts/bench_cpu.sh MODEL.gguf TREES.json        MODEL: SmolLM2-135M-Instruct.Q4_1.gguf
#
# Environment: THREADS (all cores).
set -euo pipefail
[[ $# -eq 2 ]] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
model=$(realpath "$1") trees=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
results=bench/results
mkdir -p "$results"
cmake --preset release >&2
cmake --build build/release --target bench_decode bench_plan >&2
decode() { build/release/bench/bench_decode -m "$model" --name smollm2-135m -t "${THREADS:-0}" "$@"; }

decode --compute f32 --kv-type f32 --out "$results/decode-f32.json"
decode --compute f32 --kv-type bf16 --out "$results/decode-f32-kv-bf16.json"
decode --compute bf16 --kv-type bf16 --out "$results/decode-bf16.json"
decode --n-samples 1,4,16,256 --modes tree,no_attention --compute f32 --out "$results/decode-samples.json"
build/release/bench/bench_plan "$trees" --out "$results/plan-cpu.json"
scripts/bench_table.py
bench/peers/llamacpp.sh "$model"
