#!/usr/bin/env bash
# Samples programs for the coding problems of examples/apps as one tree, runs them in a sandbox and prints pass@k, speed
# and what the sharing saved; first installs what is missing (apt packages, the default model) and builds, with CUDA
# where nvcc is there and a GPU answers.
# Writes out/demo/samples.jsonl, results.jsonl and tree.html.
#
#   scripts/demo.sh [-m MODEL] [OPTION of `banyan code sample`…]      e.g. scripts/demo.sh --n 16 --temperature 0.6
if command -v nvcc >/dev/null && nvidia-smi -L 2>/dev/null | grep -q ^GPU; then
  BANYAN_PRESET=${BANYAN_PRESET:-cuda}
fi
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

readonly OUT=out/demo
readonly PROBLEMS=examples/apps

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '2,/^if/{/^#/s/^# \{0,1\}//p}' "$0"
  exit 0
fi

model=
sample_options=()
while (($#)); do
  case $1 in
    -m | --model)
      (($# > 1)) || die "$1 needs a model: a .gguf file or a Hugging Face directory"
      model=$2
      shift
      ;;
    --model=*) model=${1#*=} ;;
    *) sample_options+=("$1") ;;
  esac
  shift
done

if [[ -n $model ]]; then
  model=$(cd "$CALLED_FROM" && realpath -e -- "$model") || die "-m: the model has to be a file or a directory that exists"
fi

# default_option NAME VALUE: for `code sample`, unless the caller gave that option.
default_option() {
  local option
  for option in "${sample_options[@]}"; do
    if [[ $option == "$1" || $option == "$1="* ]]; then return; fi
  done
  sample_options+=("$1" "$2")
}
default_option --n 64
default_option --seed 1
default_option --max-tokens 64

install_packages "${PACKAGES[@]}"
build banyan_cli
if [[ -z $model ]]; then model=$(default_model); fi
mkdir -p "$OUT"
rm -f "$OUT"/samples.jsonl "$OUT"/results.jsonl "$OUT"/results.summary.json "$OUT"/tree.html

"$BUILD_DIR/banyan" code sample -m "$model" --problems "$PROBLEMS" --few-shot "$PROBLEMS/few_shot.json" \
  --out "$OUT/samples.jsonl" --tree "$OUT/tree.html" "${sample_options[@]}"
"$BUILD_DIR/banyan" code eval "$OUT/samples.jsonl" --problems "$PROBLEMS" -k 1,8,64 --out "$OUT/results.jsonl"
say "wrote $OUT/samples.jsonl, $OUT/results.jsonl and $OUT/tree.html"
