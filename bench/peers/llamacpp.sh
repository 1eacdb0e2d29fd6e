#!/usr/bin/env bash
# banyan beside llama.cpp on this machine: 64 samples below one prompt of 1,024 tokens, 64 tokens each, on the same
# Q4_1 file, and on what llama-quantize makes of it (llama.cpp multiplies some types faster than others).
#
#   bench/peers/llamacpp.sh MODEL.gguf [OUT.json]      OUT: bench/results/llamacpp-cpu.json
#
# Builds llama-batched-bench once, from the source package of llama-cpp-python (PyPI), in build/peers; wants banyan's
# preset release built. Every round runs each llama.cpp configuration and banyan once, one after the other, so that
# slow spells of the machine hit all of them; the file has medians over the rounds. llama.cpp does not sample here,
# banyan does.
# Environment: ROUNDS (3), TYPES ("q4_1 bf16 f32 q8_0"), FLASH ("off on"), COMPUTE (banyan's; f32), THREADS (all cores),
# JOBS (compilers; 2).
set -euo pipefail
shopt -s inherit_errexit
[[ $# -ge 1 ]] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
model=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${2:-bench/results/llamacpp-cpu.json}
readonly VERSION=0.3.36 N_PROMPT=1024 N_NEW=64 N_SAMPLES=64
rounds=${ROUNDS:-3} threads=${THREADS:-$(nproc)} compute=${COMPUTE:-f32}
read -ra types <<<"${TYPES:-q4_1 bf16 f32 q8_0}"
read -ra flash <<<"${FLASH:-off on}"
peers=$PWD/build/peers
bin=$peers/llamacpp/bin
mkdir -p "$peers" "$(dirname "$out")"

if [[ ! -x $bin/llama-batched-bench || ! -x $bin/llama-quantize ]]; then
  source=$peers/llama_cpp_python-$VERSION
  if [[ ! -d $source ]]; then
    python3 -m pip download -q --no-deps --no-binary llama-cpp-python -d "$peers" "llama-cpp-python==$VERSION" >&2
    tar -xzf "$source.tar.gz" -C "$peers"
  fi
  cmake -S "$source/vendor/llama.cpp" -B "$peers/llamacpp" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
    -DGGML_NATIVE=ON -DGGML_OPENMP=ON -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF >&2
  cmake --build "$peers/llamacpp" --target llama-batched-bench llama-quantize -j"${JOBS:-2}" >&2
fi

file_of() {  # TYPE: the model in that type
  if [[ $model == *"${1^^}".gguf ]]; then
    echo "$model"
  else
    local made
    made=$peers/$(basename "$model" .gguf).$1.gguf
    [[ -e $made ]] || "$bin/llama-quantize" --allow-requantize "$model" "$made" "${1^^}" "$threads" >&2
    echo "$made"
  fi
}

runs=$(mktemp -d "$peers/runs.XXXX")
for ((round = 0; round < rounds; ++round)); do
  for type in "${types[@]}"; do
    file=$(file_of "$type")
    for fa in "${flash[@]}"; do
      "$bin/llama-batched-bench" -m "$file" -c 8192 -b 2048 -ub 512 -t "$threads" -tb "$threads" -fa "$fa" -pps -kvu \
        -npp "$N_PROMPT" -ntg "$N_NEW" -npl "$N_SAMPLES" --output-format jsonl 2>/dev/null |
        grep '^{' >>"$runs/llamacpp.$type fa $fa.jsonl"
      build/release/bench/bench_decode -m "$model" --name smollm2-135m --compute "$compute" -t "$threads" --n-prefix "$N_PROMPT" \
        --n-samples "$N_SAMPLES" --n-new "$N_NEW" --modes tree --repeats 1 --out "$runs/banyan.$round.$type.$fa.json" >&2
    done
  done
done
python3 bench/peers/llamacpp_rows.py "$runs" "$out"
python3 scripts/bench_table.py "$out"
