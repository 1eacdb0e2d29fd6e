#!/usr/bin/env bash
# The decode table of one H200, random weights of published shapes, into bench/results/decode-h200.json (about NN minutes):
#
#   scripts/bench_h200.sh [BENCH_DECODE] [OUT.json]       default: build/cuda/bench/bench_decode
#
# Prompts are computed, except where --fill-kv stands. Rows that do not fit the device are printed with their bytes.
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bench=${1:-build/cuda/bench/bench_decode}
out=${2:-bench/results/decode-h200.json}

decode() {  # SHAPE N_PREFIX N_SAMPLES MODES N_NEW [OPTION…]
  local shape=$1 n_prefix=$2 n_samples=$3 modes=$4 n_new=$5
  shift 5
  "$bench" --device cuda --random-weights "bench/shapes/$shape.json" --name "$shape" --kv-type bf16 --repeats 1 \
    --n-prefix "$n_prefix" --n-samples "$n_samples" --modes "$modes" --n-new "$n_new" --out "$out" --append "$@"
}

decode codellama-13b 1024 1024,512,64 tree,no_attention 128
decode codellama-13b 16384 896,512 tree,no_attention 128
decode codellama-13b 1024 1 tree 64
