#!/usr/bin/env bash
# The decode table of one H200, random weights of published shapes, into bench/results/decode-h200.json:
#
#   scripts/bench_h200.sh [BENCH_DECODE [OUT.json [GROUP…]]]    default: build/cuda/bench/bench_decode, all groups
#
# Groups: paper (CodeLlama shapes of arXiv 2402.05099), one (a single sequence), llama (a sweep), document (long
# documents), apps (problems below a few-shot prompt). Prompts are computed, except where --fill-kv stands. Rows that do
# not fit the device are printed with their bytes.
set -uo pipefail  # a row that fails does not take the others with it
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
bench=$(realpath "${1:-build/cuda/bench/bench_decode}")
out=$(realpath -m "${2:-bench/results/decode-h200.json}")
shift $(($# < 2 ? $# : 2))
groups=${*:-paper one llama document apps}
cd "$(dirname "${BASH_SOURCE[0]}")/.."

decode() {  # SHAPE N_PREFIX N_SAMPLES N_NEW MODES [OPTION…]
  local shape=$1 n_prefix=$2 n_samples=$3 n_new=$4 modes=$5
  shift 5
  "$bench" --device cuda --random-weights "bench/shapes/$shape.json" --name "$shape" --kv-type bf16 --repeats 1 \
    --n-prefix "$n_prefix" --n-samples "$n_samples" --n-new "$n_new" --modes "$modes" --out "$out" --append "$@"
}

# A sample's first token comes with the prompt: 127 steps make 128 new tokens, 63 make 64.
paper() {
  decode codellama-13b 16384 960,512 127 tree,no_attention
  decode codellama-13b 1024 1024,512,128,32 127 tree,no_attention
  for n_prefix in 2048 4096 8192; do decode codellama-13b "$n_prefix" 1024 127 tree; done
  decode codellama-7b 16384 1024 127 tree,no_attention
  decode codellama-34b 1024 2048,512 63 tree,no_attention
  decode codellama-34b 16384 2048 63 tree
}
one() {
  for shape in codellama-7b codellama-13b codellama-34b llama-3.1-8b; do decode "$shape" 1024 1 63 tree,no_attention; done
}
llama() {
  for n_prefix in 1024 8192 32768 131072; do decode llama-3.1-8b "$n_prefix" 1,64,512,2048 63 tree --fill-kv; done
}
document() {
  decode yi-6b-200k 19947 256 63 tree,unshared,no_attention --n-branches 256 --n-branch-tokens 30
  decode yi-6b-200k 19947 64 63 tree,unshared --n-branches 64 --n-branch-tokens 30
  for n_prefix in 131072 524288 1000000; do decode yi-6b-200k "$n_prefix" 64 31 tree --fill-kv; done
}
apps() {
  decode codellama-7b 2400 1024 31 tree,one_level,unshared,no_attention --n-branches 8 --n-branch-tokens 600
}
for group in $groups; do "$group"; done
